//! Poisson arrivals at piecewise constant rates.

use crate::random::Random;
use crate::scenario::Point;
use crate::units::nanos;

/// Arrivals that do not wait for answers.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    pieces: Vec<Point>,
    piece: usize,
    at: f64,
    end: f64,
}

impl Arrivals {
    pub(super) fn new(pieces: Vec<Point>, end: f64) -> Self {
        let at = pieces.first().map_or(end, |first| first.at);
        Self {
            pieces,
            piece: 0,
            at,
            end,
        }
    }

    /// Returns when the next request arrives. *Units*: nanoseconds.
    ///
    /// At an edge between rates the draw starts again: the exponential law has no memory.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<u64> {
        while let Some(piece) = self.pieces.get(self.piece) {
            let edge = self
                .pieces
                .get(self.piece + 1)
                .map_or(self.end, |next| next.at);
            if piece.rate > 0.0 {
                let at = self.at + random.exponential(1.0 / piece.rate);
                if at < edge {
                    self.at = at;
                    return Some(nanos(at));
                }
            }
            self.at = edge;
            self.piece += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn as_many_arrive_in_each_piece_as_its_rate_says() {
        let points = [(0.0, 100.0), (100.0, 0.0), (150.0, 400.0)];
        let pieces = points.map(|(at, rate)| Point { at, rate }).to_vec();
        let mut arrivals = Arrivals::new(pieces, 200.0);
        let mut random = Random::new(5, Purpose::Load);
        let (mut first, mut silent, mut last) = (0_u32, 0_u32, 0_u32);
        while let Some(at) = arrivals.next(&mut random) {
            match at {
                0..100_000_000_000 => first += 1,
                100_000_000_000..150_000_000_000 => silent += 1,
                _ => last += 1,
            }
        }
        assert!(first.abs_diff(10_000) < 400, "{first}");
        assert_eq!(silent, 0);
        assert!(last.abs_diff(20_000) < 560, "{last}");
    }
}
