//! What starts, finds and watches the replicas of one fleet.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tracing::error;

use super::Told;
use crate::control::TargetLink;
use crate::endpoints::{self, HealthSettings};
use crate::fleet::Fleet;
use crate::runtime::part::Part;
use crate::targets::process::{Orphan, ProcessConfig, ProcessHost, ProcessTarget};

/// Commands that a target may lag behind: sizes repeat, and of the others there is one a replica.
const COMMANDS_WAITING: usize = 256;
/// News that a control loop may lag behind; a target waits when it is full.
const EVENTS_WAITING: usize = 256;

/// What starts, finds and watches the replicas. The parts end once their control loop did.
#[derive(Default)]
pub(super) struct RunningReplicas {
    target: Option<Configured<ProcessConfig>>,
    endpoints: Option<Configured<endpoints::Settings>>,
    watch: Option<Configured<HealthSettings>>,
}

/// A part whose settings can change while it runs.
struct Configured<T> {
    settings: watch::Sender<T>,
    part: Part,
}

impl RunningReplicas {
    /// Starts what a fleet was told to have; the link is the control loop's, if there is anything
    /// to speak to.
    pub(super) fn start(
        fleet: &Arc<Fleet>,
        told: &Told,
        orphans: Vec<Orphan>,
        host: &ProcessHost,
    ) -> (Self, Option<TargetLink>) {
        let mut replicas = Self::default();
        let link = if let Some(process) = &told.process {
            let (target, link) =
                start_process(process.clone(), orphans, host.clone(), fleet.name());
            replicas.target = Some(target);
            link
        } else if let Some(settings) = &told.endpoints {
            let (endpoints, link) = start_endpoints(settings.clone(), fleet);
            replicas.endpoints = Some(endpoints);
            link
        } else {
            return (replicas, None);
        };
        let Some(health) = &told.health else {
            return (replicas, Some(link));
        };
        let (watch, link) = start_watch(health.clone(), fleet, link);
        replicas.watch = Some(watch);
        (replicas, Some(link))
    }

    /// Puts other settings in force; the same are no change.
    pub(super) fn configure(&self, told: &Told) {
        fn tell<T: Clone + PartialEq>(part: Option<&Configured<T>>, told: Option<&T>) {
            if let (Some(part), Some(told)) = (part, told) {
                part.settings.send_if_modified(|settings| {
                    let is_other = settings != told;
                    settings.clone_from(told);
                    is_other
                });
            }
        }
        tell(self.target.as_ref(), told.process.as_ref());
        // Who is checked comes after how.
        tell(self.watch.as_ref(), told.health.as_ref());
        tell(self.endpoints.as_ref(), told.endpoints.as_ref());
    }

    pub(super) fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        let target = self.target.as_mut().map(|it| &mut it.part);
        let endpoints = self.endpoints.as_mut().map(|it| &mut it.part);
        let watch = self.watch.as_mut().map(|it| &mut it.part);
        [target, endpoints, watch].into_iter().flatten()
    }

    /// # Errors
    /// A part of it ended by a panic.
    pub(super) async fn ended(self) -> Result<(), JoinError> {
        let mut result = Ok(());
        let target = self.target.map(|it| it.part);
        let endpoints = self.endpoints.map(|it| it.part);
        let watch = self.watch.map(|it| it.part);
        for part in [target, endpoints, watch].into_iter().flatten() {
            result = result.and(part.ended().await);
        }
        result
    }
}

fn start_process(
    process: ProcessConfig,
    orphans: Vec<Orphan>,
    host: ProcessHost,
    fleet: &str,
) -> (Configured<ProcessConfig>, TargetLink) {
    let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
    let (news, events) = mpsc::channel(EVENTS_WAITING);
    let target = ProcessTarget::start(process, host, orphans, commands_taken, news);
    let settings = target.settings();
    let fleet = fleet.to_owned();
    // It ends by the end of its commands, which is the control loop's doing.
    let part = Part::start("a target", |_| async move {
        if let Err(failure) = target.stopped().await {
            error!(fleet, %failure, "the process target failed");
        }
    });
    (
        Configured { settings, part },
        TargetLink { commands, events },
    )
}

fn start_endpoints(
    settings: endpoints::Settings,
    fleet: &Arc<Fleet>,
) -> (Configured<endpoints::Settings>, TargetLink) {
    let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
    let (news, events) = mpsc::channel(EVENTS_WAITING);
    let (settings, settings_taken) = watch::channel(settings);
    let (fleet, resolver) = (Arc::clone(fleet), endpoints::system_resolver());
    let part = Part::start("the endpoints", |_| {
        endpoints::serve(fleet, settings_taken, resolver, commands_taken, news)
    });
    (
        Configured { settings, part },
        TargetLink { commands, events },
    )
}

/// Puts the watch over the replicas' health between what starts or finds them and their control
/// loop.
fn start_watch(
    settings: HealthSettings,
    fleet: &Arc<Fleet>,
    link: TargetLink,
) -> (Configured<HealthSettings>, TargetLink) {
    let (watched, events) = mpsc::channel(EVENTS_WAITING);
    let (settings, settings_taken) = watch::channel(settings);
    let fleet = Arc::clone(fleet);
    let part = Part::start("the watch over health", |_| {
        endpoints::watch(fleet, settings_taken, link.events, watched)
    });
    let commands = link.commands;
    (
        Configured { settings, part },
        TargetLink { commands, events },
    )
}
