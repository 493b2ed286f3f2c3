//! A place in the file, whether something is there or not.

use std::time::Duration;

use crate::config::document::{Node, Value, join};
use crate::config::error::{Place, Problem};

/// A key, with what it holds; what is not there is at the line of what would hold it.
#[derive(Clone, Debug)]
pub(super) struct Spot<'a> {
    node: Option<&'a Node>,
    pub(super) place: Place,
}

/// Says something about a place.
pub(super) fn problem(at: &Spot<'_>, what: impl Into<String>) -> Problem {
    Problem {
        place: at.place.clone(),
        what: what.into(),
        allowed: None,
    }
}

impl<'a> Spot<'a> {
    pub(super) fn of(node: &'a Node) -> Self {
        Self {
            node: Some(node),
            place: node.place.clone(),
        }
    }

    /// Returns what a key of it holds, as it is spelled in YAML or as JSON may have it.
    pub(super) fn get(&self, key: &str) -> Self {
        let found = self.fields().find(|(name, _)| is_same(name, key));
        let node = found.map(|(_, node)| node);
        let place = node.map_or_else(
            || Place {
                key: join(&self.place.key, key),
                ..self.place.clone()
            },
            |node| node.place.clone(),
        );
        Self {
            node: node.filter(|node| !matches!(node.value, Value::Null)),
            place,
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        let entries = match self.node.map(|node| &node.value) {
            Some(Value::Mapping(entries)) => entries.as_slice(),
            _ => &[],
        };
        (entries.iter()).map(|entry| (entry.key.as_str(), &entry.node))
    }

    /// Returns its keys, whatever they are called.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        self.fields().map(|(key, node)| (key, Self::of(node)))
    }

    /// Returns what a list holds.
    pub(super) fn items(&self) -> Vec<Self> {
        match self.node.map(|node| &node.value) {
            Some(Value::List(items)) => items.iter().map(Self::of).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) const fn is_there(&self) -> bool {
        self.node.is_some()
    }

    pub(super) fn is_mapping(&self) -> bool {
        matches!(self.node.map(|node| &node.value), Some(Value::Mapping(_)))
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.node.map(|node| &node.value) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns its `name`.
    pub(super) fn name(&self) -> Option<&'a str> {
        self.get("name").text()
    }

    /// Returns the last word of its `@type`.
    pub(super) fn kind(&self) -> &'a str {
        let kind = self.get("@type").text().unwrap_or_default();
        kind.rsplit('.').next().unwrap_or_default()
    }

    pub(super) fn is_true(&self) -> bool {
        match self.node.map(|node| &node.value) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::Mapping(_)) => self.get("value").is_true(),
            _ => false,
        }
    }

    /// Returns a number, which may be wrapped; a wrapper around nothing holds zero.
    pub(super) fn number(&self) -> Option<f64> {
        match &self.node?.value {
            Value::Integer(number) => number.to_string().parse().ok(),
            Value::Float(number) => Some(*number),
            Value::Text(text) => text.parse().ok(),
            Value::Mapping(_) => Some(self.get("value").number().unwrap_or(0.0)),
            Value::Null | Value::Bool(_) | Value::List(_) => None,
        }
    }

    pub(super) fn port(&self) -> Option<u16> {
        let Value::Integer(number) = self.node?.value else {
            return None;
        };
        u16::try_from(number).ok()
    }

    /// Returns a span, which is spelled in seconds.
    pub(super) fn span(&self) -> Option<Duration> {
        let seconds = self.text()?.strip_suffix('s')?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Says what it is, or what Envoy takes where it is not set.
    pub(super) fn found(&self, default: &str) -> String {
        match self.node {
            Some(node) if !node.spelled.is_empty() => format!("is {}", node.spelled),
            Some(_) if self.get("value").is_there() => self.get("value").found(""),
            Some(_) => "is set".to_owned(),
            None if default.is_empty() => "is not set".to_owned(),
            None => format!("is not set, which is {default}"),
        }
    }
}

/// Compares `connect_timeout`, as a file has it, with `connectTimeout`, which JSON may have.
fn is_same(name: &str, key: &str) -> bool {
    let plain = |text: &str| -> Vec<u8> {
        let bytes = text.bytes().filter(|byte| *byte != b'_');
        bytes.map(|byte| byte.to_ascii_lowercase()).collect()
    };
    name == key || plain(name) == plain(key)
}
