//! Texts with gaps: `@NAME@` stands for what is filled in.

/// Fills the gaps of a template. A gap that is alone on its line takes lines, each of which is indented
/// as the gap was; with nothing to take the line is gone. What is filled in is not looked at again, and
/// a gap without a value stays, for a test to find.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(template.len());
    for line in template.lines() {
        let text = line.trim_start();
        let gap = (text.strip_prefix('@'))
            .and_then(|rest| rest.strip_suffix('@'))
            .and_then(|name| value(values, name));
        match gap {
            Some(lines) => put_lines(&mut out, lines, &line[..line.len() - text.len()]),
            None => {
                put_line(&mut out, line, values);
                out.push('\n');
            }
        }
    }
    out
}

fn value<'a>(values: &'a [(&str, String)], name: &str) -> Option<&'a str> {
    let mut named = values.iter().filter(|(gap, _)| *gap == name);
    named.next().map(|(_, value)| value.as_str())
}

fn put_lines(out: &mut String, lines: &str, margin: &str) {
    for line in lines.lines() {
        if !line.is_empty() {
            out.push_str(margin);
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Writes a line, with the gaps inside it filled.
fn put_line(out: &mut String, line: &str, values: &[(&str, String)]) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        match after
            .split_once('@')
            .and_then(|(name, after)| Some((value(values, name)?, after)))
        {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push('@');
                rest = after;
            }
        }
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_take_words_in_a_line_and_lines_of_their_own() {
        let template = "a: @A@, @A@ \"@type\" @B@\n  @LINES@\n  @NONE@\nend\n";
        let values = [
            ("A", "@B@ x@y".to_owned()),
            ("LINES", "one\n\n  two\n".to_owned()),
            ("NONE", String::new()),
        ];
        assert_eq!(
            fill(template, &values),
            "a: @B@ x@y, @B@ x@y \"@type\" @B@\n  one\n\n    two\nend\n"
        );
    }
}
