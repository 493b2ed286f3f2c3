//! The reference page of the configuration, made from the declarations in `raw`.

use super::raw::File;
use super::section::{Absent, KeyDoc, SectionDoc};
use super::setting::Setting;

/// Returns the reference page, in Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut sections = Vec::new();
    File::describe("", &mut sections);
    let mut page = String::from(INTRODUCTION);
    for section in &sections {
        write_section(section, &mut page);
    }
    page
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Made from crates/inflight/src/config/raw.rs; a test keeps it so (UPDATE=1 writes it). -->

inflight reads one YAML file, `inflight.yaml` unless `-c` or `INFLIGHT_CONFIG` names another.
`inflight check` says what is wrong with it: every error at once, each with its line, and exit
code 2. An unknown key is an error.

- A duration is a number and a unit: `ms`, `s`, `m`, `h` or `d`, such as `100ms` or `1.5s`.
- A size is a number and a unit: `B`, `KB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB`
  (powers of 1024).
- `[]` in a path stands for each item of a list.

Examples are in [`config/`](../config).
";

/// How the kinds of sections begin.
const SECTION: &str = "a mapping with `";

fn write_section(section: &SectionDoc, page: &mut String) {
    let title = if section.path.is_empty() {
        "The file"
    } else {
        &section.path
    };
    page.push_str(&format!(
        "\n## {}\n\n{}\n",
        code(title, &section.path),
        section.doc
    ));
    page.push_str("\n| key | default | allowed | meaning |\n|---|---|---|---|\n");
    for key in &section.keys {
        write_key(key, page);
    }
    if !section.later.is_empty() {
        let later: Vec<String> = section.later.iter().map(|key| format!("`{key}`")).collect();
        page.push_str(&format!(
            "\nNot built in this version: {}.\n",
            later.join(", ")
        ));
    }
}

fn write_key(key: &KeyDoc, page: &mut String) {
    let default = match key.absent {
        Absent::Required => "required".to_owned(),
        Absent::Unset => "unset".to_owned(),
        Absent::Default("{}") if key.allowed.contains(SECTION) => "each key's own".to_owned(),
        Absent::Default(value) => format!("`{value}`"),
        Absent::Computed(words) => words.to_owned(),
    };
    // A section's keys have a table of their own.
    let allowed = match key.allowed.split_once(SECTION) {
        Some((before, _)) => format!("{before}a mapping, see below"),
        None => key.allowed.clone(),
    };
    let (allowed, meaning) = (cell(&allowed), cell(&key.doc));
    page.push_str(&format!(
        "| `{}` | {default} | {allowed} | {meaning} |\n",
        key.name
    ));
}

fn code(title: &str, path: &str) -> String {
    if path.is_empty() {
        title.to_owned()
    } else {
        format!("`{title}`")
    }
}

/// Writes text so that it stays in its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
