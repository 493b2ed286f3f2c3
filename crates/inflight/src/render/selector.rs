//! Selectors of series: names, labels with their values, spelled so that any value is only a value.

use std::fmt::Write as _;
use std::str::FromStr;

use promql_parser::label::Matcher;
use promql_parser::parser::{Expr, parse};

/// Labels that series must have beside those that a fleet's settings name, such as a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Each as a query spells it.
    matchers: Vec<String>,
}

/// Why a text is no list of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a list such as release=\"a\",zone!=\"b\"")]
pub struct SelectorError;

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Whatever would end the braces early leaves something that is no selector alone.
        let Ok(Expr::VectorSelector(selector)) = parse(&format!("name{{{text}}}")) else {
            return Err(SelectorError);
        };
        let labels = selector.matchers;
        let is_plain = selector.offset.is_none()
            && selector.at.is_none()
            && labels.or_matchers.is_empty()
            && labels.matchers.iter().all(|label| is_label(&label.name));
        if !is_plain {
            return Err(SelectorError);
        }
        let spelled =
            |label: &Matcher| format!("{}{}{}", label.name, label.op, text_of(&label.value));
        Ok(Self {
            matchers: labels.matchers.iter().map(spelled).collect(),
        })
    }
}

impl Selector {
    /// Returns the selector of a metric whose series have these labels as well.
    pub(super) fn of(&self, metric: &str, labels: &[Label]) -> String {
        let own = labels.iter().map(Label::spelled);
        let mut all: Vec<String> = own.chain(self.matchers.iter().cloned()).collect();
        all.sort();
        if all.is_empty() {
            metric.to_owned()
        } else {
            format!("{metric}{{{}}}", all.join(","))
        }
    }
}

/// A label that series must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// With this value.
    Is(String, String),
    /// With one of these values.
    OneOf(String, Vec<String>),
}

impl Label {
    pub(super) fn is(name: &str, value: &str) -> Self {
        Self::Is(name.to_owned(), value.to_owned())
    }

    fn spelled(&self) -> String {
        match self {
            Self::Is(name, value) => format!("{name}={}", text_of(value)),
            Self::OneOf(name, values) => match values.as_slice() {
                [only] => format!("{name}={}", text_of(only)),
                values => {
                    let literal: Vec<String> = values.iter().map(|value| literal(value)).collect();
                    format!("{name}=~{}", text_of(&literal.join("|")))
                }
            },
        }
    }
}

/// Tells whether a name is one that a query can spell without quotes.
fn is_label(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name != "__name__"
        && name.starts_with(letter)
        && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Spells a text of the query language: what would end it, or cannot be in it, is escaped.
pub(super) fn text_of(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                // A `String` takes whatever is written.
                write!(text, "\\u{:04x}", u32::from(c)).ok();
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Spells a regular expression that matches this text alone.
fn literal(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_back(query: &str) -> Vec<Matcher> {
        let Ok(Expr::VectorSelector(selector)) = parse(query) else {
            panic!("{query} is no selector");
        };
        assert_eq!(selector.name.as_deref(), Some("up"));
        selector.matchers.matchers
    }

    proptest! {
        #[test]
        fn any_value_is_a_value_and_nothing_else(value in any::<String>(), other in any::<String>()) {
            let one = Selector::default().of("up", &[Label::is("a", &value)]);
            prop_assert_eq!(&read_back(&one)[0].value, &value);
            let label = Label::OneOf("a".to_owned(), vec![value.clone(), other.clone()]);
            let several = &read_back(&Selector::default().of("up", &[label]))[0];
            prop_assert!(several.is_match(&value) && several.is_match(&other));
            let longer = format!("{value}{other}x");
            prop_assert!(!several.is_match(&longer));
        }

        #[test]
        fn no_text_leaves_the_braces(text in any::<String>()) {
            if let Ok(selector) = text.parse::<Selector>() {
                read_back(&selector.of("up", &[Label::is("own", "1")]));
            }
        }
    }

    #[test]
    fn labels_are_taken_as_people_write_them() {
        let selector: Selector = " release = 'a\"b' , zone!=\"c\",pod=~\"x.*\","
            .parse()
            .unwrap();
        assert_eq!(
            selector.of("up", &[Label::is("own", "\\")]),
            r#"up{own="\\",pod=~"x.*",release="a\"b",zone!="c"}"#
        );
        assert_eq!("".parse(), Ok(Selector::default()));
    }

    #[test]
    fn what_is_no_list_of_labels_is_refused() {
        for text in [
            "release",
            "release=a",
            "a=\"b\"} or up{c=\"d\"",
            "a=\"b\"}[5m",
            "a=\"b\"} offset 5m #",
            "a=\"b\" or c=\"d\"",
            "a=~\"(\"",
            "__name__=\"other\"",
            "a=\"b\" #",
        ] {
            assert_eq!(text.parse::<Selector>(), Err(SelectorError), "{text}");
        }
    }
}
