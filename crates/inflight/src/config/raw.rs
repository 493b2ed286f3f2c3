//! The configuration file as it is written: every key with its documentation, default and range.
//!
//! This is the one place that says them; the reader and the reference page are made from it. What
//! keys mean together is judged in `resolve`. Everything is optional here, because what is wrong
//! with one key must not hide what is wrong with the next.

mod fleet;
mod scaling;

use std::net::SocketAddr;
use std::time::Duration;

use super::document::{self, Node};
use super::error::{Located, Problems};
use super::section::{
    Absent, KeyDoc, Keys, SectionDoc, absent, doc_text, key_name, mapping_of, range, section,
};
use super::setting::{FILE, Items, Ports, Setting};

pub(super) use fleet::{
    Bounds, EndpointsKeys, Fleet, IpFamily, Limits, Model, Process, Protocol, Source, TargetKeys,
    Timeouts,
};
pub(super) use scaling::{
    Admission, Measured, Profile, Queue, Rule, Scaling, StepLimit, WhenClosed,
};

/// The shortest span that can be written.
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

section! {
    /// The file. Keys that are not listed here are errors, so that a slip of the pen is never
    /// taken for a setting.
    File {
        /// The version of the file's format.
        version: u32 = required, 1..=1;
        /// The API, the metrics and the health checks.
        admin: Admin = "{}";
        /// The fleets, each independent of the others.
        fleets: Vec<Fleet> = required, Items { count: 1..=10_000, each: () };
    }
    later journal
}

section! {
    /// What people and monitoring talk to.
    Admin {
        /// Where to listen.
        listen: SocketAddr = "127.0.0.1:9900", Ports::Listen;
        /// A file that holds the token which callers must send to pause or resize a fleet. Without
        /// one, these calls are refused unless `listen` is a loopback address.
        token_file: String = unset, FILE;
    }
}
