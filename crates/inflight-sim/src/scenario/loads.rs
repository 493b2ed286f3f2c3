//! Loads: who sends requests, and when. *Units*: seconds, requests per second.

use crate::random::Random;

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Poisson arrivals at rates that change.
    Open(OpenLoad),
    /// Clients that wait for their answers.
    Closed(Closed),
    /// Requests at given times.
    Trace(Vec<TraceRow>),
}

/// Poisson arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLoad {
    /// At which rates.
    pub rates: Rates,
    /// Of which model; `None`: of all, by their shares.
    pub model: Option<usize>,
}

/// How a rate changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Rates {
    /// Constant from each point to the next.
    Steps(Vec<Point>),
    /// Linear from each point to the next.
    Ramp(Vec<Point>),
    /// Low and high in turn, starting low.
    Alternating {
        /// The low rate.
        low: Alternating,
        /// The high rate.
        high: Alternating,
        /// Whether the spans are exponential, with their length as the mean.
        random: bool,
    },
    /// A sine around a mean.
    Sine {
        /// The mean rate.
        mean: f64,
        /// How far it strays, as a share of the mean.
        swing: f64,
        /// How long one turn takes.
        period: f64,
    },
    /// A random walk of the logarithm with spikes, a step each `every`:
    /// min(max, median · eˣ · spike), x ← keep · x + noise · N(0, 1).
    Walk {
        /// How long a step takes.
        every: f64,
        /// The rate at x = 0.
        median: f64,
        /// The largest rate.
        max: f64,
        /// How much of x stays.
        keep: f64,
        /// How far a step strays.
        noise: f64,
        /// How often a step is a spike.
        spike_share: f64,
        /// How many times the rate a spike is.
        spike: f64,
    },
}

/// A rate from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When.
    pub at: f64,
    /// How many requests per second.
    pub rate: f64,
}

/// One of two rates that alternate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternating {
    /// How many requests per second.
    pub rate: f64,
    /// For how long.
    pub span: f64,
}

/// Clients that wait for their answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// When the first job starts.
    pub at: f64,
    /// How many jobs.
    pub jobs: u32,
    /// How long after one another they start.
    pub every: f64,
    /// What each job does.
    pub job: Job,
}

/// What a job does: streams side by side, each sends one request after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// How many streams.
    pub streams: u32,
    /// How many requests each sends; `None`: until it is told to stop.
    pub requests: Option<u64>,
    /// Mean of the exponential time between an answer and the next request.
    pub think: f64,
    /// When it sends no more.
    pub until: f64,
    /// Of which model; `None`: of all, by their shares.
    pub model: Option<usize>,
}

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceRow {
    /// When it arrives.
    pub at: f64,
    /// How long it executes; `None`: by the model's law.
    pub work: Option<f64>,
    /// Of which model; `None`: of any, by their shares.
    pub model: Option<usize>,
}

/// How finely a rate that changes all the time is cut into constant pieces: a thousandth of the
/// shortest ramp of the scenarios.
const PIECE: f64 = 1.0;

impl Rates {
    /// Returns the rate as pieces, each constant from its time to the next one's, up to `end`.
    #[must_use]
    pub fn pieces(&self, end: f64, random: &mut Random) -> Vec<Point> {
        match self {
            Self::Steps(points) => points.clone(),
            Self::Ramp(points) => sampled(PIECE, end, |at| interpolated(points, at)),
            Self::Sine {
                mean,
                swing,
                period,
            } => sampled(PIECE, end, |at| {
                let turn = std::f64::consts::TAU * at / period;
                (mean * (1.0 + swing * libm::sin(turn))).max(0.0)
            }),
            Self::Alternating {
                low,
                high,
                random: is_random,
            } => {
                let mut pieces = Vec::new();
                let mut at = 0.0;
                for phase in [low, high].into_iter().cycle() {
                    if at >= end {
                        break;
                    }
                    pieces.push(Point {
                        at,
                        rate: phase.rate,
                    });
                    at += if *is_random {
                        random.exponential(phase.span)
                    } else {
                        phase.span
                    };
                }
                pieces
            }
            Self::Walk {
                every,
                median,
                max,
                keep,
                noise,
                spike_share,
                spike,
            } => {
                let mut level = 0.0;
                sampled(*every, end, |_| {
                    level = keep * level + noise * random.normal();
                    let times = if random.chance(*spike_share) {
                        *spike
                    } else {
                        1.0
                    };
                    (median * libm::exp(level) * times).min(*max)
                })
            }
        }
    }
}

/// Cuts a rate into pieces of a length, each with the rate of its middle.
fn sampled(piece: f64, end: f64, mut rate: impl FnMut(f64) -> f64) -> Vec<Point> {
    let mut points = Vec::new();
    let mut at = 0.0;
    while at < end {
        points.push(Point {
            at,
            rate: rate(at + piece / 2.0),
        });
        at += piece;
    }
    points
}

fn interpolated(points: &[Point], at: f64) -> f64 {
    let after = points.partition_point(|point| point.at <= at);
    let before = after.checked_sub(1).and_then(|place| points.get(place));
    match (before, points.get(after)) {
        (Some(before), Some(after)) => {
            let part = (at - before.at) / (after.at - before.at);
            before.rate + (after.rate - before.rate) * part
        }
        (Some(last), None) => last.rate,
        (None, _) => 0.0,
    }
}
