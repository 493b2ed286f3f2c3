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

/// Where the endpoints are.
pub enum Source {
    /// At these addresses, for ever.
    Fixed(Vec<SocketAddr>),
    /// At the addresses of a name, which is resolved again and again.
    Name {
        /// The name and the port, `host:port`.
        name: String,
        /// From one answer to the next question.
        every: Duration,
        /// Which of the addresses count.
        family: Family,
        /// What answers.
        resolver: Resolver,
    },
}

/// What happens to endpoints as they come and go.
#[derive(Clone, Copy, Debug)]
pub struct Comings {
    /// Whether somebody checks them before they get requests; else they are ready at once.
    pub are_checked: bool,
    /// How long one that is gone may keep its requests before it is forgotten. They end by
    /// themselves all the same.
    pub drain: Duration,
}

/// Tells of endpoints until `commands` or `events` end.
pub async fn serve(
    fleet: Arc<Fleet>,
    source: Source,
    comings: Comings,
    commands: mpsc::Receiver<TargetCommand>,
    events: mpsc::Sender<TargetEvent>,
) {
    let mut keeper = Keeper {
        fleet,
        book: Book::new(comings, ADDRESSES_MAX),
        question: None,
        silence: None,
        failing_since: None,
        is_cut: false,
    };
    match source {
        Source::Fixed(addresses) => {
            let now = keeper.fleet.clock().now();
            keeper.book.on_answer(now, &addresses.into_iter().collect());
            keeper.run(commands, events, None).await;
        }
        Source::Name {
            name,
            every,
            family,
            resolver,
        } => {
            let name = Name {
                name,
                every,
                family,
                resolver,
            };
            keeper.run(commands, events, Some(name)).await;
        }
    }
}

struct Name {
    name: String,
    every: Duration,
    family: Family,
    resolver: Resolver,
}

struct Keeper {
    fleet: Arc<Fleet>,
    book: Book,
    /// The question that is under way; there is never a second one, since one that hangs holds a
    /// thread.
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
        mut commands: mpsc::Receiver<TargetCommand>,
        events: mpsc::Sender<TargetEvent>,
        name: Option<Name>,
    ) {
        let clock = self.fleet.clock();
        let mut ask_at = name.as_ref().map(|_| clock.now());
        loop {
            let wake = [self.book.poll_timeout(), self.silence, ask_at]
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
                    Some(TargetCommand::Size { .. } | TargetCommand::Replace(_)) => {}
                    Some(TargetCommand::Stop) | None => return,
                },
                answer = answer(&mut self.question) => {
                    self.question = None;
                    self.silence = None;
                    if let Some(name) = &name {
                        self.on_answer(name, answer);
                        ask_at = Some(clock.now() + name.every);
                    }
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    let now = clock.now();
                    self.book.on_timeout(now);
                    if let Some(name) = &name {
                        if self.silence.take_if(|at| *at <= now).is_some() {
                            self.on_failure(name, format_args!("no answer within {ANSWER_WITHIN:?}"));
                        }
                        if ask_at.take_if(|at| *at <= now).is_some() {
                            self.question = Some((name.resolver)(name.name.clone()));
                            self.silence = Some(now + ANSWER_WITHIN);
                        }
                    }
                }
            }
        }
    }

    /// Takes the addresses of an answer. One that failed or is empty says nothing: the last known
    /// ones stay, and health tells which of them still work.
    fn on_answer(&mut self, name: &Name, answer: io::Result<Answer>) {
        let addresses: BTreeSet<SocketAddr> = match answer {
            Ok(answer) => answer
                .into_iter()
                .filter(|address| name.family.includes(*address))
                .collect(),
            Err(error) => return self.on_failure(name, format_args!("{error}")),
        };
        if addresses.is_empty() {
            return self.on_failure(name, format_args!("it has no address"));
        }
        let now = self.fleet.clock().now();
        if let Some(since) = self.failing_since.take() {
            let failed_seconds = now.since(since).as_secs_f64();
            let fleet = self.fleet.name();
            info!(
                fleet,
                name = name.name,
                failed_seconds,
                "the name is resolved again"
            );
        }
        let left_out = self.book.on_answer(now, &addresses);
        if left_out > 0 && !self.is_cut {
            let fleet = self.fleet.name();
            warn!(
                fleet,
                name = name.name,
                left_out,
                "the name has too many addresses"
            );
        }
        self.is_cut = left_out > 0;
        self.fleet.board().resolved = Some(now);
    }

    /// Says once that the name is not resolved.
    fn on_failure(&mut self, name: &Name, why: std::fmt::Arguments<'_>) {
        if self.failing_since.is_some() {
            return;
        }
        self.failing_since = Some(self.fleet.clock().now());
        warn!(
            fleet = self.fleet.name(),
            name = name.name,
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
