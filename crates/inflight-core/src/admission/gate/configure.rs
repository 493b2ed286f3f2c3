//! Changing a gate's settings while requests are in flight.

use std::time::Duration;

use super::{Gate, Model};
use crate::admission::config::{AdmissionScope, GateConfig};
use crate::time::Timestamp;

impl Gate {
    /// Takes other settings. Nobody in flight is refused or cut off by the change itself, and
    /// every count goes on.
    ///
    /// - Models keep their rows: `models` says the slots of the rows there are, and adds rows at
    ///   the end. A row that it leaves out stays as it is. Fewer slots cut nobody off: there are
    ///   no grants until enough ended.
    /// - Those that wait go on waiting, beyond a smaller bound too; where the bounds of the wait
    ///   change, each waits as if it had begun to now.
    /// - Sessions are remembered; where nobody kept them so far, those that are not known count as
    ///   old for as long as a session may be idle.
    pub fn configure(&mut self, now: Timestamp, config: GateConfig) {
        let now = self.advance(now);
        let GateConfig {
            models,
            queue,
            admission,
            bucket,
        } = config;
        if (queue.wait, queue.cold_wait) != (self.queue.wait, self.queue.cold_wait) {
            self.waits_changed = now;
        }
        self.queue = queue;

        let begins_to_remember = self.admission.scope == AdmissionScope::Off
            && admission.scope == AdmissionScope::NewSessions;
        if begins_to_remember {
            self.sessions.on_restart(now);
        }
        self.sessions
            .configure(admission.sessions_max, admission.session_idle);
        self.admission = admission;

        for (row, model) in self.models.iter_mut().zip(&models) {
            row.slots = model.slots;
        }
        for model in models.iter().skip(self.models.len()) {
            self.models.push(Model::new(model, bucket, now));
        }
        self.requests.add_lines(self.models.len());
        self.endpoints.add_models(self.models.len());
        self.set_bucket(now, bucket);

        for model in 0..self.models.len() {
            self.grant_waiting(now, model, None);
            self.check(model);
        }
    }

    fn set_bucket(&mut self, now: Timestamp, bucket: Duration) {
        self.in_flight.set_bucket(now, bucket);
        self.executing.set_bucket(now, bucket);
        for model in &mut self.models {
            model.in_flight.set_bucket(now, bucket);
            model.executing.set_bucket(now, bucket);
        }
    }
}
