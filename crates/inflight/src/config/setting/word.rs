//! Closed lists of words, and words that stand beside other values.

use super::{Setting, refuse};
use crate::config::document::{Node, Value};
use crate::config::error::Problems;
use crate::config::section::SectionDoc;
use crate::config::suggest::nearest;

/// A closed list of words.
pub(in crate::config) trait Choice: Copy + 'static {
    /// The words and what they stand for, the usual one first.
    const WORDS: &'static [(&'static str, Self)];
    /// Words of the contract that this version does not know yet.
    const LATER: &'static [&'static str] = &[];
}

/// One of a closed list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct OneOf<C>(pub(in crate::config) C);

impl<C: Choice> Setting for OneOf<C> {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let written = match &node.value {
            Value::Text(text) => text.as_str(),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Mapping(_) => node.spelled.as_str(),
        };
        if let Some((_, choice)) = C::WORDS.iter().find(|(word, _)| *word == written) {
            return Some(Self(*choice));
        }
        let why = match nearest(written, C::WORDS.iter().map(|(word, _)| *word)) {
            _ if C::LATER.contains(&written) => "is not built in this version".to_owned(),
            Some(word) => format!("is not known; did you mean `{word}`?"),
            None => "is not known".to_owned(),
        };
        refuse::<Self>(node, &why, range, problems);
        None
    }

    fn allowed((): &Self::Range) -> String {
        let words: Vec<String> = C::WORDS
            .iter()
            .map(|(word, _)| format!("`{word}`"))
            .collect();
        words.join(" or ")
    }
}

/// A word that stands beside other values.
pub(in crate::config) trait Word {
    /// The word.
    const WORD: &'static str;
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(in crate::config) struct $name;
        impl Word for $name {
            const WORD: &'static str = $word;
        }
    )*};
}

words! {
    /// Computed by us.
    Auto = "auto";
    /// Switched off.
    Off = "off";
    /// Without a value.
    Nothing = "none";
    /// Without a bound.
    Unlimited = "unlimited";
    /// By the peer's address.
    Address = "address";
    /// By the client's certificate.
    Certificate = "certificate";
    /// What the target starts.
    OfTarget = "target";
    /// Decides and tells, changes nothing.
    Advise = "advise";
}

/// One word, or a value of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Or<W, T> {
    /// The word.
    Word(W),
    /// The other kind.
    Value(T),
}

impl<W: Word + Default, T: Setting> Setting for Or<W, T> {
    type Range = T::Range;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let is_word = match &node.value {
            Value::Text(text) => text == W::WORD,
            // YAML reads an unquoted `off` as a no.
            Value::Bool(_) => node.spelled == W::WORD,
            Value::Null
            | Value::Integer(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Mapping(_) => false,
        };
        if is_word {
            return Some(Self::Word(W::default()));
        }
        let errors_before = problems.errors.len();
        let value = T::read(node, range, problems);
        problems.allow_word(errors_before, &node.place, W::WORD);
        value.map(Self::Value)
    }

    fn allowed(range: &Self::Range) -> String {
        format!("`{}`, or {}", W::WORD, T::allowed(range))
    }

    fn describe(path: &str, sections: &mut Vec<SectionDoc>) {
        T::describe(path, sections);
    }
}
