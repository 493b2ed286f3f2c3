//! The load of a run as it unfolds: each sender says when it wants to be woken next.

mod closed;
mod open;

use crate::random::{Purpose, Random};
use crate::scenario::{Load, Point, Scenario, Service, TraceRow};
use crate::units::{index, nanos};

use self::closed::Streams;
use self::open::Arrivals;

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) model: u32,
    /// How long it executes at full speed; of no meaning where requests are served in batches.
    pub(crate) work: f64,
    /// Who waits for the answer.
    pub(crate) client: Option<Client>,
}

/// A stream of a closed load, and the job it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) load: u32,
    pub(crate) stream: u32,
    pub(crate) job: u32,
}

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// An open load or a trace.
    Load(u32),
    /// A stream of a closed load.
    Stream(Client),
}

/// Somebody to be woken. *Units*: nanoseconds.
pub(crate) type Wake = (u64, Sender);

/// All loads of a run.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    loads: Vec<Running>,
    models: Vec<Mix>,
    shares: f64,
    random: Random,
}

#[derive(Clone, Debug)]
enum Running {
    Open(Arrivals, Option<usize>),
    Closed(Streams),
    Trace(Vec<TraceRow>, usize),
}

#[derive(Clone, Debug)]
struct Mix {
    share: f64,
    service: Service,
}

/// Returns the pieces of every open load of a scenario, in their order.
pub(crate) fn rates(scenario: &Scenario, seed: u64) -> Vec<Vec<Point>> {
    let mut random = Random::new(seed, Purpose::Rates);
    let mut all = Vec::new();
    for load in &scenario.loads {
        if let Load::Open(open) = load {
            all.push(open.rates.pieces(scenario.duration, &mut random));
        }
    }
    all
}

impl Workload {
    pub(crate) fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut rates = rates(scenario, seed).into_iter();
        let running = |(place, load): (usize, &Load)| match load {
            Load::Open(open) => Running::Open(
                Arrivals::new(rates.next().unwrap_or_default(), scenario.duration),
                open.model,
            ),
            Load::Closed(closed) => Running::Closed(Streams::new(index(place), closed)),
            Load::Trace(rows) => Running::Trace(rows.clone(), 0),
        };
        let models = scenario.models.iter();
        let mix = |model: &crate::scenario::Model| Mix {
            share: model.share,
            service: model.service,
        };
        Self {
            loads: scenario.loads.iter().enumerate().map(running).collect(),
            models: models.map(mix).collect(),
            shares: scenario.models.iter().map(|model| model.share).sum(),
            random: Random::new(seed, Purpose::Load),
        }
    }

    /// Returns who is woken first.
    pub(crate) fn start(&mut self) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for (place, load) in self.loads.iter_mut().enumerate() {
            let sender = Sender::Load(index(place));
            match load {
                Running::Open(arrivals, _) => {
                    let first = arrivals.next(&mut self.random);
                    wakes.extend(first.map(|at| (at, sender)));
                }
                Running::Closed(streams) => wakes.extend(streams.start()),
                Running::Trace(rows, _) => {
                    wakes.extend(rows.first().map(|row| (nanos(row.at), sender)));
                }
            }
        }
        wakes
    }

    /// Wakes a sender: it may send a request, and an open load says when to wake it again.
    pub(crate) fn on_wake(&mut self, now: u64, sender: Sender) -> (Option<Sent>, Option<Wake>) {
        match sender {
            Sender::Load(load) => self.on_load(load),
            Sender::Stream(client) => {
                let Some(Running::Closed(streams)) = self.loads.get_mut(client.load as usize)
                else {
                    return (None, None);
                };
                let Some(model) = streams.on_wake(now, client) else {
                    return (None, None);
                };
                (Some(self.request(model, None, Some(client))), None)
            }
        }
    }

    /// Tells a client that its request ended.
    pub(crate) fn on_answer(&mut self, now: u64, client: Client) -> Option<Wake> {
        let Some(Running::Closed(streams)) = self.loads.get_mut(client.load as usize) else {
            return None;
        };
        let at = now.saturating_add(nanos(streams.on_answer(&mut self.random, client)?));
        Some((at, Sender::Stream(client)))
    }

    /// Tells whether nobody will send anything any more; loads without an end never do.
    pub(crate) fn is_over(&self) -> bool {
        self.loads.iter().all(|load| match load {
            Running::Open(..) => false,
            Running::Closed(streams) => streams.is_over(),
            Running::Trace(rows, next) => *next >= rows.len(),
        })
    }

    /// Returns how many streams of closed loads ended.
    pub(crate) fn clients_gone(&self) -> u32 {
        let gone = self.loads.iter().map(|load| match load {
            Running::Closed(streams) => streams.gone(),
            Running::Open(..) | Running::Trace(..) => 0,
        });
        gone.sum()
    }

    fn on_load(&mut self, load: u32) -> (Option<Sent>, Option<Wake>) {
        let (model, work, next) = match self.loads.get_mut(load as usize) {
            Some(Running::Open(arrivals, model)) => (*model, None, arrivals.next(&mut self.random)),
            Some(Running::Trace(rows, next)) => {
                let Some(row) = rows.get(*next).copied() else {
                    return (None, None);
                };
                *next += 1;
                let following = rows.get(*next).map(|row| nanos(row.at));
                (row.model, row.work, following)
            }
            Some(Running::Closed(_)) | None => return (None, None),
        };
        let sent = self.request(model, work, None);
        (Some(sent), next.map(|at| (at, Sender::Load(load))))
    }

    fn request(&mut self, model: Option<usize>, work: Option<f64>, client: Option<Client>) -> Sent {
        let model = model.unwrap_or_else(|| self.any_model());
        let work = work.unwrap_or_else(|| match self.models[model].service {
            Service::Each(law) => law.draw(&mut self.random),
            Service::Batches { .. } => 0.0,
        });
        Sent {
            model: index(model),
            work,
            client,
        }
    }

    fn any_model(&mut self) -> usize {
        if self.models.len() < 2 {
            return 0;
        }
        let mut left = self.random.unit() * self.shares;
        for (place, model) in self.models.iter().enumerate() {
            left -= model.share;
            if left < 0.0 {
                return place;
            }
        }
        self.models.len() - 1
    }
}
