//! One run of one fleet: its scaler, as far as the journal says all that it knew.

use std::time::Duration;

use inflight_core::scaling::{PastScaler, Scaler, ScalingConfig};
use inflight_core::{Replicas, Timestamp};

use super::source::Place;
use super::{Fault, Note, Tally};
use crate::story::wire::{Config, Decision, Line, Observation, What};
use crate::story::{Known, config_of, decision_line, hold_of, observation_of};

/// A policy with another tick than the recorded one decides at the reading that is nearest: readings
/// come each 2 s.
const NEAR: Duration = Duration::from_secs(1);

/// A file whose first reading comes so soon after the last of the one before continues it: what is
/// missing between two files is a file, of minutes.
const CONTINUED: Duration = Duration::from_secs(10);

/// One run.
#[derive(Debug)]
pub(super) struct Run {
    run: u64,
    /// `None` where what it knew is not known.
    scaler: Option<Scaler>,
    /// Whether lines may be missing since it was built.
    is_doubted: bool,
    /// Whether decisions are due when they were recorded, as for policies with the same tick.
    follows: bool,
    /// When a policy that does not follow decides next.
    next: Timestamp,
    /// Since when these two are in force.
    since: Timestamp,
    recorded: Option<u32>,
    again: Option<Decision>,
}

impl Run {
    pub(super) fn new(run: u64) -> Self {
        Self {
            run,
            scaler: None,
            is_doubted: false,
            follows: true,
            next: Timestamp::ORIGIN,
            since: Timestamp::ORIGIN,
            recorded: None,
            again: None,
        }
    }

    pub(super) fn is(&self, run: u64) -> bool {
        self.run == run
    }

    /// Forgets what cannot be relied on once lines are missing.
    pub(super) fn lose(&mut self) {
        *self = Self::new(self.run);
    }

    /// Relies on what is known only as long as it agrees.
    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    pub(super) fn take(
        &mut self,
        now: Timestamp,
        place: &Place,
        line: &Line,
        other: Option<&ScalingConfig>,
        tally: &mut Tally,
    ) -> Result<Option<Note>, Fault> {
        match &line.what {
            What::Start {
                config,
                current,
                goes_on,
                past,
            } => {
                self.lose();
                if *goes_on && past.is_none() {
                    let fleet = line.fleet.clone();
                    return Ok(Some(Note::GoesOn { fleet }));
                }
                let current = Replicas::new(*current);
                self.build(now, config, other, current, past.as_deref())?;
            }
            What::State { config, past } => {
                // Another configuration goes on from its own decisions.
                let goes_on = self.scaler.is_some() && (other.is_some() || !self.is_doubted);
                if !goes_on {
                    self.lose();
                    self.build(now, config, other, Replicas::ZERO, Some(past))?;
                }
                self.is_doubted = false;
            }
            What::Config { config } => self.configure(now, config, other)?,
            What::Tick {
                observation,
                decision,
            } => {
                // Version 1 has no `state` that would end the doubt.
                if line.v == 1 && now.since(self.since) <= CONTINUED {
                    self.is_doubted = false;
                }
                self.weigh(now, tally);
                self.read(now, observation, decision.is_some())?;
                if let Some(recorded) = decision {
                    self.recorded = Some(recorded.desired);
                    let is_given_up = self.compare(place, line, recorded, other.is_some(), tally);
                    if is_given_up && line.v == 1 {
                        let fleet = line.fleet.clone();
                        return Ok(Some(Note::Doubted { fleet }));
                    }
                }
            }
            What::Hold { replicas, until } => {
                let held = hold_of(*replicas, *until);
                if let Some(scaler) = &mut self.scaler {
                    scaler.hold(held.hold, held.until);
                }
            }
            What::Release { .. } => {
                if let Some(scaler) = &mut self.scaler {
                    scaler.release();
                }
            }
            What::Replica { .. }
            | What::Admission { .. }
            | What::Error { .. }
            | What::Lost { .. } => {}
        }
        Ok(None)
    }

    fn build(
        &mut self,
        now: Timestamp,
        recorded: &Config,
        other: Option<&ScalingConfig>,
        current: Replicas,
        past: Option<&Known>,
    ) -> Result<(), Fault> {
        let config = self.choose(recorded, other)?;
        let mut scaler = Scaler::new(config, now, current);
        if let Some(past) = past {
            scaler.restore(now, &PastScaler::from(past.clone()));
        }
        self.scaler = Some(scaler);
        Ok(())
    }

    /// A file begins with the configurations in force: one that is no news changes nothing.
    fn configure(
        &mut self,
        now: Timestamp,
        recorded: &Config,
        other: Option<&ScalingConfig>,
    ) -> Result<(), Fault> {
        let config = self.choose(recorded, other)?;
        if let Some(scaler) = &mut self.scaler
            && *scaler.config() != config
        {
            scaler.set_config(now, config);
        }
        Ok(())
    }

    /// Returns the configuration to decide by.
    fn choose(
        &mut self,
        recorded: &Config,
        other: Option<&ScalingConfig>,
    ) -> Result<ScalingConfig, Fault> {
        let recorded = config_of(recorded)?;
        let tick = recorded.policy.tick();
        let config = other.cloned().unwrap_or(recorded);
        self.follows = config.policy.tick() == tick;
        Ok(config)
    }

    /// Reads, and decides where that is due, as the control loop did.
    fn read(
        &mut self,
        now: Timestamp,
        observation: &Observation,
        was_decided: bool,
    ) -> Result<(), Fault> {
        let observation = observation_of(observation)?;
        let Some(scaler) = &mut self.scaler else {
            return Ok(());
        };
        scaler.observe(now, &observation);
        // A fleet at zero is woken between its ticks.
        let is_at_zero = self.again.as_ref().is_some_and(|again| again.desired == 0);
        let is_due = if self.follows || is_at_zero {
            was_decided
        } else {
            now + NEAR >= self.next
        };
        if is_due {
            self.next = now + scaler.config().policy.tick();
            self.again = Some(decision_line(&scaler.decide(now)));
        }
        Ok(())
    }

    /// Compares a decision. Tells whether the run is given up, since lines may be missing.
    fn compare(
        &mut self,
        place: &Place,
        line: &Line,
        recorded: &Decision,
        is_other: bool,
        tally: &mut Tally,
    ) -> bool {
        let Some(again) = &self.again else {
            tally.skipped += 1;
            return false;
        };
        let is_same = if is_other {
            again.desired == recorded.desired
        } else {
            again == recorded
        };
        if !is_same && !is_other && self.is_doubted {
            self.lose();
            tally.skipped += 1;
            return true;
        }
        tally.compare(place, line, recorded, again, is_same);
        false
    }

    /// Adds up both sizes over the time since the reading before.
    fn weigh(&mut self, now: Timestamp, tally: &mut Tally) {
        let seconds = now.since(self.since).as_secs_f64();
        self.since = now;
        if let (Some(recorded), Some(again)) = (self.recorded, &self.again) {
            tally.recorded_replica_seconds += f64::from(recorded) * seconds;
            tally.again_replica_seconds += f64::from(again.desired) * seconds;
        }
    }
}
