//! The models of one fleet: their slots, and which requests are theirs.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderName, HeaderValue};
use inflight_core::Slots;

use super::check_distinct;
use crate::config::ModelConfig;
use crate::config::error::{Located, Place, Problems};
use crate::config::raw;

pub(super) fn resolve_models(
    raw: &raw::Fleet,
    problems: &mut Problems,
) -> Option<Vec<ModelConfig>> {
    let models = raw.models.as_ref()?;
    let fleet_slots = raw.slots.as_ref();
    let every_model_has_slots =
        !models.value.is_empty() && models.value.iter().all(|model| model.slots.is_some());
    if fleet_slots.is_none() && !every_model_has_slots && needs_slots(raw) {
        let what = "is missing: how many requests one replica executes at the same time";
        let place = raw.name.as_ref().map_or(&models.place, |name| &name.place);
        let mut place = place.clone();
        place.key = models.place.key.replace(".models", ".slots");
        // A value that was wrong has been reported where it stands.
        if !problems
            .errors
            .iter()
            .any(|problem| problem.place.key.starts_with(&place.key))
        {
            problems.refuse(&place, what, "a whole number, 1 to 100000");
        }
    }
    check_distinct(
        models.value.iter().filter_map(|model| model.name.as_ref()),
        "name of a model",
        problems,
    );
    check_routes(models, problems);
    if models.value.is_empty() {
        let name = raw.name.as_ref()?.value.clone();
        let slots = match fleet_slots {
            Some(slots) => slots.value,
            None if needs_slots(raw) => return None,
            None => 1,
        };
        let slots = Slots::new(slots)?;
        return Some(vec![ModelConfig {
            name,
            path: "/".to_owned(),
            headers: Vec::new(),
            slots,
        }]);
    }
    let headers: Vec<_> = models
        .value
        .iter()
        .map(|model| resolve_headers(model, problems))
        .collect();
    let resolved = models.value.iter().zip(headers).map(|(model, headers)| {
        Some(ModelConfig {
            name: model.name.as_ref()?.value.clone(),
            path: model.path.as_ref()?.value.clone(),
            headers: headers?,
            slots: Slots::new(model.slots.as_ref().or(fleet_slots)?.value)?,
        })
    });
    resolved.collect()
}

/// Whether slots matter: to a gateway, and to the policies that are told how much is in flight by
/// slots.
fn needs_slots(raw: &raw::Fleet) -> bool {
    let source = raw.source.as_ref().map(|source| &source.value);
    let is_elsewhere = source.is_some_and(|it| it.gateway.is_none() && it.inflight.is_none());
    let policy = raw.scaling.as_ref().and_then(|it| it.value.policy.as_ref());
    let counts_slots = |rule| matches!(rule, raw::Rule::Staffing | raw::Rule::Concurrency);
    !is_elsewhere || policy.is_some_and(|policy| counts_slots(policy.value.0))
}

/// Reports models that would get no request, and warns when some requests are nobody's.
fn check_routes(models: &Located<Vec<raw::Model>>, problems: &mut Problems) {
    type Route<'a> = (&'a str, BTreeSet<(String, &'a str)>);
    let mut seen: BTreeMap<Route<'_>, &Place> = BTreeMap::new();
    let mut takes_the_rest = models.value.is_empty();
    for model in &models.value {
        let (Some(path), Some(header)) = (&model.path, &model.header) else {
            // What is wrong with it has been reported.
            takes_the_rest = true;
            continue;
        };
        let route = path.value.trim_end_matches('/');
        let named = |(name, value): (&'_ String, _)| (name.to_ascii_lowercase(), value);
        let headers: BTreeSet<_> = header
            .value
            .iter()
            .map(named)
            .map(|(name, value): (String, &String)| (name, value.as_str()))
            .collect();
        takes_the_rest |= route.is_empty() && headers.is_empty();
        let place = if path.given {
            &path.place
        } else {
            &header.place
        };
        if let Some(first) = seen.get(&(route, headers.clone())) {
            let what = format!(
                "has the path and the headers of the model in line {}, which takes its requests",
                first.line
            );
            problems.error(place, what);
        } else {
            seen.insert((route, headers), place);
        }
    }
    let first = models.value.first().and_then(|model| model.name.as_ref());
    if let Some(first) = first
        && !takes_the_rest
    {
        let what = format!(
            "no model takes every path: a request that fits none counts as {:?}, the first",
            first.value
        );
        problems.warn(&models.place, what);
    }
}

fn resolve_headers(
    raw: &raw::Model,
    problems: &mut Problems,
) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let header = raw.header.as_ref()?;
    let mut resolved = Vec::new();
    for (name, value) in &header.value {
        match (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) {
            (Ok(name), Ok(value)) => resolved.push((name, value)),
            (Err(_), _) => problems.error(&header.place, format!("{name:?} is no header name")),
            (_, Err(_)) => problems.error(
                &header.place,
                format!("{value:?} cannot be the value of a header"),
            ),
        }
    }
    (resolved.len() == header.value.len()).then_some(resolved)
}
