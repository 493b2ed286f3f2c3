//! Tells other systems which replicas there are, where requests reach them past us: Envoys by a
//! file of endpoints, a Prometheus by a file of targets, and our own source, which reads their pages.
//!
//! It stands between a target, with the watch over its replicas' health, and the control loop. It
//! passes news on in order, and commands but for one: that a replica is drained is its own to say
//! where Envoys send the requests. It chooses no replica.

mod book;
mod files;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use inflight_core::{Replicas, Timestamp};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};

use crate::config::PublishSettings;
use crate::fleet::{Fleet, Serving};
use crate::ports::{RoutedReading, TargetCommand, TargetEvent};
use book::{Book, Listed};

/// Events and commands that may wait for whoever takes them; while so many do, no more is taken.
const WAITING: usize = 1_024;

/// How long after a file could not be written it is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// How often a file is looked at that was written: somebody else may remove or change it.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long past the drain time-out the end of all replicas may take, that files cannot be written
/// included.
const END_SLACK: Duration = Duration::from_secs(5);

/// Who is told, and how long a replica may drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who is told; the same as long as the fleet runs.
    pub publish: PublishSettings,
    /// How long a replica that Envoys send requests to may keep them.
    pub drain: Duration,
}

/// The channels between a target, a control loop and those who ask Envoys.
#[derive(Debug)]
pub struct Links {
    /// Commands of the control loop.
    pub commands: mpsc::Receiver<TargetCommand>,
    /// Commands to the target.
    pub to_target: mpsc::Sender<TargetCommand>,
    /// News of the target.
    pub news: mpsc::Receiver<TargetEvent>,
    /// News to the control loop.
    pub events: mpsc::Sender<TargetEvent>,
    /// What Envoys have at each replica.
    pub readings: mpsc::Receiver<RoutedReading>,
    /// For what that is wanted in haste, if for anything: another number is another matter.
    pub in_haste: watch::Sender<Option<u64>>,
}

/// Makes sure that each file is there and can be replaced. One that is there stays: it may be of a
/// process of ours whose replicas run.
///
/// # Errors
/// One cannot be written; with its name.
pub fn prepare(settings: &PublishSettings, fleet: &str) -> Result<(), (PathBuf, io::Error)> {
    for (file, value) in contents(settings, fleet, &[]) {
        let written = files::ensure(&file, value.to_string().as_bytes());
        written.map_err(|error| (file, error))?;
    }
    Ok(())
}

fn contents(
    settings: &PublishSettings,
    fleet: &str,
    replicas: &[Listed],
) -> impl Iterator<Item = (PathBuf, Value)> {
    let envoy = settings.envoy.as_ref();
    let prometheus = settings.prometheus.as_ref();
    let envoy = envoy.map(|file| (file.file.clone(), files::endpoints(file, replicas)));
    let prometheus =
        prometheus.map(|file| (file.file.clone(), files::targets(file, fleet, replicas)));
    envoy.into_iter().chain(prometheus)
}

/// Tells of the replicas until the target has ended. `adopted` are those of an earlier process of
/// ours that the target tells of first, by their index, and whether they were ready.
pub async fn serve(
    fleet: Arc<Fleet>,
    mut settings: watch::Receiver<Settings>,
    adopted: BTreeMap<u32, bool>,
    links: Links,
) {
    let first = settings.borrow_and_update().clone();
    let proxies = first.publish.envoy.as_ref().map(|envoy| envoy.admin.len());
    let publisher = Publisher {
        book: Book::new(proxies, first.drain, adopted),
        outputs: contents(&first.publish, fleet.name(), &[])
            .map(|(file, _)| (file, Output::default()))
            .collect(),
        deaf: BTreeSet::new(),
        served: None,
        settings: first,
        fleet,
        writing: JoinSet::new(),
        outbox: VecDeque::new(),
        inbox: VecDeque::new(),
        handing_over: None,
        is_handed_over: false,
        end_by: None,
    };
    publisher.run(settings, links).await;
}

struct Publisher {
    fleet: Arc<Fleet>,
    settings: Settings,
    book: Book,
    /// By the file that is written.
    outputs: BTreeMap<PathBuf, Output>,
    writing: JoinSet<Written>,
    /// The Envoys that do not follow their file, by their place.
    deaf: BTreeSet<usize>,
    /// The version of the list by which our own source knows the replicas.
    served: Option<u64>,
    /// News that waits for the control loop.
    outbox: VecDeque<TargetEvent>,
    /// Commands that wait for the target.
    inbox: VecDeque<TargetCommand>,
    /// A command that waits for the files: another process of ours writes them after it.
    handing_over: Option<TargetCommand>,
    is_handed_over: bool,
    /// All replicas are to go; when that is not waited for any longer.
    end_by: Option<Timestamp>,
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Output {
    /// The version of the list that is there.
    written: Option<u64>,
    is_writing: bool,
    /// When to try again what failed, or to look whether it is still there.
    again_at: Option<Timestamp>,
}

/// The file, the version of the list, and whether something else was found where that was before.
type Written = (PathBuf, u64, io::Result<bool>);

impl Publisher {
    async fn run(mut self, mut settings: watch::Receiver<Settings>, links: Links) {
        let Links {
            mut commands,
            to_target,
            mut news,
            events,
            mut readings,
            in_haste,
        } = links;
        // Dropped to end the target.
        let mut to_target = Some(to_target);
        let (mut has_commands, mut has_news, mut is_heard) = (true, true, true);
        let clock = self.fleet.clock();
        loop {
            self.act(&in_haste);
            if self.is_ended() {
                to_target = None;
            }
            if !has_news && self.outbox.is_empty() && self.is_settled() {
                return;
            }
            let wake = self.wake().map(|at| Instant::from_std(clock.instant(at)));
            tokio::select! {
                // What happened to replicas comes before what is done about them.
                biased;
                event = news.recv(), if has_news && self.outbox.len() < WAITING => match event {
                    Some(event) => {
                        self.book.on_event(&event);
                        self.outbox.push_back(event);
                    }
                    None => has_news = false,
                },
                permit = events.reserve(), if is_heard && !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    Err(_) => is_heard = false,
                },
                Some(written) = self.writing.join_next() => self.on_written(written),
                command = commands.recv(), if has_commands && self.inbox.len() < WAITING => {
                    match command {
                        Some(TargetCommand::Stop) | None => {
                            has_commands = false;
                            self.end();
                        }
                        Some(command) => self.on_command(command),
                    }
                }
                Some(permit) = reserve(to_target.as_ref()), if !self.inbox.is_empty() => {
                    // A target that is gone shows in its news.
                    if let (Ok(permit), Some(command)) = (permit, self.inbox.pop_front()) {
                        permit.send(command);
                    }
                }
                Some(reading) = readings.recv() => self.on_reading(reading),
                Ok(()) = settings.changed() => {
                    self.settings = settings.borrow_and_update().clone();
                    self.book.set_drain(self.settings.drain);
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.book.on_timeout(clock.now());
                }
            }
            if !is_heard {
                self.outbox.clear();
            }
        }
    }

    fn on_command(&mut self, command: TargetCommand) {
        match command {
            TargetCommand::Drained(_) if self.settings.publish.envoy.is_some() => {}
            TargetCommand::HandOver { .. } => {
                self.is_handed_over = true;
                self.handing_over = Some(command);
            }
            TargetCommand::TakeBack => {
                self.is_handed_over = false;
                self.inbox.extend(self.handing_over.take());
                self.book.on_taken_back();
                // The other may have written.
                for output in self.outputs.values_mut() {
                    output.written = None;
                    output.again_at = None;
                }
                self.inbox.push_back(command);
            }
            TargetCommand::Size { .. }
            | TargetCommand::Drained(_)
            | TargetCommand::Replace(_)
            | TargetCommand::Stop => self.inbox.push_back(command),
        }
    }

    /// Lets all replicas go, in the same way as each.
    fn end(&mut self) {
        let now = self.fleet.clock().now();
        let is_ours = self.settings.publish.envoy.is_some() && !self.is_handed_over;
        if !is_ours {
            self.end_by = Some(now);
            return;
        }
        self.end_by = Some(now + self.settings.drain.saturating_add(END_SLACK));
        self.inbox.push_back(TargetCommand::Size {
            desired: Replicas::ZERO,
            drain: Vec::new(),
        });
    }

    /// Tells whether the target may end what is left.
    fn is_ended(&self) -> bool {
        let is_over = |by: Timestamp| self.book.is_empty() || self.fleet.clock().now() >= by;
        self.end_by.is_some_and(is_over) && self.inbox.is_empty() && self.handing_over.is_none()
    }

    fn on_reading(&mut self, reading: RoutedReading) {
        if self.is_handed_over {
            return;
        }
        self.book.on_reading(reading);
        self.tell_of_the_deaf();
        if let Some(published) = self.fleet.published() {
            published.set_in_flight(self.book.in_flight());
        }
    }

    /// Says which Envoys do not follow the file: nothing that is told there reaches them.
    fn tell_of_the_deaf(&mut self) {
        let deaf = self.book.deaf(self.fleet.clock().now());
        let before = std::mem::replace(&mut self.deaf, deaf);
        let Some(file) = &self.settings.publish.envoy else {
            return;
        };
        let fleet = self.fleet.name();
        let named = |proxy: &usize| file.admin.get(*proxy).map(|page| page.authority.as_str());
        for envoy in self.deaf.difference(&before).filter_map(named) {
            warn!(
                fleet,
                envoy,
                file = %file.file.display(),
                "an Envoy knows other endpoints than its file has: it does not follow the file"
            );
        }
        for envoy in before.difference(&self.deaf).filter_map(named) {
            info!(fleet, envoy, "this Envoy follows its file");
        }
    }

    fn wake(&self) -> Option<Timestamp> {
        let again = self.outputs.values().filter_map(|output| output.again_at);
        let again = again.filter(|_| !self.is_handed_over).min();
        let due = self.book.poll_timeout().filter(|_| !self.is_handed_over);
        let now = self.fleet.clock().now();
        [due, again, self.end_by.filter(|&by| by > now)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what follows from what is known.
    fn act(&mut self, in_haste: &watch::Sender<Option<u64>>) {
        if !self.is_handed_over {
            self.write();
            while let Some(replica) = self.book.poll_drained() {
                self.inbox.push_back(TargetCommand::Drained(replica));
            }
        }
        while let Some(overdue) = self.book.poll_overdue() {
            warn!(
                fleet = self.fleet.name(),
                replica = overdue.index,
                why = overdue.why,
                "a replica is ended although it may have requests: it drained for too long"
            );
        }
        if self.writing.is_empty() {
            self.inbox.extend(self.handing_over.take());
        }
        let waits = self.book.waits_for_proxies();
        let waits = waits.filter(|_| !self.is_handed_over);
        in_haste.send_if_modified(|before| std::mem::replace(before, waits) != waits);
    }

    /// Begins to write each file that does not say what is.
    fn write(&mut self) {
        let now = self.fleet.clock().now();
        let Some(version) = self.book.version() else {
            return;
        };
        let is_served = self.served == Some(version);
        let mut outputs = self.outputs.values();
        if is_served && !outputs.any(|output| output.is_due(now, version)) {
            return;
        }
        let list = self.book.list();
        if !is_served {
            self.serve(&list);
            self.served = Some(version);
        }
        for (file, value) in contents(&self.settings.publish, self.fleet.name(), &list) {
            let output = self.outputs.get_mut(&file);
            let Some(output) = output.filter(|output| output.is_due(now, version)) else {
                continue;
            };
            output.is_writing = true;
            output.again_at = None;
            let was_written = output.written == Some(version);
            // A disk that hangs holds up nobody else.
            self.writing.spawn_blocking(move || {
                let content = value.to_string();
                let written = if was_written {
                    files::restore(&file, content.as_bytes())
                } else {
                    files::replace(&file, content.as_bytes()).map(|()| false)
                };
                (file, version, written)
            });
        }
    }

    /// Tells our own source of the replicas, whatever becomes of the files.
    fn serve(&self, list: &[Listed]) {
        let serving = list.iter().map(|replica| Serving {
            address: replica.address,
            ports: Arc::clone(&replica.ports),
        });
        if let Some(published) = self.fleet.published() {
            published.set_serving(serving.collect());
        }
    }

    fn on_written(&mut self, written: Result<Written, JoinError>) {
        let (file, version, result) = match written {
            Ok(written) => written,
            Err(failure) => {
                error!(fleet = self.fleet.name(), %failure, "a task that writes a file failed");
                let again_at = Some(self.fleet.clock().now() + WRITE_AGAIN);
                for output in self.outputs.values_mut().filter(|output| output.is_writing) {
                    output.is_writing = false;
                    output.again_at = again_at;
                }
                return;
            }
        };
        let now = self.fleet.clock().now();
        let is_envoys = self.is_envoys(&file);
        let Some(output) = self.outputs.get_mut(&file) else {
            return;
        };
        output.is_writing = false;
        let pause = if result.is_ok() {
            LOOK_EVERY
        } else {
            WRITE_AGAIN
        };
        output.again_at = Some(now + pause);
        output.written = result.is_ok().then_some(version);
        if result.is_ok() && is_envoys {
            self.book.on_written(now, version);
        }
        if let Ok(true) = result {
            warn!(
                fleet = self.fleet.name(),
                file = %file.display(),
                "somebody else removed or changed a file that others read: it is written again"
            );
        }
        self.note(&file, result.err());
    }

    fn is_envoys(&self, file: &Path) -> bool {
        let envoy = self.settings.publish.envoy.as_ref();
        envoy.is_some_and(|envoy| envoy.file == file)
    }

    fn note(&self, file: &Path, error: Option<io::Error>) {
        let Some(published) = self.fleet.published() else {
            return;
        };
        let (fleet, file) = (self.fleet.name(), file.display().to_string());
        let why = error.map(|error| error.to_string());
        let is_news = published.note_file(&file, why.clone());
        match why {
            Some(why) if is_news => {
                warn!(
                    fleet,
                    file, why, "a file that others read cannot be written"
                );
            }
            None if is_news => info!(fleet, file, "a file that others read is written again"),
            Some(_) | None => {}
        }
    }

    /// Tells whether every file says what is, or nothing can be done about it.
    fn is_settled(&self) -> bool {
        let wanted = self.book.version();
        self.writing.is_empty()
            && (self.is_handed_over
                || (self.outputs.values())
                    .all(|output| output.is_failing() || output.written == wanted))
    }
}

impl Output {
    /// Whether the file is to be written or looked at, and can be.
    fn is_due(&self, now: Timestamp, version: u64) -> bool {
        let is_old = self.written.is_some_and(|written| written != version);
        let is_time = self.again_at.is_none_or(|at| at <= now);
        !self.is_writing && (is_old || is_time)
    }

    /// Whether it could not be written when that was tried last.
    const fn is_failing(&self) -> bool {
        self.written.is_none() && self.again_at.is_some()
    }
}

async fn reserve(
    to: Option<&mpsc::Sender<TargetCommand>>,
) -> Option<Result<mpsc::Permit<'_, TargetCommand>, mpsc::error::SendError<()>>> {
    Some(to?.reserve().await)
}

#[cfg(test)]
mod tests;
