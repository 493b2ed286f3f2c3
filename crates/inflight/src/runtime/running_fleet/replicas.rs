//! What starts, finds and watches the replicas of one fleet.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tracing::error;

use super::PartSettings;
use crate::config::EnvoyFile;
use crate::control::TargetLink;
use crate::endpoints::{self, HealthSettings};
use crate::fleet::Fleet;
use crate::ports::RoutedReading;
use crate::publish;
use crate::runtime::part::Part;
use crate::sources::ClustersSource;
use crate::targets::process::{Orphan, ProcessConfig, ProcessHost, ProcessTarget};

/// Commands that a target may lag behind: sizes repeat, and of the others there is one a replica.
const COMMANDS_WAITING: usize = 256;
/// News that a control loop may lag behind; a target waits when it is full.
const EVENTS_WAITING: usize = 256;
/// What Envoys tell that may wait: some answers of each.
const READINGS_WAITING: usize = 64;

/// What starts, finds and watches the replicas. The parts end once their control loop did.
#[derive(Default)]
pub(super) struct RunningReplicas {
    target: Option<Configured<ProcessConfig>>,
    endpoints: Option<Configured<endpoints::Settings>>,
    watch: Option<Configured<HealthSettings>>,
    publish: Option<Configured<publish::Settings>>,
    envoys: Option<AskedEnvoys>,
}

/// Asks the Envoys that are told of the replicas.
struct AskedEnvoys {
    settings: EnvoyFile,
    readings: mpsc::Sender<RoutedReading>,
    in_haste: watch::Receiver<Option<u64>>,
    part: Part,
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
        settings: &PartSettings,
        orphans: Vec<Orphan>,
        host: &ProcessHost,
    ) -> (Self, Option<TargetLink>) {
        let mut replicas = Self::default();
        let adopted = orphans.iter().map(|it| (it.index(), it.was_ready()));
        let adopted: BTreeMap<u32, bool> = adopted.collect();
        let link = if let Some(process) = &settings.process {
            let (target, link) =
                start_process(process.clone(), orphans, host.clone(), fleet.name());
            replicas.target = Some(target);
            link
        } else if let Some(endpoints) = &settings.endpoints {
            let (endpoints, link) = start_endpoints(endpoints.clone(), fleet);
            replicas.endpoints = Some(endpoints);
            link
        } else {
            return (replicas, None);
        };
        let link = match &settings.health {
            Some(health) => {
                let (watch, link) = start_watch(health.clone(), fleet, link);
                replicas.watch = Some(watch);
                link
            }
            None => link,
        };
        let Some(publish) = &settings.publish else {
            return (replicas, Some(link));
        };
        let link = replicas.start_publish(publish.clone(), fleet, adopted, link);
        (replicas, Some(link))
    }

    /// Puts whoever tells others of the replicas between these, with the watch over their health, and
    /// their control loop.
    fn start_publish(
        &mut self,
        settings: publish::Settings,
        fleet: &Arc<Fleet>,
        adopted: BTreeMap<u32, bool>,
        link: TargetLink,
    ) -> TargetLink {
        let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
        let (events_tx, events) = mpsc::channel(EVENTS_WAITING);
        let (read, readings) = mpsc::channel(READINGS_WAITING);
        let (in_haste, haste_seen) = watch::channel(None);
        if let Some(envoys) = settings.publish.envoy.clone() {
            self.envoys = Some(AskedEnvoys::start(fleet, envoys, read, haste_seen));
        }
        let (settings, settings_taken) = watch::channel(settings);
        let links = publish::Links {
            commands: commands_taken,
            to_target: link.commands,
            news: link.events,
            events: events_tx,
            readings,
            in_haste,
        };
        let fleet = Arc::clone(fleet);
        let part = Part::start("what tells others of the replicas", |_| {
            publish::serve(fleet, settings_taken, adopted, links)
        });
        self.publish = Some(Configured { settings, part });
        TargetLink { commands, events }
    }

    /// Puts other settings in force; the same are no change.
    pub(super) async fn configure(&mut self, fleet: &Fleet, settings: &PartSettings) {
        fn tell<T: Clone + PartialEq>(part: Option<&Configured<T>>, wanted: Option<&T>) {
            if let (Some(part), Some(wanted)) = (part, wanted) {
                part.settings.send_if_modified(|settings| {
                    let is_other = settings != wanted;
                    settings.clone_from(wanted);
                    is_other
                });
            }
        }
        tell(self.target.as_ref(), settings.process.as_ref());
        tell(self.publish.as_ref(), settings.publish.as_ref());
        if let Some(publish) = &settings.publish
            && let Some(envoys) = &publish.publish.envoy
            && let Some(asked) = self.envoys.take_if(|asked| asked.settings != *envoys)
        {
            self.envoys = Some(asked.asked_anew(fleet, envoys.clone()).await);
        }
        // Who is checked comes after how.
        tell(self.watch.as_ref(), settings.health.as_ref());
        tell(self.endpoints.as_ref(), settings.endpoints.as_ref());
    }

    pub(super) fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        let target = self.target.as_mut().map(|it| &mut it.part);
        let endpoints = self.endpoints.as_mut().map(|it| &mut it.part);
        let watch = self.watch.as_mut().map(|it| &mut it.part);
        let publish = self.publish.as_mut().map(|it| &mut it.part);
        let envoys = self.envoys.as_mut().map(|it| &mut it.part);
        [target, endpoints, watch, publish, envoys]
            .into_iter()
            .flatten()
    }

    /// # Errors
    /// A part of it ended by a panic.
    pub(super) async fn ended(self) -> Result<(), JoinError> {
        let mut result = Ok(());
        let target = self.target.map(|it| it.part);
        let endpoints = self.endpoints.map(|it| it.part);
        let watch = self.watch.map(|it| it.part);
        let publish = self.publish.map(|it| it.part);
        let envoys = self.envoys.map(|it| it.part);
        let parts = [target, endpoints, watch, publish, envoys];
        for part in parts.into_iter().flatten() {
            result = result.and(part.ended().await);
        }
        result
    }
}

impl AskedEnvoys {
    fn start(
        fleet: &Fleet,
        settings: EnvoyFile,
        readings: mpsc::Sender<RoutedReading>,
        in_haste: watch::Receiver<Option<u64>>,
    ) -> Self {
        let source = ClustersSource {
            fleet: fleet.name().to_owned(),
            envoys: settings.clone(),
            readings: readings.clone(),
            in_haste: in_haste.clone(),
        };
        let clock = fleet.clock();
        let part = Part::start("a source", |stop| async move {
            tokio::select! {
                Ok(()) = stop => {}
                // It ends with whoever takes its readings.
                () = source.run(clock) => {}
            }
        });
        Self {
            settings,
            readings,
            in_haste,
            part,
        }
    }

    async fn asked_anew(self, fleet: &Fleet, settings: EnvoyFile) -> Self {
        if let Err(failure) = self.part.end().await {
            error!(fleet = fleet.name(), %failure, "a former source failed");
        }
        Self::start(fleet, settings, self.readings, self.in_haste)
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
