//! Who is refused, why, and when to come back.

use std::time::Duration;

use super::Gate;
use crate::admission::config::{AdmissionScope, When};
use crate::admission::refusal::{Refusal, RefusalReason};
use crate::admission::request::{Arrival, Output};
use crate::time::Timestamp;
use crate::units::{Bytes, count_as_f64, request_seconds};

/// Told to a refused caller when nothing completed lately: long enough for a few requests of
/// ordinary length, short enough to come back soon after a start.
pub(in crate::admission) const RETRY_UNKNOWN: Duration = Duration::from_secs(5);

impl Gate {
    pub(super) fn expire(&mut self) {
        while let Some((deadline, key)) = self.requests.first_deadline()
            && deadline <= self.now
        {
            self.refuse_waiting(key, RefusalReason::DeadlineExpired);
        }
        while let Some((key, since)) = self.requests.oldest()
            && self.wait_until(since) <= self.now
        {
            let is_warm = self.has_ready();
            let expired = if is_warm {
                RefusalReason::WaitExpired
            } else {
                RefusalReason::ColdWaitExpired
            };
            self.refuse_waiting(key, expired);
        }
    }

    /// Returns until when a request waits that has waited since `since`; later for later ones.
    pub(super) fn wait_until(&self, since: Timestamp) -> Timestamp {
        let bound = if self.has_ready() {
            self.queue.wait
        } else {
            self.queue.cold_wait
        };
        let since = since.max(self.waits_changed);
        let longest = since + self.queue.wait + self.queue.cold_wait;
        (since.max(self.ready_changed) + bound).min(longest)
    }

    fn refuse_waiting(&mut self, key: usize, reason: RefusalReason) {
        let ticket = self.requests.ticket(key);
        if let Some(request) = self.requests.remove(ticket) {
            self.count_end(self.now, &request);
            let refusal = self.refuse(self.now, request.model, reason);
            self.outputs.push_back(Output::Refused { ticket, refusal });
        }
    }

    /// Returns why a request that would have to wait cannot get a slot before its deadline.
    ///
    /// Two estimates must say so, since each is wrong in a way that the other is not: the rate of
    /// completions is low while little is asked for, and slots over the mean service time knows
    /// nothing of what has become slow. Without a ready replica, or a completion in the last ten
    /// seconds, the rate is unknown and nobody is refused.
    pub(super) fn lateness(
        &mut self,
        now: Timestamp,
        model: usize,
        deadline: Option<Timestamp>,
    ) -> Option<RefusalReason> {
        let patience = deadline?.since(now).as_secs_f64();
        let ready = self.endpoints.ready().count();
        let ahead = self.requests.queued_of(model).saturating_add(1);
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        let row = &mut self.models[model];
        let by_rate = row.rate.seconds_for(now, ahead)?;
        if ready == 0 || row.completions == 0 {
            return None;
        }
        let slots = count_as_f64(ready) * f64::from(row.slots.get());
        let service = request_seconds(row.service_nanos) / count_as_f64(row.completions);
        let by_service = count_as_f64(ahead) * service / slots;
        (by_rate.min(by_service) > patience).then_some(RefusalReason::DeadlineExpired)
    }

    /// Counts a refusal and says when to come back.
    pub(super) fn refuse(
        &mut self,
        now: Timestamp,
        model: usize,
        reason: RefusalReason,
    ) -> Refusal {
        self.refused.count(reason);
        let retry_after = match reason {
            RefusalReason::DeadlineExpired => None,
            RefusalReason::Overloaded
            | RefusalReason::QueueFull
            | RefusalReason::QueueBytes
            | RefusalReason::NoReplica
            | RefusalReason::WaitExpired
            | RefusalReason::ColdWaitExpired
            | RefusalReason::LoadUnknown
            | RefusalReason::Stopping => {
                let ahead = self.requests.queued_of(model).saturating_add(1);
                let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
                let wait = self.models[model].rate.time_for(now, ahead);
                Some(wait.unwrap_or(RETRY_UNKNOWN))
            }
        };
        Refusal {
            reason,
            retry_after,
        }
    }

    /// Returns why a request is not let in, whether or not a slot is free.
    pub(super) fn objection(&self, now: Timestamp, arrival: &Arrival) -> Option<RefusalReason> {
        if arrival.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(RefusalReason::DeadlineExpired);
        }
        let session = arrival.session?;
        let is_judged = match (self.admission.scope, self.admission.when) {
            (AdmissionScope::Off, _) => false,
            (AdmissionScope::NewSessions, When::Always) => true,
            (AdmissionScope::NewSessions, When::AtMax) => self.at_max,
        };
        let is_refused = is_judged
            && !self.admits_one_more()
            && (arrival.first_call || self.sessions.is_new(now, session));
        is_refused.then_some(RefusalReason::Overloaded)
    }

    /// Tells whether the gate is open and one more request would not pass the threshold at this
    /// moment. A mean alone lets far too many in at ten times the capacity.
    fn admits_one_more(&self) -> bool {
        let ready = self.endpoints.ready().count();
        let serving = count_as_f64(self.executing.count().max(ready));
        let passes = ready > 0
            && count_as_f64(self.in_flight.count() + 1) / serving > self.admission.threshold;
        self.inflation.is_open() && !passes
    }

    /// Returns why one more request must not wait.
    pub(super) fn queue_objection(&self) -> Option<RefusalReason> {
        let requests_max = usize::try_from(self.queue.requests).unwrap_or(usize::MAX);
        let held = self.requests.held();
        let full = if self.requests.queued() >= requests_max {
            RefusalReason::QueueFull
        } else if held > Bytes(0) && held >= self.queue.bytes {
            RefusalReason::QueueBytes
        } else {
            return None;
        };
        Some(if self.has_ready() {
            full
        } else {
            RefusalReason::NoReplica
        })
    }
}
