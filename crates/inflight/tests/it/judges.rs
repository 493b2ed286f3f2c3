//! Other systems' own tools as the judges of what we print for them: Prometheus' and Envoy.
//!
//! They are found where the real components are installed, or on the path. Without one its tests fail,
//! unless `INFLIGHT_WITHOUT` names the component.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns Prometheus' tool; `None` where whoever runs the tests said that they go without.
pub(crate) fn promtool() -> Option<PathBuf> {
    installed("promtool", "prometheus")
}

/// Returns Envoy; `None` where whoever runs the tests said that they go without.
pub(crate) fn envoy() -> Option<PathBuf> {
    installed("envoy", "envoy")
}

fn installed(tool: &str, component: &str) -> Option<PathBuf> {
    let installed = env::var_os("INFLIGHT_REAL").map(PathBuf::from);
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../real");
    let folders = installed.into_iter().chain([built]);
    let on_path = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let found = (folders.map(|folder| folder.join("bin")).chain(on_path))
        .map(|folder| folder.join(tool))
        .find(|tool| tool.is_file());
    let without = env::var("INFLIGHT_WITHOUT").unwrap_or_default();
    let is_done_without = without.split(',').any(|name| name == component);
    assert!(
        found.is_some() || is_done_without,
        "{tool} is not there: run bench/real/install.sh, or say INFLIGHT_WITHOUT={component}"
    );
    found
}

/// Runs the tool in a folder; it must agree.
#[track_caller]
pub(crate) fn agrees(tool: &Path, folder: &Path, arguments: &[&str]) {
    let output = Command::new(tool)
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
