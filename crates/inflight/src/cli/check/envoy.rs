//! `inflight check --envoy`: what in a configuration of Envoy is worth a look.

use std::path::Path;

use crate::config::{Config, envoy_advice};

/// Says what is worth a look in a file, a line each.
///
/// *Errors*: what keeps it from being read.
pub(super) fn report(path: &Path, config: &Config) -> Result<String, String> {
    let name = path.display();
    let text = Config::read(path).map_err(|error| error.to_string())?;
    let advice =
        envoy_advice(&text, config).map_err(|problem| format!("envoy {name}: {problem}"))?;
    let mut out = match advice.len() {
        0 => format!("envoy {name}: nothing to warn of\n"),
        _ => String::new(),
    };
    for problem in advice {
        out.push_str(&format!("warning: envoy {name}: {problem}\n"));
    }
    Ok(out)
}
