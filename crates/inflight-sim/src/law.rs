//! Laws of random spans: how long a request is worked on, how long the wire takes.

use crate::random::Random;

/// How a span is distributed. *Units*: seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always the same.
    Constant {
        /// The span.
        mean: f64,
    },
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: f64,
    },
    /// The sum of two exponential halves, as there and back on a wire.
    TwoHalves {
        /// Its mean.
        mean: f64,
    },
    /// Lognormal.
    Lognormal {
        /// Its mean.
        mean: f64,
        /// The standard deviation of its logarithm.
        sigma: f64,
    },
    /// One of two spans.
    Bimodal {
        /// The first.
        short: f64,
        /// The second.
        long: f64,
        /// How often it is the second.
        long_share: f64,
    },
}

impl Law {
    /// Draws a span.
    pub fn draw(&self, random: &mut Random) -> f64 {
        match *self {
            Self::Constant { mean } => mean,
            Self::Exponential { mean } => random.exponential(mean),
            Self::TwoHalves { mean } => {
                random.exponential(mean / 2.0) + random.exponential(mean / 2.0)
            }
            Self::Lognormal { mean, sigma } => {
                // The mean of exp(m + σN) is exp(m + σ²/2).
                mean * libm::exp(sigma * random.normal() - sigma * sigma / 2.0)
            }
            Self::Bimodal {
                short,
                long,
                long_share,
            } => {
                if random.chance(long_share) {
                    long
                } else {
                    short
                }
            }
        }
    }

    /// Returns the mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Constant { mean }
            | Self::Exponential { mean }
            | Self::TwoHalves { mean }
            | Self::Lognormal { mean, .. } => mean,
            Self::Bimodal {
                short,
                long,
                long_share,
            } => short + (long - short) * long_share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn every_law_draws_its_mean() {
        let laws = [
            Law::Constant { mean: 0.2 },
            Law::Exponential { mean: 0.2 },
            Law::TwoHalves { mean: 0.2 },
            Law::Lognormal {
                mean: 0.2,
                sigma: 1.0,
            },
            Law::Bimodal {
                short: 0.1,
                long: 1.1,
                long_share: 0.1,
            },
        ];
        for law in laws {
            let mut random = Random::new(3, Purpose::Load);
            let count = 400_000;
            let drawn = (0..count).map(|_| law.draw(&mut random)).sum::<f64>() / f64::from(count);
            assert!((drawn - 0.2).abs() < 0.004, "{law:?} drew {drawn}");
            assert!((law.mean() - 0.2).abs() < 1e-12, "{law:?}");
        }
    }
}
