//! How spans are distributed, in bounded memory: quantiles to within half a percent.
//!
//! Buckets are as wide as the 128th part of a power of two (the layout of HdrHistogram, Tene,
//! 2012), from a nanosecond to 584 years.

/// Buckets of each power of two.
const STEPS: u64 = 128;
const STEPS_BITS: u32 = STEPS.trailing_zeros();

/// Counts of spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Counts a span. *Units*: nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        let bucket = bucket_of(nanos);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// Returns how many spans were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the span that a share of the spans does not exceed; `None` without any.
    /// *Units*: nanoseconds.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = (self.total * per_mille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(middle_of(bucket));
            }
        }
        None
    }
}

fn bucket_of(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEPS_BITS + 1);
    let bucket = u64::from(shift) * STEPS + (nanos >> shift);
    usize::try_from(bucket).expect("there are fewer than 10,000 buckets")
}

/// The middle of a bucket, the inverse of [`bucket_of`].
fn middle_of(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).expect("there are fewer than 10,000 buckets");
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let low = (bucket - shift * STEPS) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_half_a_percent() {
        let mut histogram = Histogram::default();
        for span in 1..=100_000 {
            histogram.record(span * 1_000_000);
        }
        for (per_mille, exact) in [(500, 50_000.0), (900, 90_000.0), (990, 99_000.0)] {
            let quantile = histogram.quantile(per_mille).unwrap();
            let error = crate::units::float(quantile) / 1e6 / exact - 1.0;
            assert!(error.abs() < 0.005, "{per_mille}: {quantile}");
        }
        assert_eq!(histogram.total(), 100_000);
    }

    #[test]
    fn the_ends_are_harmless() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(500), None);
        histogram.record(0);
        assert_eq!(histogram.quantile(1000), Some(0));
        histogram.record(u64::MAX);
        assert!(histogram.quantile(1000).unwrap() > u64::MAX - (u64::MAX >> 7));
    }

    #[test]
    fn every_span_is_in_the_bucket_whose_middle_is_near() {
        for bits in 0..64 {
            for offset in [0, 1, 3] {
                let span = (1_u64 << bits) + offset * ((1_u64 << bits) / 5);
                let middle = middle_of(bucket_of(span));
                let error = middle.abs_diff(span);
                assert!(error <= span / 128, "{span} is near {middle}");
            }
        }
    }
}
