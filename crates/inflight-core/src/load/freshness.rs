//! What is known, how old it is and how it was got. Missing data is unknown, never zero.

use std::fmt;
use std::time::Duration;

/// How a value was got, since estimators differ in bias and lag (`docs/policies.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// Counted up and down at every event; its integral over time is exact.
    Exact,
    /// A gauge that is right at the moment of reading, and sampled.
    LiveGauge,
    /// A counter of time that moves when requests complete: lags, and under-reads a growing backlog.
    CompletionCounter,
    /// The answer of a user's query, taken as it is.
    Query,
}

/// Why a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Missing {
    /// This source does not offer the value at all.
    NotOffered,
    /// It was never read.
    NeverRead,
    /// It was read, but too long ago.
    Stale {
        /// Its age.
        age: Duration,
    },
    /// It was not a finite, non-negative number.
    NotANumber,
    /// The answer to a query had no row.
    NoRow,
    /// The answer to a query had several rows.
    SeveralRows,
}

/// A value of an observation, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term<T> {
    /// The value, with its age at the time of the observation.
    Known {
        /// The value.
        value: T,
        /// How long before the observation it was true.
        age: Duration,
        /// How it was got.
        estimator: Estimator,
    },
    /// No value.
    Unknown(Missing),
}

impl<T: Copy> Term<T> {
    /// Builds a value that was counted exactly, at this moment.
    #[must_use]
    pub const fn exact(value: T) -> Self {
        Self::Known {
            value,
            age: Duration::ZERO,
            estimator: Estimator::Exact,
        }
    }

    /// Returns the value if there is one.
    #[must_use]
    pub const fn known(&self) -> Option<T> {
        match self {
            Self::Known { value, .. } => Some(*value),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the same with another value.
    #[must_use]
    pub fn map<U>(self, value_of: impl FnOnce(T) -> U) -> Term<U> {
        match self {
            Self::Known {
                value,
                age,
                estimator,
            } => Term::Known {
                value: value_of(value),
                age,
                estimator,
            },
            Self::Unknown(missing) => Term::Unknown(missing),
        }
    }

    /// Makes a value that is older than `limit` unknown.
    #[must_use]
    pub fn fresh(self, limit: Duration) -> Self {
        match self {
            Self::Known { age, .. } if age > limit => Self::Unknown(Missing::Stale { age }),
            Self::Known { .. } | Self::Unknown(_) => self,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("not offered by this source"),
            Self::NeverRead => f.write_str("never read"),
            Self::Stale { age } => write!(f, "{:.0} s old", age.as_secs_f64()),
            Self::NotANumber => f.write_str("not a finite, non-negative number"),
            Self::NoRow => f.write_str("the answer is empty"),
            Self::SeveralRows => f.write_str("the answer has several rows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_value_becomes_unknown_and_says_its_age() {
        let age = Duration::from_secs(130);
        let term = Term::Known {
            value: 3.0,
            age,
            estimator: Estimator::LiveGauge,
        };
        assert_eq!(term.fresh(age).known(), Some(3.0));
        let stale = term.fresh(Duration::from_secs(120));
        assert_eq!(stale, Term::Unknown(Missing::Stale { age }));
    }
}
