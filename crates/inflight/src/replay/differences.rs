//! What is said of a fleet that was replayed: how much was compared, and what differs.

use std::sync::Arc;

use crate::story::wire::{Decision, Line};

use super::source::Place;

/// Differences of a fleet that are kept, the first ones: the later ones follow from them.
const KEPT: usize = 5;

/// What is said of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Decisions that were compared.
    pub compared: u64,
    /// Those that differ.
    pub differing: u64,
    /// Decisions that were not compared, since what the scaler knew then is not in the journal.
    pub skipped: u64,
    /// The first differences; what stays as different as it was is not kept again.
    pub first: Vec<Difference>,
    /// The two sizes of the latest decision, where it differs.
    sizes: Option<(u32, u32)>,
    /// Size × time as it was recorded, where decisions were compared.
    pub recorded_replica_seconds: f64,
    /// The same as it was decided again.
    pub again_replica_seconds: f64,
}

/// A decision that came out otherwise.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Where it was recorded.
    pub file: Arc<str>,
    /// Its line there.
    pub line: u64,
    /// When, for people.
    pub time: String,
    /// As it was recorded.
    pub recorded: Decision,
    /// As it came out.
    pub again: Decision,
}

impl Tally {
    pub(super) fn compare(
        &mut self,
        place: &Place,
        line: &Line,
        recorded: &Decision,
        again: &Decision,
        is_same: bool,
    ) {
        self.compared += 1;
        if is_same {
            self.sizes = None;
            return;
        }
        self.differing += 1;
        let sizes = (recorded.desired, again.desired);
        let is_news = self.sizes.replace(sizes) != Some(sizes);
        if is_news && self.first.len() < KEPT {
            self.first.push(Difference {
                file: Arc::clone(&place.file),
                line: place.line,
                time: line.time.clone(),
                recorded: recorded.clone(),
                again: again.clone(),
            });
        }
    }
}
