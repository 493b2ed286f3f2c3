//! Integration tests: real sockets and processes of this machine, one binary.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its fixtures too"
)]

mod process_target;
mod serve;
