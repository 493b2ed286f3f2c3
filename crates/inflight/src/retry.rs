//! When to come again, as a refused caller is told.
//!
//! What is told is decided elsewhere; here it is spread out and spelled.

use std::time::Duration;

/// Stretches a wait by up to a quarter, as `draw` says, so that those refused together do not come
/// back together.
#[must_use]
pub fn stretched(wait: Duration, draw: u64) -> Duration {
    let part = u32::try_from(draw % 256).unwrap_or(0);
    wait.saturating_add(wait / 1024 * part)
}

/// Returns the whole seconds of a `retry-after` header, at least one.
#[must_use]
pub fn whole_seconds(wait: Duration) -> u64 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    seconds.max(1)
}

/// Encodes `google.rpc.Status { code, message, details: [RetryInfo { retry_delay }] }` as gRPC
/// wants it in the header `grpc-status-details-bin`: base64 without padding.
#[must_use]
pub fn status_details(code: u16, message: &str, wait: Duration) -> String {
    let mut delay = Vec::new();
    put_number(&mut delay, 1, wait.as_secs());
    put_number(&mut delay, 2, u64::from(wait.subsec_nanos()));
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes(&mut any, 2, &retry_info);
    let mut encoded = Vec::new();
    put_number(&mut encoded, 1, u64::from(code));
    put_bytes(&mut encoded, 2, message.as_bytes());
    put_bytes(&mut encoded, 3, &any);
    base64(&encoded)
}

/// A protobuf field of wire type 0. Zero is the default and is left out.
fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        put_varint(out, value);
    }
}

/// A protobuf field of wire type 2.
fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0_u32, |word, &byte| word << 8 | u32::from(byte))
            << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            let sextet = word >> (18 - 6 * digit) & 0x3f;
            text.push(char::from(ALPHABET[usize::try_from(sextet).unwrap_or(0)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_no_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn retry_details_are_a_status_with_a_retry_delay() {
        let details = status_details(8, "overloaded", Duration::from_millis(1500));
        let mut expected = vec![8, 8, 0x12, 10];
        expected.extend_from_slice(b"overloaded");
        expected.extend_from_slice(&[0x1a, 53, 0x0a, 40]);
        expected.extend_from_slice(b"type.googleapis.com/google.rpc.RetryInfo");
        // RetryInfo { 1: Duration { 1: 1 s, 2: 500,000,000 ns } }
        expected.extend_from_slice(&[0x12, 10, 0x0a, 8, 8, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 1]);
        expected[15] = u8::try_from(expected.len() - 16).unwrap();
        assert_eq!(details, base64(&expected));
    }

    #[test]
    fn a_retry_time_is_stretched_by_less_than_a_quarter() {
        let wait = Duration::from_secs(4);
        assert_eq!(stretched(wait, 0), wait);
        assert!(stretched(wait, 255) < Duration::from_secs(5));
        assert!(stretched(wait, 255) > Duration::from_millis(4900));
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_and_never_too_short() {
        let told = [0, 1, 1_000, 1_001].map(|millis| whole_seconds(Duration::from_millis(millis)));
        assert_eq!(told, [1, 1, 1, 2]);
    }
}
