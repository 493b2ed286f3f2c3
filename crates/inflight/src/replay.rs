//! Gives the readings of a journal to the scaler again: by the recorded configuration, which must
//! decide the same, or by another, whose decisions are compared.
//!
//! Nothing is simulated: the load and the replicas are as they were recorded, whatever is decided.
//! Lines are taken one by one, and what is remembered does not grow with their number.

mod differences;
mod fleet;
pub mod source;

use std::collections::BTreeMap;

use inflight_core::Timestamp;
use inflight_core::scaling::ScalingConfig;
use thiserror::Error;

use crate::story::Unreadable;
use crate::story::wire::{Line, What};

use self::fleet::Run;
use self::source::Place;

pub use differences::{Difference, Tally};

/// Runs of a fleet that may write at the same time: one that ends and its successor, and a few that
/// were ended by crashes.
const RUNS_MAX: usize = 4;

/// Fleets that one journal may be of: more than anybody has, and a bound on what is remembered.
const FLEETS_MAX: usize = 10_000;

/// By which configuration the fleets are decided.
#[derive(Debug)]
pub enum By {
    /// The recorded one.
    Recorded,
    /// Another, by the fleet's name; fleets that have none are left out.
    Other(BTreeMap<String, ScalingConfig>),
}

/// A line that cannot be replayed.
#[derive(Debug, Error)]
pub enum Fault {
    /// What it says cannot be.
    #[error("{0}")]
    Value(#[from] Unreadable),
    /// A bound on what is remembered.
    #[error("more than {FLEETS_MAX} fleets")]
    Fleets,
}

/// Something that is worth knowing of a line, and no fault.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Note {
    /// A start that the journal does not say all of.
    #[error(
        "fleet {fleet} goes on from what an earlier process knew, which version 1 of the journal \
         does not say"
    )]
    GoesOn {
        /// Whose.
        fleet: String,
    },
    /// Another file begins, and something differs.
    #[error(
        "fleet {fleet} decides otherwise, or lines before the file's beginning are missing: version \
         1 of the journal does not say which, and its decisions from here on are not compared"
    )]
    Doubted {
        /// Whose.
        fleet: String,
    },
    /// Lines are missing.
    #[error("{count} lines before this one were lost when it was written")]
    Lost {
        /// How many.
        count: u64,
    },
    /// Another configuration has no such fleet.
    #[error("fleet {fleet} is not in the configuration and is left out")]
    NotConfigured {
        /// Which.
        fleet: String,
    },
}

/// A journal that is being replayed.
#[derive(Debug)]
pub struct Replay {
    by: By,
    fleets: BTreeMap<String, Fleet>,
}

/// One fleet: its runs, the latest last, and what is said of all.
#[derive(Debug, Default)]
struct Fleet {
    runs: Vec<Run>,
    tally: Tally,
}

impl Replay {
    /// Begins.
    #[must_use]
    pub fn new(by: By) -> Self {
        let fleets = BTreeMap::new();
        Self { by, fleets }
    }

    /// Takes a line.
    ///
    /// # Errors
    /// What the line says cannot be.
    pub fn take(&mut self, place: &Place, line: &Line) -> Result<Option<Note>, Fault> {
        if let What::Lost { count } = line.what {
            self.gap();
            return Ok(Some(Note::Lost { count }));
        }
        // Replicas, the gate and errors are told to people: a scaler sees replicas in its readings.
        if let What::Replica { .. } | What::Admission { .. } | What::Error { .. } = line.what {
            return Ok(None);
        }
        let is_new = !self.fleets.contains_key(&line.fleet);
        if is_new && self.fleets.len() == FLEETS_MAX {
            return Err(Fault::Fleets);
        }
        let fleet = self.fleets.entry(line.fleet.clone()).or_default();
        let other = match &self.by {
            By::Recorded => None,
            By::Other(configs) => match configs.get(&line.fleet) {
                Some(config) => Some(config),
                None if is_new => {
                    let fleet = line.fleet.clone();
                    return Ok(Some(Note::NotConfigured { fleet }));
                }
                None => return Ok(None),
            },
        };
        fleet.take(place, line, other)
    }

    /// Says that lines may be missing from here on, so that no fleet's state is known.
    pub fn gap(&mut self) {
        for run in self.runs() {
            run.lose();
        }
    }

    /// Says that another file begins, which may not be the continuation that it looks like.
    pub fn file_begins(&mut self) {
        for run in self.runs() {
            run.doubt();
        }
    }

    /// Returns what is to be said of each fleet.
    pub fn tallies(&self) -> impl Iterator<Item = (&str, &Tally)> {
        let fleets = self.fleets.iter();
        fleets.map(|(name, fleet)| (name.as_str(), &fleet.tally))
    }

    fn runs(&mut self) -> impl Iterator<Item = &mut Run> {
        self.fleets.values_mut().flat_map(|fleet| &mut fleet.runs)
    }
}

impl Fleet {
    fn take(
        &mut self,
        place: &Place,
        line: &Line,
        other: Option<&ScalingConfig>,
    ) -> Result<Option<Note>, Fault> {
        let known = self.runs.iter().position(|run| run.is(line.run));
        let mut run = known.map_or_else(|| Run::new(line.run), |known| self.runs.remove(known));
        if self.runs.len() == RUNS_MAX {
            self.runs.remove(0);
        }
        let now = Timestamp::from_nanos(line.at);
        let taken = run.take(now, place, line, other, &mut self.tally);
        self.runs.push(run);
        taken
    }
}

#[cfg(test)]
mod tests;
