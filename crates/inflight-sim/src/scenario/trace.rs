//! Requests from a table of comma-separated values, one a line, as recorded traffic comes.

use serde::Deserialize;

use super::error::ScenarioError;
use super::loads::TraceRow;

/// Which columns say what, by their names in the first line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceColumns {
    /// When a request arrives. *Units*: seconds.
    pub at: String,
    /// How long it executes. *Units*: seconds.
    #[serde(default)]
    pub work: Option<String>,
    /// Columns whose values, times seconds each, add up to how long it executes.
    #[serde(default)]
    pub work_by: Vec<WorkBy>,
}

/// A column of sizes, and how long each unit of them takes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkBy {
    /// The column.
    pub column: String,
    /// What each unit takes. *Units*: seconds.
    pub seconds: f64,
}

/// Reads the requests of a trace.
///
/// # Errors
///
/// A column is missing, a field is no number or negative, times are out of order, the last line
/// is cut, or there is no request.
pub fn read_trace(
    file: &str,
    text: &str,
    columns: &TraceColumns,
    model: Option<usize>,
) -> Result<Vec<TraceRow>, ScenarioError> {
    let wrong = |line: usize, what: String| ScenarioError::Trace {
        file: file.to_owned(),
        line: u64::try_from(line).unwrap_or(u64::MAX),
        what,
    };
    let mut lines = text.lines().enumerate();
    let names: Vec<&str> = match lines.next() {
        Some((_, first)) if !first.trim().is_empty() => first.split(',').map(str::trim).collect(),
        Some(_) | None => return Err(wrong(1, "the trace is empty".to_owned())),
    };
    let place = |name: &str| {
        let found = names.iter().position(|&other| other == name);
        let known = names.join(", ");
        found.ok_or_else(|| wrong(1, format!("there is no column `{name}`, only {known}")))
    };
    let at = place(&columns.at)?;
    let work = columns.work.as_deref().map(place).transpose()?;
    let parts: Vec<(usize, f64)> = columns
        .work_by
        .iter()
        .map(|part| place(&part.column).map(|column| (column, part.seconds)))
        .collect::<Result<_, _>>()?;
    let mut rows: Vec<TraceRow> = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != names.len() {
            let (has, needs) = (fields.len(), names.len());
            return Err(wrong(
                number,
                format!("the line has {has} fields, allowed is {needs}: is it cut?"),
            ));
        }
        let field = |column: usize| match fields[column].parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
            Ok(_) | Err(_) => {
                let (name, value) = (names[column], fields[column]);
                let what = format!("{name} is `{value}`, allowed is a number from 0");
                Err(wrong(number, what))
            }
        };
        let row = TraceRow {
            at: field(at)?,
            work: work_of(work, &parts, field)?,
            model,
        };
        if rows.last().is_some_and(|last| last.at > row.at) {
            let what = format!("{} is before the line above: times are in order", row.at);
            return Err(wrong(number, what));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(wrong(2, "the trace has no request".to_owned()));
    }
    Ok(rows)
}

fn work_of(
    work: Option<usize>,
    parts: &[(usize, f64)],
    field: impl Fn(usize) -> Result<f64, ScenarioError>,
) -> Result<Option<f64>, ScenarioError> {
    if work.is_none() && parts.is_empty() {
        return Ok(None);
    }
    let mut sum = work.map_or(Ok(0.0), &field)?;
    for &(column, seconds) in parts {
        sum += seconds * field(column)?;
    }
    Ok(Some(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> TraceColumns {
        TraceColumns {
            at: "t_s".to_owned(),
            work: None,
            work_by: vec![
                WorkBy {
                    column: "in".to_owned(),
                    seconds: 0.001,
                },
                WorkBy {
                    column: "out".to_owned(),
                    seconds: 0.02,
                },
            ],
        }
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = read_trace("a.csv", text, &columns(), None).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn sizes_become_work() {
        let rows = read_trace(
            "a.csv",
            "t_s,in,out\n0,1000,50\n2.5,0,100\n",
            &columns(),
            None,
        );
        let works: Vec<_> = rows.unwrap().iter().map(|row| (row.at, row.work)).collect();
        assert_eq!(works, [(0.0, Some(2.0)), (2.5, Some(2.0))]);
    }

    #[test]
    fn a_wrong_trace_says_the_line() {
        refused("", "trace a.csv, line 1: the trace is empty");
        refused(
            "t_s,in,out\n",
            "trace a.csv, line 2: the trace has no request",
        );
        refused(
            "t_s,in\n1,2\n",
            "trace a.csv, line 1: there is no column `out`, only t_s, in",
        );
        refused(
            "t_s,in,out\n1,1,1\n2,1",
            "trace a.csv, line 3: the line has 2 fields, allowed is 3: is it cut?",
        );
        refused(
            "t_s,in,out\n5,1,1\n4,1,1\n",
            "trace a.csv, line 3: 4 is before the line above: times are in order",
        );
        refused(
            "t_s,in,out\n5,-1,1\n",
            "trace a.csv, line 2: in is `-1`, allowed is a number from 0",
        );
        refused(
            "t_s,in,out\n5,1,x\n",
            "trace a.csv, line 2: out is `x`, allowed is a number from 0",
        );
    }
}
