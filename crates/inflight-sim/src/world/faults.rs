//! Things break: replicas crash, slow down, do not answer, never get ready.

use super::{Event, World};
use crate::engine::Rank;
use crate::replica::State;
use crate::scenario::FleetFault;
use crate::units::nanos;

/// What ends for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restored {
    Health,
    Speed,
}

impl World<'_> {
    pub(super) fn break_something(&mut self, place: u32) {
        let now = self.events.now();
        match self.scenario.faults[place as usize].fault {
            FleetFault::Crash { replicas } => {
                for replica in self.victims(replicas) {
                    self.crash(replica);
                }
                self.note_size();
            }
            FleetFault::Unhealthy { replicas, span } => {
                for replica in self.victims(replicas) {
                    self.make_unhealthy(replica);
                    self.restore_after(replica, span, Restored::Health);
                }
            }
            FleetFault::Slow {
                replicas,
                span,
                factor,
            } => {
                for replica in self.victims(replicas) {
                    self.fleet.all[replica as usize].slowed = factor;
                    self.restore_after(replica, span, Restored::Speed);
                }
            }
            FleetFault::NeverReady { span } => {
                self.fleet.never_until = now.saturating_add(nanos(span));
            }
        }
    }

    pub(super) fn restore(&mut self, replica: u32, what: Restored) {
        let one = &mut self.fleet.all[replica as usize];
        match what {
            Restored::Health if one.state == State::Unhealthy => {
                self.make_ready(replica);
                self.note_size();
            }
            Restored::Health => {}
            Restored::Speed => one.slowed = 1.0,
        }
    }

    fn victims(&self, replicas: u32) -> Vec<u32> {
        let mut ready = self.longest_ready();
        ready.truncate(replicas as usize);
        ready
    }

    fn restore_after(&mut self, replica: u32, span: f64, what: Restored) {
        let at = self.events.now().saturating_add(nanos(span));
        let event = Event::Restore { replica, what };
        self.events.push(at, Rank::Begin, event);
    }

    /// Ends a replica: what it executes fails, what waits in it goes elsewhere.
    fn crash(&mut self, replica: u32) {
        let lanes = self.fleet.all[replica as usize].lanes.len();
        let (mut failing, mut waiting) = (Vec::new(), Vec::new());
        for model in 0..lanes {
            let lane = &mut self.fleet.all[replica as usize].lanes[model];
            failing.append(&mut lane.executing);
            waiting.extend(lane.queue.drain(..));
        }
        self.fleet.all[replica as usize].held = 0;
        self.remove(replica);
        for request in failing {
            self.fail(request);
        }
        for request in waiting {
            self.place_again(request);
        }
        self.gate_outputs();
    }
}
