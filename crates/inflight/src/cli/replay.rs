//! `inflight replay`: gives a journal's readings to the scaler again, and says what comes out
//! otherwise.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use super::USAGE;
use crate::config::{Config, Surroundings};
use crate::replay::source::{Next, Place, Source};
use crate::replay::{By, Difference, Replay, Tally};
use crate::runtime;

/// Things worth knowing that are told one by one; a long journal may have many.
const NOTES: usize = 20;

/// Decides again what a journal has recorded, and prints the differences.
#[derive(Clone, Debug, Args)]
pub(super) struct ReplayArgs {
    /// The journal; with `.1` behind its name its predecessor is read first, where there is one.
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Decide by this configuration instead of the recorded one.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// How a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    /// The recorded configuration decides otherwise.
    Differs,
    Unreadable,
}

/// Replays and prints; returns the exit code: 0 the same, or compared with another configuration;
/// 1 decided otherwise by the recorded configuration; 2 unreadable.
#[must_use]
pub(super) fn run(args: &ReplayArgs) -> ExitCode {
    let replayed = replay(args).and_then(|(replay, end)| {
        let name = args.config.as_ref().map(|path| path.display().to_string());
        let mut out = io::stdout().lock();
        out.write_all(report(&replay, name.as_deref()).as_bytes())?;
        out.flush()?;
        Ok(end)
    });
    match replayed {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Differs) => ExitCode::FAILURE,
        Ok(End::Unreadable) => ExitCode::from(USAGE),
        Err(error) => {
            tell(format_args!("{error:#}"));
            ExitCode::from(USAGE)
        }
    }
}

fn replay(args: &ReplayArgs) -> Result<(Replay, End)> {
    let by = match &args.config {
        Some(path) => By::Other(sizings(path)?),
        None => By::Recorded,
    };
    let is_other = args.config.is_some();
    let mut source = Source::open(&args.journal)?;
    let mut replay = Replay::new(by);
    let mut notes = Notes::default();
    loop {
        let next = match source.read_on() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(error) => {
                tell(format_args!("{}: {error}", at(source.place())));
                return Ok((replay, End::Unreadable));
            }
        };
        let place = source.place();
        match next {
            Next::File => replay.file_begins(),
            Next::Cut => {
                replay.gap();
                notes.tell(place, &"the line is cut, by a crash or a full disk");
            }
            Next::Line(line, unknown) => {
                if let Some(field) = unknown {
                    notes.tell_unknown(place, field);
                }
                match replay.take(place, &line) {
                    Ok(None) => {}
                    Ok(Some(note)) => notes.tell(place, &note),
                    Err(fault) => {
                        tell(format_args!("{}: {fault}", at(place)));
                        return Ok((replay, End::Unreadable));
                    }
                }
            }
        }
    }
    notes.end();
    let (mut compared, mut differing) = (0, 0);
    for (_, tally) in replay.tallies() {
        compared += tally.compared;
        differing += tally.differing;
    }
    let end = if compared == 0 {
        let place = source.place();
        tell(format_args!(
            "{}: no decision can be compared: the journal has none, or does not say what the \
             scaler knew before",
            place.file
        ));
        End::Unreadable
    } else if differing > 0 && !is_other {
        End::Differs
    } else {
        End::Done
    };
    Ok((replay, end))
}

/// Reads how a configuration sizes its fleets.
fn sizings(
    path: &std::path::Path,
) -> Result<BTreeMap<String, inflight_core::scaling::ScalingConfig>> {
    let config = Config::load(path, &Surroundings::Elsewhere)?;
    let fleets = config.fleets.iter().map(|fleet| {
        let sizing = runtime::sizing(fleet);
        let sizing = sizing.with_context(|| format!("{}: fleet {}", path.display(), fleet.name))?;
        Ok((fleet.name.clone(), sizing))
    });
    fleets.collect()
}

/// What is told beside the result.
#[derive(Debug, Default)]
struct Notes {
    told: usize,
    unknown: Vec<String>,
}

impl Notes {
    fn tell(&mut self, place: &Place, note: &dyn fmt::Display) {
        self.told += 1;
        if self.told <= NOTES {
            tell(format_args!("{}: {note}", at(place)));
        }
    }

    /// A field is told once.
    fn tell_unknown(&mut self, place: &Place, field: String) {
        if self.unknown.len() < NOTES && !self.unknown.contains(&field) {
            self.tell(
                place,
                &format_args!("the field `{field}` is not known and says nothing here"),
            );
            self.unknown.push(field);
        }
    }

    fn end(&self) {
        if let Some(more) = self.told.checked_sub(NOTES).filter(|&more| more > 0) {
            tell(format_args!("{more} more lines are of note"));
        }
    }
}

fn at(place: &Place) -> String {
    format!("{}, line {}", place.file, place.line)
}

/// Says something beside the result; a terminal that is gone does not matter.
fn tell(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr(), "{text}"));
}

fn report(replay: &Replay, other: Option<&str>) -> String {
    let mut out = String::new();
    let tallies = replay.tallies();
    // Of a fleet that is left out, or never decided, there is nothing to say.
    for (fleet, tally) in tallies.filter(|(_, tally)| tally.compared + tally.skipped > 0) {
        write_fleet(&mut out, fleet, tally, other).expect("nothing in a string fails");
    }
    out
}

fn write_fleet(out: &mut String, fleet: &str, tally: &Tally, other: Option<&str>) -> fmt::Result {
    let Tally {
        compared,
        differing,
        skipped,
        first,
        recorded_replica_seconds: recorded,
        again_replica_seconds: again,
        ..
    } = tally;
    match differing {
        0 => write!(out, "{fleet}: all {compared} decisions are the same")?,
        _ => write!(out, "{fleet}: {differing} of {compared} decisions differ")?,
    }
    match other {
        Some(other) => {
            write!(
                out,
                "; {recorded:.1} replica-seconds recorded, {again:.1} by {other}"
            )?;
            if *recorded > 0.0 {
                write!(out, " ({:+.1} %)", 100.0 * (again / recorded - 1.0))?;
            }
        }
        None => write!(out, "; {recorded:.1} replica-seconds")?,
    }
    if *skipped > 0 {
        write!(
            out,
            "; {skipped} not compared, as lines before them are missing"
        )?;
    }
    writeln!(out)?;
    let by = other.map_or_else(|| "again".to_owned(), |other| format!("by {other}"));
    for difference in first {
        write_difference(out, difference, &by)?;
    }
    let more = differing.saturating_sub(u64::try_from(first.len()).unwrap_or(u64::MAX));
    if more > 0 {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

fn write_difference(out: &mut String, difference: &Difference, by: &str) -> fmt::Result {
    let Difference {
        file,
        line,
        time,
        recorded,
        again,
    } = difference;
    writeln!(out, "  {time} ({file}, line {line})")?;
    writeln!(
        out,
        "    recorded {}: {}",
        recorded.desired, recorded.reason
    )?;
    writeln!(out, "    {by} {}: {}", again.desired, again.reason)?;
    if recorded.desired == again.desired && recorded.reason == again.reason {
        writeln!(out, "    {}", what_differs(recorded, again))?;
    }
    Ok(())
}

/// Says what differs where the size and the reason do not.
fn what_differs(
    recorded: &crate::story::wire::Decision,
    again: &crate::story::wire::Decision,
) -> String {
    let inputs = recorded.inputs.iter().zip(&again.inputs);
    let input = inputs.clone().find(|(recorded, again)| recorded != again);
    if let Some(((name, recorded), (_, again))) = input {
        let text = |number| serde_json::to_string(number).unwrap_or_default();
        return format!("{name} was {} and is {}", text(recorded), text(again));
    }
    let fields = [
        ("current", recorded.current != again.current),
        ("wanted", recorded.wanted != again.wanted),
        ("drain", recorded.drain != again.drain),
        ("at_max", recorded.at_max != again.at_max),
    ];
    let differing = fields.iter().filter(|(_, differs)| *differs);
    let names: Vec<&str> = differing.map(|(name, _)| *name).collect();
    format!("differs in {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_fleet_that_is_left_out_nothing_is_reported() {
        let line = r#"{"v":2,"run":1,"time":"t","at":1,"fleet":"hello","kind":"config","config":{
            "policy":{"name":"metric","target":1.0,"value":false},"min":1,"max":9,
            "down_window":null,"tolerance":0.0,"step_up":null,"step_down":null,"idle_grace":0,
            "unknown_hold":0,"unknown_fallback":null,"freshness":0,"slots":[4]}}"#;
        let place = Place {
            file: "journal.jsonl".into(),
            line: 1,
        };
        let mut replay = Replay::new(By::Other(BTreeMap::new()));
        let line = serde_json::from_str(line).unwrap();
        assert!(replay.take(&place, &line).unwrap().is_some());
        assert_eq!(report(&replay, Some("other.yaml")), "");
    }
}
