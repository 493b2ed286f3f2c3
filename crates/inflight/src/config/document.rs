//! A YAML file as a tree in which every node knows its line: the only place that knows the YAML
//! library.
//!
//! The tree is read first and judged afterwards, so that one pass can report all that is wrong;
//! a typed reader would stop at the first. It is bounded before it is judged: bytes, depth, nodes
//! and what aliases expand to.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Spanned};

use super::error::{Place, Problem};

/// The largest file that is read. Thousands of fleets fit; no real file comes near.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// The deepest nesting. The deepest key of the contract is at 7.
const DEPTH_MAX: usize = 32;
/// The most nodes, aliases expanded.
const NODES_MAX: usize = 200_000;
/// The most nodes that aliases may add.
const ALIAS_NODES_MAX: usize = 50_000;

/// One node of the file.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    /// The scalar as the file spells it; empty for lists, mappings and what aliases repeat.
    pub(super) spelled: String,
    pub(super) place: Place,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One key of a mapping with its value; keys may repeat.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Place,
    pub(super) node: Node,
}

/// Reads a text to its tree.
///
/// *Errors*: one problem when the text is no YAML, or larger or deeper than the bounds.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    if text.len() > BYTES_MAX {
        let what = format!("the file has {} bytes", text.len());
        let allowed = Some(format!("at most {BYTES_MAX} bytes"));
        return Err(Problem {
            place: Place::default(),
            what,
            allowed,
        });
    }
    let parsed: Result<Spanned<Parsed>, _> = serde_saphyr::from_str_with_options(text, options());
    match parsed {
        Ok(root) => Ok(placed(root, String::new(), text)),
        Err(error) => {
            let location = error.location();
            let place = Place {
                key: String::new(),
                line: location.map_or(0, |at| number(at.line())),
                column: location.map_or(0, |at| number(at.column())),
            };
            let what = error.without_snippet().to_string();
            let what = what.lines().next().unwrap_or("is not YAML").to_owned();
            Err(Problem {
                place,
                what,
                allowed: None,
            })
        }
    }
}

/// Reads a file, never much more than may be parsed.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let limit = u64::try_from(BYTES_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut text = String::new();
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

fn options() -> serde_saphyr::Options {
    let mut limits = serde_saphyr::options::AliasLimits::default();
    limits.max_total_replayed_events = ALIAS_NODES_MAX;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: 2 * NODES_MAX,
            max_documents: 1,
        },
        alias_limits: limits,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

/// A node as the library hands it over, before its key is known.
enum Parsed {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Mapping(Vec<(Spanned<String>, Spanned<Self>)>),
}

/// Gives a parsed node and everything below it their places.
fn placed(parsed: Spanned<Parsed>, key: String, text: &str) -> Node {
    let place = place_of(&parsed.referenced, key.clone());
    match parsed.value {
        Parsed::Scalar(value) => {
            let spelled = spelling(&parsed.defined, text);
            Node {
                value,
                spelled,
                place,
            }
        }
        Parsed::List(items) => {
            let items = items.into_iter().enumerate();
            let items = items.map(|(index, item)| placed(item, format!("{key}[{index}]"), text));
            Node {
                value: Value::List(items.collect()),
                spelled: String::new(),
                place,
            }
        }
        Parsed::Mapping(entries) => {
            let entries = entries.into_iter().map(|(name, value)| {
                let path = join(&key, &name.value);
                let key_place = place_of(&name.referenced, path.clone());
                let mut node = placed(value, path, text);
                // A list or mapping, and an absent value, are where their key is.
                if node.spelled.is_empty() && key_place.line > 0 {
                    node.place = key_place.clone();
                }
                Entry {
                    key: name.value,
                    key_place,
                    node,
                }
            });
            Node {
                value: Value::Mapping(entries.collect()),
                spelled: String::new(),
                place,
            }
        }
    }
}

/// Returns the path of a key below another.
pub(super) fn join(parent: &str, key: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let key: String = key
        .chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if parent.is_empty() {
        key
    } else {
        format!("{parent}.{key}")
    }
}

fn place_of(location: &serde_saphyr::Location, key: String) -> Place {
    Place {
        key,
        line: number(location.line()),
        column: number(location.column()),
    }
}

/// Returns the text that a scalar's location covers.
fn spelling(location: &serde_saphyr::Location, text: &str) -> String {
    let span = location.span();
    let range = span
        .byte_offset()
        .zip(span.byte_len())
        .and_then(|(start, len)| {
            let start = usize::try_from(start).ok()?;
            text.get(start..start.checked_add(usize::try_from(len).ok()?)?)
        });
    range.unwrap_or_default().trim().to_owned()
}

fn number(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParsedVisitor)
    }
}

struct ParsedVisitor;

impl<'de> Visitor<'de> for ParsedVisitor {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Integer(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Integer(value.into())))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Integer(value)))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Integer(
            i128::try_from(value).unwrap_or(i128::MAX),
        )))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Parsed, E> {
        Ok(Parsed::Scalar(Value::Text(value)))
    }

    fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Parsed, E> {
        Err(E::custom("binary values have no use here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Parsed, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Parsed::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if entries.len() >= NODES_MAX {
                return Err(A::Error::custom("a mapping has too many keys"));
            }
            entries.push((key, map.next_value()?));
        }
        Ok(Parsed::Mapping(entries))
    }
}
