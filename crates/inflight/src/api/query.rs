//! The parameters of a query: every one is known, and there once.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::http::Uri;

use super::failure::Failure;

/// Reads a query that may have these parameters; a misspelt one is told, never ignored.
pub(super) fn parameters(
    uri: &Uri,
    known: &[&'static str],
) -> Result<BTreeMap<String, String>, Failure> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|rejected| Failure::bad_request(rejected.body_text()))?;
    let mut parameters = BTreeMap::new();
    for (key, value) in pairs {
        if !known.contains(&key.as_str()) {
            let allowed = match known {
                [] => "none is".to_owned(),
                known => format!("known: {}", known.join(", ")),
            };
            let text = format!("{key:?} is an unknown parameter; {allowed}");
            return Err(Failure::bad_request(text));
        }
        if parameters.insert(key.clone(), value).is_some() {
            return Err(Failure::bad_request(format!("{key} is there twice")));
        }
    }
    Ok(parameters)
}
