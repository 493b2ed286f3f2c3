//! How long a caller will wait for an answer, as its protocol says it.

use std::time::Duration;

use http::{HeaderMap, HeaderName};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Digits of a time-out at most (gRPC over HTTP/2, "TimeoutValue").
const DIGITS_MAX: usize = 8;

/// Reads how long a caller waits: the least of what gRPC and the configured header say.
pub(super) fn timeout(
    headers: &HeaderMap,
    is_grpc: bool,
    configured: Option<&HeaderName>,
) -> Option<Duration> {
    let of_grpc = is_grpc.then(|| grpc_timeout(headers)).flatten();
    let of_header = configured.and_then(|name| header_timeout(headers, name));
    of_grpc.into_iter().chain(of_header).min()
}

/// Reads a whole number of milliseconds, or one with the unit `ms`, `s`, `m` or `h`.
fn header_timeout(headers: &HeaderMap, name: &HeaderName) -> Option<Duration> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    let digits_end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let value: u64 = digits.parse().ok()?;
    match unit.trim_start() {
        "" | "ms" => Some(Duration::from_millis(value)),
        "s" => Some(Duration::from_secs(value)),
        "m" => value.checked_mul(60).map(Duration::from_secs),
        "h" => value.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

/// Reads a gRPC call's time-out. What is malformed counts as not there: it is passed on, and
/// judging it is the replica's business.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
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
    use http::HeaderValue;

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

    fn of_header(value: &'static str) -> Option<Duration> {
        let name = HeaderName::from_static("x-time-out");
        let mut headers = HeaderMap::new();
        headers.insert(&name, value.parse().unwrap());
        timeout(&headers, false, Some(&name))
    }

    #[test]
    fn a_configured_header_says_milliseconds_or_its_unit() {
        for (value, millis) in [
            ("250", 250),
            ("250ms", 250),
            ("2s", 2000),
            (" 2 s ", 2000),
            ("1m", 60_000),
            ("1h", 3_600_000),
            ("0", 0),
        ] {
            assert_eq!(of_header(value).unwrap().as_millis(), millis, "{value}");
        }
        for value in [
            "",
            "s",
            "-1",
            "1.5s",
            "1d",
            "99999999999999999999",
            "9999999999999999999h",
        ] {
            assert_eq!(of_header(value), None, "{value}");
        }
    }

    #[test]
    fn the_earlier_of_two_time_outs_counts_and_grpcs_only_for_grpc() {
        let name = HeaderName::from_static("x-time-out");
        let mut headers = HeaderMap::new();
        headers.insert(&name, HeaderValue::from_static("3s"));
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("2S"));
        let seconds = |is_grpc, name| timeout(&headers, is_grpc, name).map(|time| time.as_secs());
        assert_eq!(seconds(true, Some(&name)), Some(2));
        assert_eq!(seconds(false, Some(&name)), Some(3));
        assert_eq!(seconds(true, None), Some(2));
        assert_eq!(seconds(false, None), None);
    }
}
