//! What the house promises and the compiler cannot check: arrows between modules, sizes, words.
//!
//! Reads the tree as text. It knows no Rust grammar and needs none: the formatter fixes how an
//! import looks, and a comment line is one that starts with `//`.

mod documents;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a source file; 100 to 300 are the aim, over 500 needs a reason.
const LINES_MAX: usize = 600;

/// Which modules of `crates/inflight/src` each one may import, beside itself and the core.
/// A module that is not in the table fails the test: say where it stands.
const ARROWS: [(&str, &[&str]); 24] = [
    ("clock", &[]),
    ("connections", &[]),
    ("lines", &[]),
    ("ports", &[]),
    ("probe", &[]),
    ("config", &[]),
    ("render", &["config", "retry"]),
    ("fleet", &["clock", "ports"]),
    ("story", &["clock", "ports"]),
    ("replay", &["story"]),
    ("telemetry", &[]),
    ("retry", &[]),
    ("gates", &["connections", "fleet", "retry"]),
    ("serve", &[]),
    ("gateway", PARTS_MAY_IMPORT),
    ("control", PARTS_MAY_IMPORT),
    (
        "targets",
        &[
            "clock",
            "connections",
            "ports",
            "probe",
            "config",
            "fleet",
            "lines",
            "telemetry",
        ],
    ),
    ("endpoints", PARTS_MAY_IMPORT),
    ("publish", PARTS_MAY_IMPORT),
    ("sources", PARTS_MAY_IMPORT),
    (
        "api",
        &[
            "clock",
            "connections",
            "ports",
            "probe",
            "config",
            "fleet",
            "story",
        ],
    ),
    (
        "runtime",
        &[
            "clock",
            "lines",
            "ports",
            "probe",
            "config",
            "fleet",
            "story",
            "telemetry",
            "gates",
            "gateway",
            "control",
            "targets",
            "endpoints",
            "publish",
            "sources",
            "api",
        ],
    ),
    (
        "cli",
        &[
            "clock",
            "ports",
            "probe",
            "config",
            "fleet",
            "story",
            "telemetry",
            "gates",
            "gateway",
            "control",
            "targets",
            "endpoints",
            "sources",
            "api",
            "replay",
            "runtime",
            "render",
        ],
    ),
    ("lib", &[]),
];

/// The parts of the shell meet through these and never import each other.
const PARTS_MAY_IMPORT: &[&str] = &[
    "clock", "ports", "probe", "config", "fleet", "retry", "story",
];

/// What the core may depend on.
const CORE_DEPENDENCIES: [&str; 3] = ["slab", "thiserror", "tracing"];

/// What the simulator may depend on; how it is told what to run is YAML.
const SIMULATOR_DEPENDENCIES: [&str; 6] = [
    "inflight-core",
    "libm",
    "rand_pcg",
    "serde",
    "serde-saphyr",
    "thiserror",
];

/// What no line of the core's code may contain, beside what its `clippy.toml` bans by type.
const CORE_NEVER: [&str; 12] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::io",
    "std::process",
    "std::thread",
    "async fn",
    ".await",
    "println!",
    "static mut",
    "thread_local!",
    "OnceLock",
];

/// Systems whose names the core does not know; comments may cite them as sources.
const VENDORS: [&str; 8] = [
    "envoy",
    "triton",
    "vllm",
    "prometheus",
    "keda",
    "knative",
    "kubernetes",
    "torchserve",
];

/// Calls that make a queue without a bound.
const UNBOUNDED: [&str; 4] = [
    "unbounded_channel",
    "mpsc::unbounded",
    "sync::mpsc::channel",
    "mpsc::channel()",
];

#[derive(Debug)]
struct Source {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// Lines of code before the tests, with their numbers from 1; comment lines are left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests_at = match self.text.find("\n#[cfg(test)]\nmod tests {") {
            _ if self.path.ends_with("/tests.rs") => 0,
            Some(at) => at,
            None => self.text.len(),
        };
        self.text[..tests_at]
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(index, line)| (index + 1, line))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Every file of the tree but build output and version control, sorted by path.
fn files() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if matches!(
                name.as_str(),
                ".git" | "target" | "__pycache__" | "node_modules"
            ) {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let relative = path.strip_prefix(&root).unwrap();
                found.push(Source {
                    path: relative.to_string_lossy().replace('\\', "/"),
                    text: String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "the tree was not found");
    found
}

/// The Rust files under a folder that people write.
fn sources(under: &str) -> Vec<Source> {
    let mut found = files();
    found.retain(|file| file.path.starts_with(under) && file.path.ends_with(".rs"));
    found.retain(|file| !file.path.contains("/generated/"));
    assert!(!found.is_empty(), "no source under {under}");
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pieces of a text between two marks.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split(close).next())
}

#[track_caller]
fn assert_none(problems: &[String], rule: &str) {
    assert!(problems.is_empty(), "{rule}:\n  {}", problems.join("\n  "));
}

/// The names of a manifest's dependencies that end up in what is built, not in tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_wanted = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let mut parts = section.rsplit('.');
            let last = parts.next().unwrap_or_default();
            is_wanted = last == "dependencies" || last == "build-dependencies";
            // `[dependencies.name]` names its dependency in the header.
            if matches!(parts.next(), Some("dependencies" | "build-dependencies")) {
                names.insert(last.to_owned());
            }
        } else if is_wanted
            && !line.starts_with('#')
            && let Some((name, _)) = line.split_once('=')
        {
            names.insert(name.trim().trim_end_matches(".workspace").to_owned());
        }
    }
    names
}

/// The module at the top of the crate that a file belongs to: `gateway` for `gateway/proxy.rs`.
fn module_of(path_in_src: &str) -> &str {
    let first = path_in_src.split('/').next().unwrap_or(path_in_src);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The modules at the top of the crate that a line names through `crate::`.
fn imported(line: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        // `$crate::` and `some_crate::` are others' names.
        if line[..at].ends_with(|before: char| before == '_' || before.is_alphanumeric()) {
            continue;
        }
        let list = rest
            .strip_prefix('{')
            .map_or(rest, |list| list.split('}').next().unwrap_or(list));
        let names = if rest.starts_with('{') {
            list.split(',').collect()
        } else {
            vec![list]
        };
        for name in names {
            let name = name.trim_start();
            let end = name
                .find(|c: char| c != '_' && !c.is_alphanumeric())
                .unwrap_or(name.len());
            modules.push(&name[..end]);
        }
    }
    modules
}

#[test]
fn the_core_depends_on_nothing_that_could_reach_outside() {
    let manifest = read("crates/inflight-core/Cargo.toml");
    let found = dependencies(&manifest);
    let foreign: Vec<String> = found
        .into_iter()
        .filter(|name| !CORE_DEPENDENCIES.contains(&name.as_str()))
        .collect();
    assert_none(
        &foreign,
        "the core may depend on slab, thiserror and tracing only",
    );
}

#[test]
fn the_messages_import_nothing_of_ours() {
    let manifest = read("crates/inflight-proto/Cargo.toml");
    let found = dependencies(&manifest);
    let known = ["prost", "tonic", "tonic-prost"];
    assert!(found.iter().eq(known), "{found:?} are not {known:?}");
    for krate in ["inflight-core", "inflight-sim"] {
        let manifest = read(&format!("crates/{krate}/Cargo.toml"));
        assert!(!manifest.contains("inflight-proto"), "{krate}");
    }
}

#[test]
fn the_simulator_imports_the_core_and_reaches_outside_no_more_than_it() {
    let manifest = read("crates/inflight-sim/Cargo.toml");
    let found = dependencies(&manifest);
    let foreign: Vec<String> = found
        .into_iter()
        .filter(|name| !SIMULATOR_DEPENDENCIES.contains(&name.as_str()))
        .collect();
    assert_none(&foreign, "the simulator has no other dependencies");
    let mut problems = Vec::new();
    for file in sources("crates/inflight-sim/src/") {
        for (number, line) in file.code() {
            for word in CORE_NEVER.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    assert_none(&problems, "the simulator is as pure as the core");
    let clippy = read("crates/inflight-sim/clippy.toml");
    let core = read("crates/inflight-core/clippy.toml");
    let bans = |text: &str| {
        between(text, "path = \"", '"')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(bans(&clippy), bans(&core));
}

#[test]
fn the_core_reads_no_clock_file_environment_and_awaits_nothing() {
    let mut problems = Vec::new();
    for file in sources("crates/inflight-core/src/") {
        for (number, line) in file.code() {
            for word in CORE_NEVER.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    assert_none(&problems, "the core is pure");
}

#[test]
fn the_core_knows_no_vendor() {
    let mut problems = Vec::new();
    for file in sources("crates/inflight-core/src/") {
        for (number, line) in file.code() {
            let line = line.to_lowercase();
            for name in VENDORS.iter().filter(|name| line.contains(**name)) {
                problems.push(format!("{}:{number}: {name}", file.path));
            }
        }
    }
    assert_none(&problems, "the core does not learn a vendor's name");
}

#[test]
fn modules_of_the_shell_follow_the_arrows() {
    let known: BTreeSet<&str> = ARROWS.iter().map(|(module, _)| *module).collect();
    let mut problems = Vec::new();
    for file in sources("crates/inflight/src/") {
        let in_src = file.path.trim_start_matches("crates/inflight/src/");
        let module = module_of(in_src);
        if module == "main" {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == module) else {
            problems.push(format!(
                "{}: module {module} is not in the table of arrows",
                file.path
            ));
            continue;
        };
        let is_top = !in_src.contains('/');
        for (number, line) in file.code() {
            let place = format!("{}:{number}", file.path);
            if line.trim_start().starts_with("use crate::{") && !line.contains('}') {
                problems.push(format!(
                    "{place}: one `use crate::…` for each module, please"
                ));
            }
            if line.contains("super::super::") || (is_top && line.contains("super::")) {
                problems.push(format!(
                    "{place}: reaches over its own module; say `crate::`"
                ));
            }
            for other in imported(line) {
                let is_module = known.contains(other);
                if is_module && other != module && !allowed.contains(&other) {
                    problems.push(format!("{place}: {module} imports {other}"));
                }
            }
        }
    }
    assert_none(&problems, "an import that ARCHITECTURE.md does not draw");
}

#[test]
fn imports_are_read_in_every_form() {
    assert_eq!(imported("use crate::fleet::{Bound, Permit};"), ["fleet"]);
    assert_eq!(
        imported("use crate::{api, control::Control};"),
        ["api", "control"]
    );
    assert_eq!(
        imported("    let at = crate::clock::Clock::start();"),
        ["clock"]
    );
    assert_eq!(
        imported("pub(crate) fn f(x: other_crate::api::X) {}"),
        [""; 0]
    );
    assert_eq!(imported("pub(in crate::targets) fn f() {}"), ["targets"]);
}

#[test]
fn dependencies_are_read_in_every_form() {
    let manifest = "[dependencies]\na.workspace = true\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\nd = { version = \"1\" }\n\
                    [dependencies.e]\nversion = \"1\"\n[lints]\nworkspace = true\n";
    let names: Vec<String> = dependencies(manifest).into_iter().collect();
    assert_eq!(names, ["a", "b", "d", "e"]);
}

#[test]
fn no_queue_is_without_a_bound() {
    let mut problems = Vec::new();
    for file in sources("crates/") {
        if file.path.ends_with("tests/it/tidy.rs") {
            continue;
        }
        for (number, line) in file.code() {
            if UNBOUNDED.iter().any(|word| line.contains(word)) {
                problems.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert_none(&problems, "a queue without a bound");
}

#[test]
fn source_files_are_small_enough_to_read() {
    let mut problems = Vec::new();
    for file in sources("crates/") {
        let count = file.text.lines().count();
        if count > LINES_MAX {
            problems.push(format!("{}: {count} lines, at most {LINES_MAX}", file.path));
        }
    }
    assert_none(&problems, "a file that does two things");
}

#[test]
fn every_module_says_first_what_it_is_for() {
    let mut problems = Vec::new();
    for file in sources("crates/") {
        if file.path.ends_with("/mod.rs") {
            problems.push(format!("{}: name the file after its module", file.path));
        }
        // The tests of a module are about what it says.
        if !file.text.starts_with("//! ") && !file.path.ends_with("/tests.rs") {
            problems.push(format!("{}: does not start with `//! `", file.path));
        }
    }
    assert_none(&problems, "a module that does not say what it is for");
}

#[test]
fn nothing_in_the_tree_is_unfinished_or_of_one_machine() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("../", "shared"),
        concat!("sub", "-agent"),
        concat!("sub", "agent"),
        concat!("anth", "ropic"),
    ];
    let mut problems = Vec::new();
    for file in files() {
        for (index, line) in file.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                problems.push(format!("{}:{}: {word}", file.path, index + 1));
            }
        }
    }
    assert_none(&problems, "a word that does not belong into the tree");
}

#[test]
fn the_bans_of_the_core_are_those_of_the_conventions() {
    let conventions = read("CONVENTIONS.md");
    let section = between(&conventions, "## What the core may not use", '#')
        .next()
        .unwrap();
    let written: BTreeSet<&str> = between(section, "`", '`')
        .filter(|path| path.starts_with("std::"))
        .collect();
    let clippy = read("crates/inflight-core/clippy.toml");
    let banned: BTreeSet<&str> = between(&clippy, "path = \"", '"').collect();
    assert_eq!(written, banned);
    assert!(banned.len() > 5, "the bans were not found");
}

#[test]
fn every_manifest_takes_the_lints_of_the_root() {
    for krate in ["inflight-core", "inflight-sim", "inflight"] {
        let manifest = read(&format!("crates/{krate}/Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{krate}");
    }
    assert!(read("Cargo.toml").contains("unsafe_code = \"forbid\""));
}
