//! Random numbers from a seed, the same on every machine, and the distributions drawn from them.
//!
//! The generator is PCG XSL-RR 128/64 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient
//! Statistically Good Algorithms for Random Number Generation", 2014). The distributions are
//! written here, with libm for the logarithm, so that no library's next version changes what a
//! seed means.

use rand_pcg::Lcg128Xsl64;
use rand_pcg::rand_core::Rng as _;

use crate::units::{count, float};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Lcg128Xsl64);

/// What a stream is for. Each purpose draws from its own, so that two policies under the same
/// seed meet the same load, whatever else they make happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Rates that are random themselves.
    Rates,
    /// Arrivals, thinking and the work of each request.
    Load,
    /// Where a request goes.
    Placement,
    /// How long the wire takes.
    Wire,
    /// How long replicas take to start and how fast they are.
    Replicas,
    /// What goes wrong in random-fault runs.
    Faults,
}

impl Random {
    /// Builds the stream of a seed for a purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        // Neighbouring seeds would start with related states: mix them first (SplitMix64's
        // finaliser; Steele, Lea and Flood, 2014).
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let state = (u128::from(mixed) << 64) | u128::from(seed);
        Self(Lcg128Xsl64::new(state, purpose as u128))
    }

    /// Draws 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws from 0 up to, but not, 1.
    pub fn unit(&mut self) -> f64 {
        float(self.bits() >> 11) * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Draws an index below `bound`; zero when that is zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        let drawn = (u64::from(bound) * (self.bits() >> 32)) >> 32;
        u32::try_from(drawn).unwrap_or(0)
    }

    /// Draws between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Draws a whole number from `low` to `high`.
    pub fn integer(&mut self, low: u64, high: u64) -> u64 {
        count(self.between(float(low), float(high) + 1.0)).clamp(low, high)
    }

    /// Says yes with a probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Draws from the exponential distribution.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }

    /// Draws from the normal distribution with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_these_numbers_everywhere() {
        let mut random = Random::new(11, Purpose::Load);
        let drawn: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        let expected = [
            5_721_145_304_559_867_710,
            11_801_901_240_565_433_858,
            14_671_161_686_211_864_918,
        ];
        assert_eq!(drawn, expected);
        let shaped = [random.exponential(1.0), random.normal()];
        let bits = [4_598_448_875_278_131_736, 4_604_218_790_343_072_161];
        assert_eq!(shaped.map(f64::to_bits), bits);
    }

    #[test]
    fn streams_of_a_seed_and_seeds_of_a_stream_differ() {
        let first = |seed, purpose| Random::new(seed, purpose).bits();
        assert_ne!(first(1, Purpose::Load), first(1, Purpose::Wire));
        assert_ne!(first(1, Purpose::Load), first(2, Purpose::Load));
    }

    #[test]
    fn draws_have_the_mean_and_the_range_that_they_say() {
        let mut random = Random::new(1, Purpose::Load);
        let count = 200_000;
        let mean = |draw: &mut dyn FnMut() -> f64| {
            (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
        };
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.04);
        assert!(mean(&mut || random.normal()).abs() < 0.02);
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert!((0..1000).all(|_| (2..=5).contains(&random.integer(2, 5))));
        assert_eq!(random.below(0), 0);
    }
}
