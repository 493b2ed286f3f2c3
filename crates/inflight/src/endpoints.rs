//! Endpoints: those that nobody here starts, found at fixed addresses or by a name, and the watch
//! over the health of all of them, whoever starts them.
//!
//! Both speak to the control loop as a target does. Who is fit is decided in the core; who gets a
//! request is the gate's business.

mod book;
mod resolver;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::Timestamp;
use tokio::sync::mpsc;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

pub use resolver::{Answer, Family, Resolver, system_resolver};
pub use watch::{HealthSettings, watch};

use crate::fleet::Fleet;
use crate::ports::{TargetCommand, TargetEvent};
use book::Book;

/// Replicas that a name may stand for; more are left out.
pub const ADDRESSES_MAX: usize = 10_000;

/// How long an answer is waited for before the last known addresses are said to be old. The usual
/// resolver asks a server for 5 s, twice.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Where the endpoints are, and what happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where they are.
    pub source: Source,
    /// What happens as they come and go.
    pub comings: Comings,
}

/// Where the endpoints are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// At these addresses.
    Fixed(Vec<SocketAddr>),
    /// At the addresses of a name, which is resolved again and again.
    Name {
        /// The name and the port, `host:port`.
        name: String,
        /// From one answer to the next question.
        every: Duration,
        /// Which of the addresses count.
        family: Family,
    },
}

/// What happens to endpoints as they come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comings {
    /// Whether somebody checks them before they get requests; else they are ready at once.
    pub are_checked: bool,
    /// How long one that is gone may keep its requests before it is forgotten. They end by
    /// themselves all the same.
    pub drain: Duration,
}

/// Tells of endpoints until `commands` or `events` end. A name is answered by `resolver`.
///
/// Other settings count at once: addresses that they leave out drain.
pub async fn serve(
    fleet: Arc<Fleet>,
    mut settings: Receiver<Settings>,
    resolver: Resolver,
    commands: mpsc::Receiver<TargetCommand>,
    events: mpsc::Sender<TargetEvent>,
) {
    let Settings { source, comings } = settings.borrow_and_update().clone();
    let mut keeper = Keeper {
        fleet,
        resolver,
        book: Book::new(comings, ADDRESSES_MAX),
        name: None,
        ask_at: None,
        question: None,
        silence: None,
        failing_since: None,
        is_cut: false,
    };
    keeper.set_source(source);
    keeper.run(settings, commands, events).await;
}

struct Name {
    name: String,
    every: Duration,
    family: Family,
}

struct Keeper {
    fleet: Arc<Fleet>,
    resolver: Resolver,
    book: Book,
    /// What is resolved, where the addresses are not fixed.
    name: Option<Name>,
    ask_at: Option<Timestamp>,
    /// The question that is under way; there is never a second one for the same settings, since one
    /// that hangs holds a thread.
    question: Option<Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>>,
    /// When a question that is under way counts as failed.
    silence: Option<Timestamp>,
    /// Since when no answer could be used.
    failing_since: Option<Timestamp>,
    is_cut: bool,
}

impl Keeper {
    async fn run(
        mut self,
        mut settings: Receiver<Settings>,
        mut commands: mpsc::Receiver<TargetCommand>,
        events: mpsc::Sender<TargetEvent>,
    ) {
        let clock = self.fleet.clock();
        loop {
            let wake = [self.book.poll_timeout(), self.silence, self.ask_at]
                .into_iter()
                .flatten()
                .min();
            let wake = wake.map(|at| Instant::from_std(clock.instant(at)));
            tokio::select! {
                permit = events.reserve(), if self.book.has_events() => match permit {
                    Ok(permit) => if let Some(event) = self.book.poll_event() {
                        permit.send(event);
                    },
                    Err(_) => return,
                },
                command = commands.recv() => match command {
                    Some(TargetCommand::Drained(replica)) => self.book.on_drained(replica),
                    // Nobody here starts or ends a replica.
                    Some(
                        TargetCommand::Size { .. }
                        | TargetCommand::Replace(_)
                        | TargetCommand::TakeBack,
                    ) => {}
                    // Another process finds the same addresses by itself.
                    Some(TargetCommand::HandOver { done }) => done.send(()).unwrap_or_default(),
                    Some(TargetCommand::Stop) | None => return,
                },
                Ok(()) = settings.changed() => {
                    let Settings { source, comings } = settings.borrow_and_update().clone();
                    self.book.set_comings(comings);
                    self.set_source(source);
                }
                answer = answer(&mut self.question) => self.on_answer(answer),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.on_timeout(clock.now());
                }
            }
        }
    }

    /// What a question of other settings still answers is not heard.
    fn set_source(&mut self, source: Source) {
        let now = self.fleet.clock().now();
        self.question = None;
        self.silence = None;
        self.failing_since = None;
        match source {
            Source::Fixed(addresses) => {
                self.name = None;
                self.ask_at = None;
                self.fleet.board().resolved = None;
                self.book.on_answer(now, &addresses.into_iter().collect());
            }
            Source::Name {
                name,
                every,
                family,
            } => {
                self.name = Some(Name {
                    name,
                    every,
                    family,
                });
                self.ask_at = Some(now);
            }
        }
    }

    fn on_timeout(&mut self, now: Timestamp) {
        self.book.on_timeout(now);
        if self.silence.take_if(|at| *at <= now).is_some() {
            self.on_failure(format_args!("no answer within {ANSWER_WITHIN:?}"));
        }
        if self.ask_at.take_if(|at| *at <= now).is_some()
            && let Some(name) = &self.name
        {
            self.question = Some((self.resolver)(name.name.clone()));
            self.silence = Some(now + ANSWER_WITHIN);
        }
    }

    /// Takes the addresses of an answer. One that failed or is empty says nothing: the last known
    /// ones stay, and health tells which of them still work.
    fn on_answer(&mut self, answer: io::Result<Answer>) {
        let now = self.fleet.clock().now();
        self.question = None;
        self.silence = None;
        let Some(name) = &self.name else { return };
        self.ask_at = Some(now + name.every);
        let addresses: BTreeSet<SocketAddr> = match answer {
            Ok(answer) => answer
                .into_iter()
                .filter(|address| name.family.includes(*address))
                .collect(),
            Err(error) => return self.on_failure(format_args!("{error}")),
        };
        if addresses.is_empty() {
            return self.on_failure(format_args!("it has no address"));
        }
        let (fleet, name) = (self.fleet.name(), &name.name);
        if let Some(since) = self.failing_since.take() {
            let failed_seconds = now.since(since).as_secs_f64();
            info!(fleet, name, failed_seconds, "the name is resolved again");
        }
        let left_out = self.book.on_answer(now, &addresses);
        if left_out > 0 && !self.is_cut {
            warn!(fleet, name, left_out, "the name has too many addresses");
        }
        self.is_cut = left_out > 0;
        self.fleet.board().resolved = Some(now);
    }

    /// Says once that the name is not resolved.
    fn on_failure(&mut self, why: std::fmt::Arguments<'_>) {
        if self.failing_since.is_some() {
            return;
        }
        self.failing_since = Some(self.fleet.clock().now());
        warn!(
            fleet = self.fleet.name(),
            name = self.name.as_ref().map(|name| name.name.as_str()),
            why = %why,
            known = self.book.len(),
            "the name is not resolved; its last known addresses stay"
        );
    }
}

async fn answer(
    question: &mut Option<Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>>,
) -> io::Result<Answer> {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
}
