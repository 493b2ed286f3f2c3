//! What a change of the configuration left to end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tokio::task::{Id, JoinError, JoinSet};
use tracing::error;

/// Parts that end, and the fleets among them whose replicas do.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    tasks: JoinSet<Result<(), JoinError>>,
    fleets: BTreeMap<Id, LeavingFleet>,
}

#[derive(Debug)]
struct LeavingFleet {
    name: String,
    /// What it writes until its replicas are gone.
    files: Vec<PathBuf>,
}

impl Leaving {
    /// Waits aside for the end of a fleet.
    pub(super) fn add_fleet(
        &mut self,
        name: &str,
        files: Vec<PathBuf>,
        end: impl Future<Output = Result<(), JoinError>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(end);
        let name = name.to_owned();
        (self.fleets).insert(task.id(), LeavingFleet { name, files });
    }

    /// Waits aside for the end of a part of no fleet.
    pub(super) fn add(
        &mut self,
        end: impl Future<Output = Result<(), JoinError>> + Send + 'static,
    ) {
        self.tasks.spawn(end);
    }

    /// Tells whether a fleet of this name still ends.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fleets.values().any(|leaving| leaving.name == name)
    }

    /// Returns what fleets that still end write.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.fleets.values().flat_map(|leaving| &leaving.files)
    }

    /// Forgets what has ended, and says so if it failed.
    pub(super) fn note_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            if let Err(failure) = self.note(ended) {
                error!(%failure, "a part that was to end failed");
            }
        }
    }

    /// Waits for the end of all.
    ///
    /// # Errors
    /// One of them panicked.
    pub(super) async fn ended(&mut self) -> Result<(), JoinError> {
        let mut result = Ok(());
        while let Some(ended) = self.tasks.join_next_with_id().await {
            result = result.and(self.note(ended));
        }
        result
    }

    fn note(
        &mut self,
        ended: Result<(Id, Result<(), JoinError>), JoinError>,
    ) -> Result<(), JoinError> {
        let (id, result) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(error)),
        };
        self.fleets.remove(&id);
        result
    }
}
