//! A report as a table of text.

use std::fmt;

use super::{Report, Row};

/// The columns, with their widths.
const COLUMNS: [(&str, usize); 13] = [
    ("policy", 19),
    ("replica-min", 11),
    ("[range]", 13),
    ("beyond/M", 9),
    ("in SLO/min", 10),
    ("wall s", 7),
    ("p50 s", 8),
    ("p90 s", 8),
    ("p99 s", 8),
    ("viol %", 7),
    ("refused", 8),
    ("changes", 7),
    ("Pareto", 6),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scenario,
            about,
            seeds,
            ..
        } = self;
        match seeds {
            1 => writeln!(f, "{scenario}: {about} One seed.")?,
            _ => writeln!(f, "{scenario}: {about} Medians of {seeds} seeds.")?,
        }
        line(f, COLUMNS.map(|(name, _)| name.to_owned()))?;
        for row in &self.rows {
            line(f, fields(row))?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, fields: [String; 13]) -> fmt::Result {
    let mut text = String::new();
    for (place, (field, (_, width))) in fields.iter().zip(COLUMNS).enumerate() {
        if place == 0 {
            text.push_str(&format!("{field:<width$}"));
        } else {
            text.push_str(&format!(" {field:>width$}"));
        }
    }
    writeln!(f, "{}", text.trim_end())
}

fn fields(row: &Row) -> [String; 13] {
    let (least, most) = row.replica_minutes_range;
    let optional = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let pareto = row.pareto.map(|is_on| if is_on { "yes" } else { "no" });
    [
        row.policy.to_owned(),
        format!("{:.1}", row.replica_minutes),
        format!("[{least:.0}-{most:.0}]"),
        optional(row.beyond_need, 0),
        optional(row.within_slo_per_minute, 0),
        optional(row.wall, 0),
        seconds(row.p50),
        seconds(row.p90),
        seconds(row.p99),
        format!("{:.2}", row.violations),
        format!("{:.0}", row.refused),
        format!("{:.0}", row.changes),
        pareto.unwrap_or("-").to_owned(),
    ]
}

/// Three digits that say something.
fn seconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.3}"),
        Some(value) => format!("{value:.1}"),
    }
}
