//! What an autoscaler outside is told of a fleet besides its decisions, and how often it asked.

use std::net::SocketAddr;
use std::time::Duration;

/// What an autoscaler outside is told of a fleet besides the decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct External {
    /// Where it asks, as the configuration says it; several fleets may be asked for at one place.
    pub listen: SocketAddr,
    /// What one replica is to carry of the total: the policy's own threshold where the autoscaler
    /// applies the policy, else one.
    pub target: f64,
    /// For how long the last decision on known numbers counts once the load is unknown.
    pub hold: Duration,
}

/// A question of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether there shall be replicas.
    IsActive,
    /// The same, to be told of changes.
    StreamIsActive,
    /// What one replica is to carry.
    GetMetricSpec,
    /// The same, to be told of changes.
    StreamMetricSpec,
    /// The fleet's total.
    GetMetrics,
}

/// Why a question was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The load is unknown.
    Unknown,
    /// The question makes no sense.
    Invalid,
    /// Too many streams are open.
    Full,
}

/// How often an autoscaler asked, since our start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    questions: [u64; QUESTIONS.len()],
    unanswered: [u64; UNANSWERED.len()],
}

const QUESTIONS: [(Question, &str); 5] = [
    (Question::IsActive, "is_active"),
    (Question::StreamIsActive, "stream_is_active"),
    (Question::GetMetricSpec, "get_metric_spec"),
    (Question::StreamMetricSpec, "stream_metric_spec"),
    (Question::GetMetrics, "get_metrics"),
];

const UNANSWERED: [(Unanswered, &str); 3] = [
    (Unanswered::Unknown, "unknown"),
    (Unanswered::Invalid, "invalid"),
    (Unanswered::Full, "full"),
];

impl Asked {
    /// Counts a question with what became of it.
    pub fn count(&mut self, question: Question, result: Result<(), Unanswered>) {
        let places = QUESTIONS.iter().zip(&mut self.questions);
        for (_, count) in places.filter(|((other, _), _)| *other == question) {
            *count += 1;
        }
        let places = UNANSWERED.iter().zip(&mut self.unanswered);
        for (_, count) in places.filter(|((other, _), _)| Err(*other) == result) {
            *count += 1;
        }
    }

    /// Returns how often each question was asked, by its name.
    pub fn questions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        QUESTIONS
            .map(|(_, name)| name)
            .into_iter()
            .zip(self.questions)
    }

    /// Returns how often there was no answer, by the reason's name.
    pub fn unanswered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = UNANSWERED.map(|(_, name)| name);
        names.into_iter().zip(self.unanswered)
    }
}
