//! The page of `simulate --html`: one file that needs nothing else, with its data inside.
//!
//! The tables are plain HTML; a script draws the charts. Whatever a scenario says is text.

use anyhow::Result;
use inflight_sim::{Change, Report, Row, Timeline};
use serde::Serialize;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Changes of the size that are listed, over all runs of the page: a few megabytes of reasons.
const CHANGES_MAX: usize = 20_000;
/// However many runs there are, each lists so many.
const CHANGES_MIN: usize = 20;

/// One policy's run of one scenario.
pub(super) struct Recorded {
    pub(super) policy: &'static str,
    pub(super) timeline: Timeline,
}

#[derive(Serialize)]
struct Data<'a> {
    /// As `--json` prints them.
    reports: &'a [Report],
    /// Of each report, a run of each policy.
    timelines: Vec<Vec<Run>>,
}

#[derive(Serialize)]
struct Run {
    policy: &'static str,
    changes_total: usize,
    #[serde(flatten)]
    timeline: Timeline,
}

/// Writes the page.
///
/// # Errors
/// The data cannot be written as JSON.
pub(super) fn page(reports: &[Report], recorded: Vec<Vec<Recorded>>, seed: u64) -> Result<String> {
    let runs = recorded.iter().map(Vec::len).sum::<usize>().max(1);
    let changes_max = (CHANGES_MAX / runs).max(CHANGES_MIN);
    let timelines = recorded.into_iter().map(|runs| {
        let runs = runs.into_iter().map(|run| bounded(run, changes_max));
        runs.collect()
    });
    let data = Data {
        reports,
        timelines: timelines.collect(),
    };
    // Inside of a script element only `<` could end it.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let mut sections = String::new();
    for (place, report) in reports.iter().enumerate() {
        section(&mut sections, place, report, seed);
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>inflight simulate</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>inflight simulate</h1>\n<svg hidden></svg>\n<main>\n{sections}</main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    ))
}

fn bounded(run: Recorded, changes_max: usize) -> Run {
    let Recorded {
        policy,
        mut timeline,
    } = run;
    let changes_total = timeline.changes.len();
    timeline.changes.truncate(changes_max);
    let Timeline {
        arrivals,
        in_flight,
        p50,
        p99,
        ready,
        changes,
        ..
    } = &mut timeline;
    let certain = [arrivals, in_flight, ready].into_iter().flatten();
    let uncertain = [p50, p99].into_iter().flatten().flatten();
    let times = changes.iter_mut().map(|Change { at, .. }| at);
    certain.chain(uncertain).chain(times).for_each(round);
    Run {
        policy,
        changes_total,
        timeline,
    }
}

/// Five digits are finer than any screen.
fn round(value: &mut f64) {
    if let Ok(rounded) = format!("{value:.4e}").parse() {
        *value = rounded;
    }
}

fn section(out: &mut String, place: usize, report: &Report, seed: u64) {
    let Report {
        scenario,
        about,
        seeds,
        rows,
    } = report;
    let (name, about) = (escaped(scenario), escaped(about));
    let medians = match seeds {
        1 => "one seed".to_owned(),
        _ => format!("medians of {seeds} seeds"),
    };
    out.push_str(&format!(
        "<section aria-labelledby=\"name-{place}\">\n<h2 id=\"name-{place}\">{name}</h2>\n\
         <p>{about}</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" \
         aria-label=\"figures of {name}\">\n<table>\n<caption class=\"faint\">{medians}</caption>\n\
         <thead><tr>"
    ));
    for (name, _) in COLUMNS {
        out.push_str(&format!("<th scope=\"col\">{name}</th>"));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        out.push_str(&format!("<th scope=\"row\">{}</th>", escaped(row.policy)));
        for (_, figure) in &COLUMNS[1..] {
            out.push_str(&format!("<td>{}</td>", figure(row)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str(&format!(
        "</tbody>\n</table>\n</div>\n<p class=\"faint\">Over time, seed {seed}:</p>\n\
         <div id=\"charts-{place}\"></div>\n</section>\n"
    ));
}

/// A column's name, and what it says of a row.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 9] = [
    ("policy", |row| row.policy.to_owned()),
    ("replica-minutes", |row| {
        format!("{:.1}", row.replica_minutes)
    }),
    ("violations %", |row| format!("{:.2}", row.violations)),
    ("p50 s", |row| seconds(row.p50)),
    ("p90 s", |row| seconds(row.p90)),
    ("p99 s", |row| seconds(row.p99)),
    ("refused", |row| format!("{:.0}", row.refused)),
    ("changes", |row| format!("{:.0}", row.changes)),
    ("Pareto", |row| match row.pareto {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "–".to_owned(),
    }),
];

fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
}

/// Text that is no markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
