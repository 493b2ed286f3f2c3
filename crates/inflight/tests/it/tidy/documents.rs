//! The documents say what is there.

use std::collections::BTreeSet;

use super::{assert_none, between, dependencies, files, read, root, sources};

#[test]
fn links_of_the_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for file in files()
        .into_iter()
        .filter(|file| file.path.ends_with(".md"))
    {
        let folder = root().join(&file.path).parent().unwrap().to_path_buf();
        for link in between(&file.text, "](", ')') {
            let target = link.split('#').next().unwrap_or_default();
            let is_elsewhere = target.is_empty() || target.contains("://");
            if !is_elsewhere && !folder.join(target).exists() {
                problems.push(format!("{}: {link}", file.path));
            }
        }
        for path in between(&file.text, "`", '`') {
            let is_path = ["crates/", "docs/", "config/", "bench/"]
                .iter()
                .any(|start| path.starts_with(start) && !path.contains([' ', '{', '*', '…', '<']));
            if is_path && !root().join(path).exists() {
                problems.push(format!("{}: `{path}`", file.path));
            }
        }
    }
    assert_none(&problems, "a document points at nothing");
}

#[test]
fn every_test_that_a_case_names_exists() {
    let page = read("docs/cases.md");
    let sources = sources("crates/");
    let has = |name: &str| {
        let wanted = format!("fn {name}(");
        sources.iter().any(|file| file.text.contains(&wanted))
    };
    let is_test = |name: &&str| name.starts_with('b') && name.contains('_') && !name.contains('…');
    let named: Vec<&str> = between(&page, "`", '`').filter(is_test).collect();
    assert!(named.len() > 60, "{named:?}");
    let missing: Vec<String> = (named.into_iter().filter(|name| !has(name)))
        .map(str::to_owned)
        .collect();
    assert_none(&missing, "docs/cases.md names tests that do not exist");
}

/// The module paths in the first column of the map's table for a crate.
fn mapped(map: &str, krate: &str) -> BTreeSet<String> {
    let section = map.split(&format!("### `{krate}`")).nth(1).unwrap();
    section
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_map_names_the_modules_that_there_are() {
    let map = read("ARCHITECTURE.md");
    let mut problems = Vec::new();
    for (krate, depth) in [
        ("crates/inflight-core", 1),
        ("crates/inflight-sim", 1),
        ("crates/inflight", 0),
    ] {
        let mapped = mapped(&map, krate);
        let src = format!("{krate}/src/");
        for file in sources(&src) {
            let module = file.path.trim_start_matches(&src).trim_end_matches(".rs");
            let is_door = matches!(module, "lib" | "main");
            if !is_door && module.matches('/').count() <= depth && !mapped.contains(module) {
                problems.push(format!("{} is missing", file.path));
            }
        }
        for module in mapped {
            if !root().join(format!("{src}{module}.rs")).exists() {
                problems.push(format!("{src}{module}.rs is named and not there"));
            }
        }
    }
    assert_none(&problems, "the tables of ARCHITECTURE.md");
}

#[test]
fn every_dependency_says_what_for() {
    let manifest = read("Cargo.toml").replace("[workspace.dependencies]", "[dependencies]");
    let used: BTreeSet<String> = dependencies(&manifest)
        .into_iter()
        .filter(|name| !name.starts_with("inflight-"))
        .collect();
    let conventions = read("CONVENTIONS.md");
    let table = conventions.split("## Dependencies").nth(1).unwrap();
    let written: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|names| *names != "crate")
        .flat_map(|names| names.split(", "))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        written, used,
        "CONVENTIONS.md (left) and Cargo.toml (right)"
    );
}
