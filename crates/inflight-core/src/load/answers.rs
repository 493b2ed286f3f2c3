//! The latest answers of one system that is asked queries, as readings of the load.
//!
//! Queries average by themselves, each over a window of its own: an answer stands for the time up
//! to its moment. What was answered last counts until it is stale; what was not answered with one
//! number is unknown, never zero.

use std::time::Duration;

use super::freshness::{Estimator, Missing, Term};
use super::measured::Patience;
use super::observation::{Level, ModelLoad, Observation, ReplicaView};
use super::sum::{PeerId, PeerView, Standing};
use crate::time::Timestamp;
use crate::units::{Occupancy, Replicas};

/// What one query was answered with.
pub type Answered = Result<f64, Missing>;

/// What all queries of a fleet were answered with, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The terms of the occupancy rule.
    Terms {
        /// Requests in flight.
        in_flight: Answered,
        /// Requests executing; where it is a difference, a little below zero is zero.
        executing: Answered,
        /// Ready replicas; a mean is rounded, and is at least one while there are any.
        replicas: Answered,
    },
    /// A number of the user's own.
    Metric {
        /// The number.
        metric: Answered,
        /// Ready replicas, where they are asked for.
        replicas: Answered,
    },
}

/// Keeps the latest answers.
#[derive(Clone, Debug)]
pub struct Answers {
    patience: Patience,
    peer: Option<PeerId>,
    latest: Option<(Timestamp, Answer)>,
}

impl Answers {
    /// Starts without an answer.
    #[must_use]
    pub const fn new(patience: Patience) -> Self {
        Self {
            patience,
            peer: None,
            latest: None,
        }
    }

    /// Expects answers of this one, in place of the one before.
    pub const fn set_peer(&mut self, peer: Option<PeerId>) {
        self.peer = peer;
    }

    /// Takes what was answered at `at`; what is older than the latest changes nothing.
    pub fn on_answer(&mut self, at: Timestamp, answer: Answer) {
        if self.latest.is_none_or(|(latest, _)| latest <= at) {
            self.latest = Some((at, answer));
        }
    }

    /// Returns how the one that is asked stands.
    #[must_use]
    pub fn peer(&self, now: Timestamp, peer: PeerId) -> Option<PeerView> {
        (self.peer == Some(peer)).then(|| {
            let read_at = self.latest.map(|(at, _)| at);
            let standing = self.patience.standing(now, read_at);
            let in_flight = self.latest.and_then(|(_, answer)| match answer {
                Answer::Terms { in_flight, .. } => number(in_flight).ok(),
                Answer::Metric { .. } => None,
            });
            PeerView {
                standing,
                age: read_at.map(|at| now.since(at)),
                in_flight: in_flight.filter(|_| standing != Standing::Lost),
                instance: None,
            }
        })
    }

    /// Tells whether the latest answer is a reason for a fleet at zero to start.
    #[must_use]
    pub fn has_load(&self) -> bool {
        let load = self.latest.map(|(_, answer)| match answer {
            Answer::Terms { in_flight, .. } => in_flight,
            Answer::Metric { metric, .. } => metric,
        });
        load.and_then(|load| number(load).ok())
            .is_some_and(|load| load > 0.0)
    }

    /// Returns the reading of `now`.
    #[must_use]
    pub fn observe(&self, now: Timestamp) -> Observation {
        let never = Err(Missing::NeverRead);
        let (at, answer) = self.latest.unwrap_or((
            now,
            Answer::Terms {
                in_flight: never,
                executing: never,
                replicas: never,
            },
        ));
        let told = Told { age: now.since(at) };
        let not_offered = Err(Missing::NotOffered);
        let (in_flight, executing, metric, replicas) = match answer {
            Answer::Terms {
                in_flight,
                executing,
                replicas,
            } => {
                let executing = executing.map(|value| {
                    let is_negative = value < 0.0 && value.is_finite();
                    if is_negative { 0.0 } else { value }
                });
                (in_flight, executing, not_offered, replicas)
            }
            Answer::Metric { metric, replicas } => (not_offered, not_offered, metric, replicas),
        };
        Observation {
            replicas: ReplicaView::Ready(told.term(replicas).map(ready)),
            models: vec![told.load(in_flight, executing)],
            metric: match self.latest {
                Some(_) => told.term(metric),
                None => Term::Unknown(Missing::NeverRead),
            },
            peak_seconds: Term::Unknown(Missing::NotOffered),
            started: Vec::new(),
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: false,
            is_called: false,
        }
    }
}

/// How long ago something was answered.
#[derive(Clone, Copy, Debug)]
struct Told {
    age: Duration,
}

impl Told {
    fn term(self, answered: Answered) -> Term<f64> {
        match number(answered) {
            Ok(value) => Term::Known {
                value,
                age: self.age,
                estimator: Estimator::Query,
            },
            Err(missing) => Term::Unknown(missing),
        }
    }

    fn level(self, answered: Answered) -> Level {
        let now = answered.and_then(|value| Occupancy::new(value).ok_or(Missing::NotANumber));
        Level {
            now: match now {
                Ok(value) => self.term(answered).map(|_| value),
                Err(missing) => Term::Unknown(missing),
            },
            integral: Term::Unknown(Missing::NotOffered),
        }
    }

    fn load(self, in_flight: Answered, executing: Answered) -> ModelLoad {
        let not_offered = Term::Unknown(Missing::NotOffered);
        ModelLoad {
            in_flight: self.level(in_flight),
            executing: self.level(executing),
            queued: Level::NOT_OFFERED,
            arrivals: not_offered,
            completions: not_offered,
            service_seconds: not_offered,
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }
    }
}

/// Refuses what is no number of anything.
fn number(answered: Answered) -> Answered {
    answered.and_then(|value| {
        if value.is_finite() && value.is_sign_positive() {
            Ok(value)
        } else {
            Err(Missing::NotANumber)
        }
    })
}

/// Rounds a mean number of replicas, to no less than one while there are any.
fn ready(replicas: f64) -> Replicas {
    if replicas > 0.0 {
        Replicas::ceil(replicas - 0.5).max(Replicas::ONE)
    } else {
        Replicas::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{History, Quantity};
    use crate::time::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Timestamp {
        Timestamp::ORIGIN + SECOND * seconds
    }

    fn answers() -> Answers {
        Answers::new(Patience {
            late: SECOND * 15,
            stale: SECOND * 30,
        })
    }

    fn terms(in_flight: f64, executing: f64, replicas: f64) -> Answer {
        Answer::Terms {
            in_flight: Ok(in_flight),
            executing: Ok(executing),
            replicas: Ok(replicas),
        }
    }

    #[test]
    fn the_newest_answer_counts_from_the_first_on() {
        let mut answers = answers();
        let mut history = History::new(1, SECOND * 120, SECOND * 30);
        let mean = |history: &History, now, quantity| history.total_mean(now, quantity, SECOND);
        for (second, in_flight, replicas) in [(100, 8.0, 2.0), (105, 20.0, 4.0), (160, 1.0, 3.0)] {
            answers.on_answer(at(second), terms(in_flight, in_flight / 2.0, replicas));
            // Read at its tick, and again before the next answer.
            for later in [2, 4] {
                let now = at(second + later);
                history.observe(now, &answers.observe(now));
                assert_eq!(mean(&history, now, Quantity::InFlight), Ok(in_flight));
                assert_eq!(
                    mean(&history, now, Quantity::Executing),
                    Ok(in_flight / 2.0)
                );
                assert_eq!(history.ready_mean(now, SECOND), Ok(replicas));
            }
        }
    }

    #[test]
    fn what_is_no_number_is_unknown_and_says_why() {
        let mut answers = answers();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -3.0] {
            answers.on_answer(at(1), terms(bad, 1.0, bad));
            let read = answers.observe(at(2));
            let unknown = Term::Unknown(Missing::NotANumber);
            assert_eq!(read.models[0].in_flight.now.known(), None, "{bad}");
            assert_eq!(read.replicas.ready(), unknown.map(|_: f64| Replicas::ZERO));
            let metric = Answer::Metric {
                metric: Ok(bad),
                replicas: Err(Missing::NotOffered),
            };
            answers.on_answer(at(1), metric);
            assert_eq!(answers.observe(at(2)).metric, unknown, "{bad}");
            assert!(!answers.has_load());
        }
    }

    #[test]
    fn a_difference_a_little_below_zero_is_zero_and_replicas_are_whole() {
        let mut answers = answers();
        for (mean, whole) in [(0.0, 0), (0.1, 1), (1.4, 1), (1.6, 2), (7.0, 7)] {
            answers.on_answer(at(1), terms(4.0, -0.5, mean));
            let read = answers.observe(at(1));
            let executing = read.models[0].executing.now.known();
            assert_eq!(executing.map(Occupancy::get), Some(0.0));
            assert_eq!(read.replicas.ready().known(), Some(Replicas::new(whole)));
        }
    }

    #[test]
    fn an_older_answer_changes_nothing_and_age_is_counted_from_the_question() {
        let mut answers = answers();
        answers.set_peer(Some(PeerId(1)));
        assert_eq!(
            answers.peer(at(9), PeerId(1)).unwrap().standing,
            Standing::Lost
        );
        answers.on_answer(at(10), terms(5.0, 1.0, 1.0));
        answers.on_answer(at(9), terms(6.0, 1.0, 1.0));
        let view = answers.peer(at(30), PeerId(1)).unwrap();
        assert_eq!((view.standing, view.in_flight), (Standing::Held, Some(5.0)));
        assert_eq!(view.age, Some(SECOND * 20));
        assert_eq!(answers.peer(at(41), PeerId(1)).unwrap().in_flight, None);
    }
}
