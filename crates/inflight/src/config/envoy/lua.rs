//! Filters in Lua that refuse by a number: as far as a program's text tells, whether an answer that
//! is no number, or an error, lets everybody pass.

use super::file::File;
use super::spot::{Spot, problem};
use crate::config::error::Problem;

/// Says what is worth a look in the programs of a file.
pub(super) fn add(file: &File<'_>, advice: &mut Vec<Problem>) {
    let filters = file.managers.iter().flat_map(|manager| &manager.filters);
    for filter in filters.filter(|filter| filter.is_lua()) {
        let source = filter
            .config
            .get("default_source_code")
            .get("inline_string");
        let older = filter.config.get("inline_code");
        for program in [source, older] {
            if let Some(text) = program.text() {
                check(file, &program, text, advice);
            }
        }
    }
}

fn check(file: &File<'_>, program: &Spot<'_>, text: &str, advice: &mut Vec<Problem>) {
    if !text.contains("httpCall") {
        return;
    }
    let mut say = |what: String| advice.push(problem(program, what));
    if text.contains("tonumber") && !has_number_guard(text) {
        say(
            "takes whatever `tonumber` makes of an answer: NaN is not above any limit and lets \
             everybody pass, and 0x20 is 32; should look at the text first, as `inflight render lua` \
             does"
                .to_owned(),
        );
    }
    if !text.contains("pcall") {
        say(
            "asks without `pcall`: Envoy lets a call pass when its filter fails, so that an error is \
             open whatever is meant; should be asked inside `pcall`"
                .to_owned(),
        );
    }
    for name in asked(text) {
        if file.cluster(name).is_none() {
            say(format!(
                "asks cluster `{name}`, which is not there: that raises, and lets the call pass"
            ));
        }
    }
}

/// Tells whether a program looks at the text of a number, or compares it with itself.
fn has_number_guard(text: &str) -> bool {
    let compares = text.match_indices("~=").any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let before = text[..at].trim_end();
        let start = before.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
        let after = text[at + 2..].trim_start();
        let end = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
        // `rfind` may have met a character of several bytes.
        before
            .get(start..)
            .is_some_and(|name| !name.is_empty() && name == &after[..end])
    });
    compares || text.contains("%d+")
}

/// Returns the clusters that a program names where it asks.
fn asked(text: &str) -> impl Iterator<Item = &str> {
    text.split("httpCall").skip(1).filter_map(|rest| {
        let inside = rest.trim_start().strip_prefix('(')?.trim_start();
        let quote = inside.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (name, _) = inside[1..].split_once(quote)?;
        // What is spelled with escapes is not read here.
        (!name.contains('\\')).then_some(name)
    })
}
