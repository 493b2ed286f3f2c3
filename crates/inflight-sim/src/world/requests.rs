//! The requests in flight, each in a place that is used again.

use inflight_core::Ticket;

use crate::workload::{Client, Sent};

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) arrived: u64,
    /// When a replica began to execute it.
    pub(super) began: Option<u64>,
    pub(super) work: f64,
    pub(super) model: u32,
    /// Where it waits or is executed.
    pub(super) replica: u32,
    /// Tells this use of the place from others.
    pub(super) serial: u32,
    pub(super) client: Option<Client>,
    pub(super) ticket: Option<Ticket>,
}

/// No replica.
pub(super) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    places: Vec<Request>,
    free: Vec<u32>,
    used: Vec<bool>,
}

impl Requests {
    pub(super) fn add(&mut self, now: u64, sent: Sent) -> u32 {
        let request = Request {
            arrived: now,
            began: None,
            work: sent.work,
            model: sent.model,
            replica: NOWHERE,
            serial: 0,
            client: sent.client,
            ticket: None,
        };
        if let Some(place) = self.free.pop() {
            let old = &mut self.places[place as usize];
            let serial = old.serial.wrapping_add(1);
            *old = Request { serial, ..request };
            self.used[place as usize] = true;
            return place;
        }
        self.places.push(request);
        self.used.push(true);
        crate::units::index(self.places.len() - 1)
    }

    pub(super) fn remove(&mut self, place: u32) -> Request {
        self.free.push(place);
        self.used[place as usize] = false;
        self.places[place as usize]
    }

    pub(super) fn at(&self, place: u32) -> &Request {
        &self.places[place as usize]
    }

    pub(super) fn at_mut(&mut self, place: u32) -> &mut Request {
        &mut self.places[place as usize]
    }

    /// Tells whether a place still holds the request that it held then.
    pub(super) fn is_still(&self, place: u32, serial: u32) -> bool {
        self.used[place as usize] && self.places[place as usize].serial == serial
    }

    pub(super) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        let used = self.places.iter().zip(&self.used);
        used.filter(|(_, used)| **used).map(|(request, _)| request)
    }
}
