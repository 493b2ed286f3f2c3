//! How long a caller will wait for an answer, as its protocol says it.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Digits of a time-out at most (gRPC over HTTP/2, "TimeoutValue").
const DIGITS_MAX: usize = 8;

/// Reads a gRPC call's time-out. What is malformed counts as not there: it is passed on, and
/// judging it is the replica's business.
pub(super) fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(GRPC_TIMEOUT)?.as_bytes().split_last()?;
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !is_number || digits.len() > DIGITS_MAX {
        return None;
    }
    let value = digits
        .iter()
        .fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(value * 3600)),
        b'M' => Some(Duration::from_secs(value * 60)),
        b'S' => Some(Duration::from_secs(value)),
        b'm' => Some(Duration::from_millis(value)),
        b'u' => Some(Duration::from_micros(value)),
        b'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, value.parse().unwrap());
        grpc_timeout(&headers)
    }

    #[test]
    fn every_unit_is_understood() {
        for (value, nanos) in [
            ("2H", 7_200_000_000_000),
            ("2M", 120_000_000_000),
            ("2S", 2_000_000_000),
            ("2m", 2_000_000),
            ("2u", 2_000),
            ("2n", 2),
            ("00000000n", 0),
            ("99999999H", 359_999_996_400_000_000_000),
        ] {
            assert_eq!(of(value).unwrap().as_nanos(), nanos, "{value}");
        }
    }

    #[test]
    fn what_is_malformed_counts_as_not_there() {
        for value in [
            "",
            "S",
            "1",
            "1s",
            "1 S",
            "-1S",
            "1.5S",
            "100000000S",
            "1SS",
        ] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(grpc_timeout(&HeaderMap::new()), None);
    }
}
