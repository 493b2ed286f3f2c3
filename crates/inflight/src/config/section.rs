//! A section: a mapping with a closed list of keys, declared once.
//!
//! `section!` turns one declaration into the struct that the reader fills, the reader itself, and
//! the rows of the reference page, so that key, documentation, default and range cannot drift
//! apart.

use std::collections::BTreeMap;

use super::document::{self, Entry, Node, Value};
use super::error::{Located, Place, Problems};
use super::setting::Setting;
use super::suggest::nearest;

/// Where a key's value comes from when the file does not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The key must be set.
    Required,
    /// The key stays unset; what that means is said in the key's documentation.
    Unset,
    /// The value, spelled as in the file.
    Default(&'static str),
    /// A value computed from others, in words.
    Computed(&'static str),
}

/// What the reference page says about a key.
#[derive(Clone, Debug)]
pub(super) struct KeyDoc {
    pub(super) name: &'static str,
    pub(super) doc: String,
    pub(super) absent: Absent,
    pub(super) allowed: String,
}

/// What the reference page says about a section.
#[derive(Clone, Debug)]
pub(super) struct SectionDoc {
    /// Where it stands, such as `fleets[].replicas`; empty for the file itself.
    pub(super) path: String,
    pub(super) doc: String,
    pub(super) keys: Vec<KeyDoc>,
    /// Keys of the contract that this version does not know yet.
    pub(super) later: &'static [&'static str],
}

/// The keys of one mapping while they are read.
pub(super) struct Keys<'a> {
    entries: &'a [Entry],
    place: &'a Place,
}

impl<'a> Keys<'a> {
    /// Opens a mapping and reports every key that is unknown, not built yet, or there twice.
    pub(super) fn open(
        node: &'a Node,
        names: &[&'static str],
        later: &[&'static str],
        problems: &mut Problems,
    ) -> Option<Self> {
        let entries = match &node.value {
            Value::Mapping(entries) => entries.as_slice(),
            // A section whose keys are all commented out.
            Value::Null => &[],
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => {
                let what = format!("{} is not a mapping", super::setting::shown(node));
                problems.refuse(&node.place, what, mapping_of(names));
                return None;
            }
        };
        let mut seen: BTreeMap<&str, &Place> = BTreeMap::new();
        for entry in entries {
            let key = entry.key.as_str();
            if !names.contains(&key) {
                report_unknown(entry, names, later, problems);
            } else if let Some(first) = seen.get(key) {
                let what = format!("is there twice, first in line {}", first.line);
                problems.error(&entry.key_place, what);
            } else {
                seen.insert(key, &entry.key_place);
            }
        }
        Some(Self {
            entries,
            place: &node.place,
        })
    }

    /// Reads one key, or what stands for it when it is absent.
    pub(super) fn take<T: Setting>(
        &self,
        name: &'static str,
        absent: Absent,
        range: &T::Range,
        problems: &mut Problems,
    ) -> Option<Located<T>> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.key == name) {
            let value = T::read(&entry.node, range, problems)?;
            return Some(Located {
                value,
                place: entry.node.place.clone(),
                given: true,
            });
        }
        let place = Place {
            key: document::join(&self.place.key, name),
            ..self.place.clone()
        };
        match absent {
            Absent::Required => problems.refuse(&place, "is missing", T::allowed(range)),
            Absent::Unset | Absent::Computed(_) => {}
            Absent::Default(text) => match document::parse(text) {
                Ok(mut node) => {
                    node.place = place.clone();
                    let value = T::read(&node, range, problems)?;
                    return Some(Located {
                        value,
                        place,
                        given: false,
                    });
                }
                Err(problem) => problems.errors.push(problem),
            },
        }
        None
    }
}

fn report_unknown(
    entry: &Entry,
    names: &[&'static str],
    later: &[&'static str],
    problems: &mut Problems,
) {
    if later.contains(&entry.key.as_str()) {
        problems.error(&entry.key_place, "is not built in this version");
        return;
    }
    let known = format!("`{}`", names.join("`, `"));
    let what = match nearest(&entry.key, names.iter().copied()) {
        Some(name) => format!("is an unknown key; did you mean `{name}`?"),
        None => "is an unknown key".to_owned(),
    };
    problems.refuse(&entry.key_place, what, known);
}

/// Names a section by its keys.
pub(super) fn mapping_of(names: &[&'static str]) -> String {
    format!("a mapping with `{}`", names.join("`, `"))
}

/// Strips the mark that Rust needs before a key that is a word of its own.
pub(super) const fn key_name(name: &'static str) -> &'static str {
    if let [b'r', b'#', rest @ ..] = name.as_bytes()
        && let Ok(stripped) = std::str::from_utf8(rest)
    {
        return stripped;
    }
    name
}

/// Joins the lines of a documentation comment.
pub(super) fn doc_text(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Declares a section: `key: Type = absent, range;`, each with its documentation. Absent is a
/// default spelled as in the file, `required`, `unset`, or a computed value in words: `["…"]`.
macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        $name:ident { $(
            $(#[doc = $key_doc:literal])*
            $key:ident : $type:ty = $absent:tt $(, $range:expr)?;
        )* }
        $(later $($later:ident)+)?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        pub(in crate::config) struct $name { $(
            $(#[doc = $key_doc])*
            pub(in crate::config) $key: Option<Located<$type>>,
        )* }

        impl $name {
            const NAMES: &'static [&'static str] = &[$(key_name(stringify!($key))),*];
            const LATER: &'static [&'static str] = &[$($(stringify!($later)),+)?];
        }

        impl Setting for $name {
            type Range = ();

            fn read(node: &Node, (): &(), problems: &mut Problems) -> Option<Self> {
                let keys = Keys::open(node, Self::NAMES, Self::LATER, problems)?;
                Some(Self { $(
                    $key: keys.take(
                        key_name(stringify!($key)), absent!($absent), &range!($($range)?), problems,
                    ),
                )* })
            }

            fn allowed((): &()) -> String {
                mapping_of(Self::NAMES)
            }

            fn describe(path: &str, sections: &mut Vec<SectionDoc>) {
                sections.push(SectionDoc {
                    path: path.to_owned(),
                    doc: doc_text(&[$($doc),*]),
                    keys: vec![$(KeyDoc {
                        name: key_name(stringify!($key)),
                        doc: doc_text(&[$($key_doc),*]),
                        absent: absent!($absent),
                        allowed: <$type as Setting>::allowed(&range!($($range)?)),
                    }),*],
                    later: Self::LATER,
                });
                $(<$type as Setting>::describe(
                    &document::join(path, key_name(stringify!($key))), sections,
                );)*
            }
        }
    };
}

macro_rules! absent {
    (required) => {
        Absent::Required
    };
    (unset) => {
        Absent::Unset
    };
    ([$words:literal]) => {
        Absent::Computed($words)
    };
    ($default:literal) => {
        Absent::Default($default)
    };
}

macro_rules! range {
    () => {
        ()
    };
    ($range:expr) => {
        $range
    };
}

pub(super) use {absent, range, section};
