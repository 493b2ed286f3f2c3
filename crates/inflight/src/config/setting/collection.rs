//! Lists, and mappings whose keys are not ours.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::text::ARGUMENT;
use super::{Setting, refuse};
use crate::config::document::{Node, Value};
use crate::config::error::Problems;
use crate::config::section::SectionDoc;

/// How many items a list may have, and what each may be.
#[derive(Clone, Debug)]
pub(in crate::config) struct Items<R> {
    pub(in crate::config) count: RangeInclusive<usize>,
    pub(in crate::config) each: R,
}

impl<T: Setting> Setting for Vec<T> {
    type Range = Items<T::Range>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::List(items) = &node.value else {
            refuse::<Self>(node, "is not a list", range, problems);
            return None;
        };
        if !range.count.contains(&items.len()) {
            let what = format!("{} items", items.len());
            problems.refuse(&node.place, what, Self::allowed(range));
            return None;
        }
        let read: Vec<Option<T>> = items
            .iter()
            .map(|item| T::read(item, &range.each, problems))
            .collect();
        read.into_iter().collect()
    }

    fn allowed(range: &Self::Range) -> String {
        let (least, most) = (range.count.start(), range.count.end());
        let each = T::allowed(&range.each);
        format!("a list of {least} to {most}, each {each}")
    }

    fn describe(path: &str, sections: &mut Vec<SectionDoc>) {
        T::describe(&format!("{path}[]"), sections);
    }
}

impl Setting for BTreeMap<String, String> {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let entries = match &node.value {
            Value::Mapping(entries) => entries.as_slice(),
            Value::Null => &[],
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => {
                refuse::<Self>(node, "is not a mapping", range, problems);
                return None;
            }
        };
        let errors_before = problems.errors.len();
        let mut variables = Self::new();
        for entry in entries {
            let name = &entry.key;
            if name.is_empty() || name.contains(['=', '\0']) {
                problems.error(
                    &entry.key_place,
                    "is not the name of an environment variable",
                );
            }
            let Some(text) = String::read(&entry.node, &ARGUMENT, problems) else {
                continue;
            };
            if variables.insert(name.clone(), text).is_some() {
                problems.error(&entry.key_place, "is there twice");
            }
        }
        (problems.errors.len() == errors_before).then_some(variables)
    }

    fn allowed((): &Self::Range) -> String {
        "a mapping of names to texts".to_owned()
    }
}
