//! YAML by hand, so that it can have comments: any text is only a text.

use std::fmt::Write as _;

/// Spells a text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_plain(c) => out.push(c),
            c => {
                // A `String` takes whatever is written.
                write!(out, "\\U{:08x}", u32::from(c)).ok();
            }
        }
    }
    out.push('"');
    out
}

/// Spells a text of several lines below a key that is indented by so many columns; one line, or a
/// text that a block cannot hold, in quotes.
pub(super) fn block(text: &str, indent: usize) -> String {
    let text = text.trim_end();
    let is_plain = |line: &str| line.chars().all(is_plain) && !line.ends_with(' ');
    if !text.contains('\n') || !text.split('\n').all(is_plain) {
        return quoted(text);
    }
    let margin = " ".repeat(indent + 2);
    // The first line may be indented itself: how far the block is must be said.
    let mut out = "|2-".to_owned();
    for line in text.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&margin);
            out.push_str(line);
        }
    }
    out
}

/// Tells whether a character is itself in YAML, and no line break of any of its versions.
fn is_plain(c: char) -> bool {
    let breaks = ['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'];
    !c.is_control() && !breaks.contains(&c) && !('\u{fffe}'..='\u{ffff}').contains(&c)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn read_back(text: &str) -> String {
        let read: BTreeMap<String, BTreeMap<String, String>> =
            serde_saphyr::from_str(text).unwrap();
        read["a"]["b"].clone()
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_as_it_was(text in any::<String>()) {
            let line = format!("a:\n  b: {}\n", quoted(&text));
            prop_assert_eq!(read_back(&line), text);
        }

        #[test]
        fn any_text_of_several_lines_is_read_back_as_it_was(text in "[ a#:\"'\\\\\n\t-]{0,40}x") {
            let line = format!("a:\n  b: {}\n", block(&text, 2));
            prop_assert_eq!(read_back(&line), text);
        }
    }
}
