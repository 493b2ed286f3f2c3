//! `simulate --suggest`: tries policies, thresholds and maxima on a load, and says which to take.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use inflight_core::scaling::ScalingConfig;
use inflight_sim::scenario::Scenario;
use inflight_sim::sweep::{self, Advice, Figures, RULES, Setting};
use inflight_sim::{Outcome, run as simulated};
use serde::Serialize;

use super::runs::{until, whole};
use super::{FIRST_SEED, SimulateArgs, recorded, scenario};
use crate::cli::check;
use crate::config::{Config, FleetConfig, Surroundings};
use crate::runtime;

/// A load, and the setting to compare with.
pub(super) struct Suggestion {
    scenario: Scenario,
    present: Option<Present>,
}

/// A setting that somebody has.
struct Present {
    config: ScalingConfig,
    /// In words.
    name: String,
}

/// What came of each setting that was tried, and of the present one.
struct Found {
    tried: Vec<(Setting, Figures)>,
    present: Option<Figures>,
    /// Seeds that everything tried was run with.
    seeds: usize,
    /// What there was no time for, in words.
    untried: Vec<String>,
}

/// Settings with what came of them, as they are printed.
#[derive(Serialize)]
struct Suggested {
    scenario: String,
    /// Seeds that everything tried was run with: fewer than were asked for where time was up.
    seeds: usize,
    present: Option<Tried>,
    tried: Vec<Tried>,
    /// What there was no time for.
    untried: Vec<String>,
    recommended: Option<usize>,
    advice: String,
}

#[derive(Serialize)]
struct Tried {
    setting: String,
    max: u32,
    #[serde(flatten)]
    figures: Figures,
    pareto: bool,
}

impl Suggestion {
    /// Reads a scenario or a journal, and the present setting.
    ///
    /// # Errors
    /// Either is wrong.
    pub(super) fn new(path: &Path, args: &SimulateArgs) -> Result<Self> {
        let is_scenario = path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "yml");
        let mut fleet = args.fleet.clone();
        let scenario = if is_scenario {
            scenario(path)?
        } else {
            let (scenario, name) = recorded::scenario(path, args.fleet.as_deref(), args.slo)?;
            fleet = Some(name);
            scenario
        };
        let present = args.config.as_deref();
        let present = present.map(|file| Present::new(file, fleet.as_deref()));
        let suggestion = Self {
            scenario,
            present: present.transpose()?,
        };
        suggestion.control(None).map(drop)?;
        Ok(suggestion)
    }

    fn bounds(&self) -> (u32, u32) {
        match &self.present {
            Some(Present { config, .. }) => (config.bounds.min().get(), config.bounds.max().get()),
            None => {
                let fleet = &self.scenario.fleet;
                (fleet.replicas_min, fleet.replicas_max)
            }
        }
    }

    /// Builds what sizes a run: a setting, or the present one.
    fn control(&self, setting: Option<Setting>) -> Result<inflight_sim::Control> {
        let base = self.present.as_ref().map(|present| &present.config);
        Ok(match (setting, base) {
            (Some(setting), base) => setting.control(&self.scenario, base)?,
            (None, Some(base)) => sweep::sized(&self.scenario, base.clone()),
            (None, None) => {
                let (rule, max) = (RULES[0], self.scenario.fleet.replicas_max);
                Setting { rule, max }.control(&self.scenario, None)?
            }
        })
    }

    fn outcome(&self, setting: Option<Setting>, seed: u64) -> Result<Outcome> {
        let outcome = simulated(&self.scenario, self.control(setting)?, seed);
        let by = setting.map_or_else(|| "the present setting".to_owned(), |one| in_words(&one));
        whole(outcome, &self.scenario, &by, seed)
    }

    /// Tries everything, for so long at most.
    fn tried(&self, seeds: u32, within: Duration) -> Result<Found> {
        let deadline = Instant::now() + within;
        let (min, max) = self.bounds();
        // With a maximum that nothing comes up to, others above what was asked for say the same.
        let largest = RULES.map(|rule| Setting {
            rule,
            max: sweep::largest(max, min),
        });
        let free = until(Some(deadline), largest.len(), |place| {
            self.outcome(Some(largest[place]), FIRST_SEED)
        })?;
        let rules = RULES.iter().skip(free.len());
        let untried: Vec<String> = rules.map(ToString::to_string).collect();
        let mut settings: Vec<Option<Setting>> = self.present.iter().map(|_| None).collect();
        for (Setting { rule, .. }, outcome) in largest.iter().zip(&free) {
            let maxima = sweep::maxima(max, min, sweep::peak(outcome)).into_iter();
            settings.extend(maxima.map(|max| Some(Setting { rule: *rule, max })));
        }
        // All with one seed before any with two.
        let count = settings.len();
        let jobs = count * seeds as usize;
        let seed = |job: usize| FIRST_SEED + u64::try_from(job / count).unwrap_or(0);
        let outcomes = until(Some(deadline), jobs, |job| {
            self.outcome(settings[job % count], seed(job))
        })?;
        let found = Found::of(settings, outcomes, untried);
        if found.tried.is_empty() {
            bail!("no setting could be tried within {within:?}");
        }
        Ok(found)
    }
}

impl Found {
    /// Gathers the outcomes of the settings in turn, as far as they were tried.
    fn of(
        settings: Vec<Option<Setting>>,
        outcomes: Vec<Outcome>,
        mut untried: Vec<String>,
    ) -> Self {
        let mut of_each: Vec<Vec<Outcome>> = settings.iter().map(|_| Vec::new()).collect();
        for (job, outcome) in outcomes.into_iter().enumerate() {
            of_each[job % settings.len()].push(outcome);
        }
        let runs = of_each.iter().map(Vec::len).filter(|&runs| runs > 0);
        let seeds = runs.min().unwrap_or(0);
        let (mut tried, mut present) = (Vec::new(), None);
        for (setting, outcomes) in settings.into_iter().zip(&of_each) {
            match (setting, Figures::of(outcomes)) {
                (Some(setting), Some(figures)) => tried.push((setting, figures)),
                (None, figures) => present = figures,
                (Some(setting), None) => untried.push(in_words(&setting)),
            }
        }
        Self {
            tried,
            present,
            seeds,
            untried,
        }
    }
}

impl Present {
    fn new(file: &Path, name: Option<&str>) -> Result<Self> {
        let config = Config::load(file, &Surroundings::Elsewhere)?;
        let fleets: BTreeMap<&str, &FleetConfig> = (config.fleets.iter())
            .map(|fleet| (fleet.name.as_str(), fleet))
            .collect();
        let names = || fleets.keys().copied().collect::<Vec<_>>().join(", ");
        let fleet = match (name, config.fleets.as_slice()) {
            (Some(name), _) => *fleets.get(name).with_context(|| {
                format!(
                    "{}: there is no fleet {name}, but {}",
                    file.display(),
                    names()
                )
            })?,
            (None, [only]) => only,
            (None, _) => bail!("{}: say which by --fleet: {}", file.display(), names()),
        };
        let policy = check::policy(&fleet.scaling.policy);
        Ok(Self {
            config: runtime::sizing(fleet)?,
            name: format!("{policy}, max: {}", fleet.replicas_max),
        })
    }
}

/// Tries and prints.
///
/// # Errors
/// A run broke an identity, or nobody takes the result.
pub(super) fn run(suggestions: &[Suggestion], args: &SimulateArgs) -> Result<()> {
    let share = args.within / u32::try_from(suggestions.len()).unwrap_or(u32::MAX).max(1);
    let mut all = Vec::new();
    for suggestion in suggestions {
        let found = suggestion.tried(args.seeds, share)?;
        all.push(suggested(suggestion, found));
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &all)?;
        writeln!(out)?;
    } else {
        let texts: Vec<String> = all.iter().map(text).collect();
        out.write_all(texts.join("\n").as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn suggested(suggestion: &Suggestion, found: Found) -> Suggested {
    let Found {
        mut tried,
        present,
        seeds,
        untried,
    } = found;
    tried.sort_by(|(_, one), (_, other)| one.replica_minutes.total_cmp(&other.replica_minutes));
    let mut figures: Vec<Figures> = tried.iter().map(|(_, figures)| *figures).collect();
    let advice = sweep::advise(&figures, present.as_ref());
    figures.extend(present);
    let front = sweep::front(&figures);
    let words = advice.map_or_else(String::new, |advice| {
        in_sentences(
            advice,
            &tried,
            present.as_ref().zip(suggestion.present.as_ref()),
        )
    });
    let recommended = advice.and_then(|advice| match advice {
        Advice::Cheaper(place) | Advice::Better(place) | Advice::Cheapest(place) => Some(place),
        Advice::Keep => None,
    });
    let present = present.zip(suggestion.present.as_ref());
    Suggested {
        scenario: suggestion.scenario.name.clone(),
        seeds,
        present: present.map(|(figures, present)| Tried {
            setting: present.name.clone(),
            max: present.config.bounds.max().get(),
            figures,
            pareto: front.last().copied().unwrap_or(false),
        }),
        tried: (tried.iter().zip(&front))
            .map(|((setting, figures), pareto)| Tried {
                setting: setting.rule.to_string(),
                max: setting.max,
                figures: *figures,
                pareto: *pareto,
            })
            .collect(),
        untried,
        recommended,
        advice: words,
    }
}

fn in_words(setting: &Setting) -> String {
    format!("{}, max: {}", setting.rule, setting.max)
}

/// Says what to take, what it costs, and what it saves.
fn in_sentences(
    advice: Advice,
    tried: &[(Setting, Figures)],
    present: Option<(&Figures, &Present)>,
) -> String {
    let place = match advice {
        Advice::Cheaper(place) | Advice::Better(place) | Advice::Cheapest(place) => place,
        Advice::Keep => {
            return "Keep the present setting: none that was tried costs less and serves as well, \
                    or serves better and costs no more."
                .to_owned();
        }
    };
    let Some((setting, figures)) = tried.get(place) else {
        return String::new();
    };
    let mut out = format!("Take `{}`: {}.", in_words(setting), of_figures(figures));
    if let Some((before, Present { name, .. })) = present {
        let saved = before.replica_minutes - figures.replica_minutes;
        let percent = 100.0 * saved / before.replica_minutes;
        let gain = match advice {
            Advice::Better(_) => "serves better and costs no more",
            Advice::Cheaper(_) | Advice::Keep | Advice::Cheapest(_) => {
                "serves as well and costs less"
            }
        };
        out.push_str(&format!(
            " Against the present `{name}` ({}) it {gain}: {saved:.1} replica-minutes less \
             ({percent:.0} %).",
            of_figures(before)
        ));
    } else {
        out.push_str(
            " It is the cheapest of those with no more than a percent of violations above the least.",
        );
    }
    out
}

fn of_figures(figures: &Figures) -> String {
    let p99 = figures
        .p99
        .map_or_else(|| "unknown".to_owned(), |p99| format!("{p99:.3} s"));
    format!(
        "{:.1} replica-minutes, p99 {p99}, {:.2} % violations",
        figures.replica_minutes, figures.violations
    )
}

fn text(suggested: &Suggested) -> String {
    let Suggested {
        scenario,
        seeds,
        present,
        tried,
        untried,
        advice,
        ..
    } = suggested;
    let on_front = tried.iter().filter(|one| one.pareto).count();
    let mut out = format!(
        "{scenario}: {} settings tried with {seeds} {}; of these {on_front} are on the Pareto \
         front:\n",
        tried.len(),
        if *seeds == 1 { "seed" } else { "seeds" }
    );
    out.push_str(&row([
        "setting",
        "max",
        "replica-min",
        "p99 s",
        "viol %",
        "",
    ]));
    let shown = grouped(tried.iter().filter(|one| one.pareto));
    let present = present.iter().map(|one| (one, "present".to_owned()));
    for (one, note) in shown.into_iter().chain(present) {
        let p99 = one
            .figures
            .p99
            .map_or_else(|| "-".to_owned(), |p99| format!("{p99:.3}"));
        let (max, cost) = (
            one.max.to_string(),
            format!("{:.1}", one.figures.replica_minutes),
        );
        let violations = format!("{:.2}", one.figures.violations);
        out.push_str(&row([&one.setting, &max, &cost, &p99, &violations, &note]));
    }
    if !untried.is_empty() {
        let untried = untried.join("; ");
        out.push_str(&format!(
            "There was no time for {untried}. --within gives more.\n"
        ));
    }
    out.push_str(advice);
    out.push('\n');
    out
}

/// Keeps the first of those with the same figures, and notes the others beside it.
fn grouped<'a>(tried: impl Iterator<Item = &'a Tried>) -> Vec<(&'a Tried, String)> {
    let mut groups: Vec<(&Tried, String)> = Vec::new();
    for one in tried {
        let same = groups
            .iter_mut()
            .find(|(first, _)| first.figures == one.figures);
        let Some((_, note)) = same else {
            groups.push((one, String::new()));
            continue;
        };
        note.push_str(if note.is_empty() { "the same: " } else { "; " });
        note.push_str(&format!("{}, max: {}", one.setting, one.max));
    }
    groups
}

fn row([setting, max, cost, p99, violations, note]: [&str; 6]) -> String {
    let text = format!("{setting:<38} {max:>5} {cost:>11} {p99:>9} {violations:>8} {note}");
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use inflight_sim::scenario::parse;

    use super::*;

    fn tried(setting: &str, replica_minutes: f64) -> Tried {
        let figures = Figures {
            replica_minutes,
            p99: Some(1.0),
            violations: 0.0,
        };
        Tried {
            setting: setting.to_owned(),
            max: 4,
            figures,
            pareto: true,
        }
    }

    #[test]
    fn settings_with_the_same_figures_are_one_line_and_what_was_not_tried_is_named() {
        let mut suggested = Suggested {
            scenario: "steady".to_owned(),
            seeds: 1,
            present: None,
            tried: vec![tried("a", 2.0), tried("b", 2.0), tried("c", 3.0)],
            untried: vec!["d, max: 4".to_owned()],
            recommended: None,
            advice: "Take it.".to_owned(),
        };
        let shown = text(&suggested);
        assert_eq!(shown.lines().count(), 6, "{shown}");
        assert!(shown.contains("3 settings tried with 1 seed; "), "{shown}");
        assert!(shown.contains(" the same: b, max: 4\n"), "{shown}");
        let untried = "There was no time for d, max: 4. --within gives more.\n";
        assert!(shown.contains(untried), "{shown}");
        suggested.untried.clear();
        assert!(!text(&suggested).contains("no time"));
    }

    #[test]
    fn what_a_deadline_cut_is_not_said_to_be_done() {
        let text = "\
            name: small\nabout: A few.\nduration: 20s\n\
            fleet: { replicas: { start: 1, min: 1, max: 2 }, start: { delay: 1s } }\n\
            models: [{ name: only, slots: 1, service: { constant: 10ms }, slo: 10ms }]\n\
            load: [{ steps: { points: [{ at: 0s, rate: 5 }] } }]\n";
        let scenario = parse(text, &|_| Err("no trace".to_owned())).unwrap();
        let suggestion = Suggestion {
            scenario,
            present: None,
        };
        let setting = |max| Setting {
            rule: RULES[0],
            max,
        };
        let [one, two, three] = [1, 2, 3].map(setting);
        let outcome = |setting| suggestion.outcome(Some(setting), FIRST_SEED).unwrap();
        // One of three was not tried, and no second seed was begun.
        let settings = vec![Some(one), Some(two), Some(three)];
        let outcomes = vec![outcome(one), outcome(two)];
        let found = Found::of(settings.clone(), outcomes, vec!["a rule".to_owned()]);
        assert_eq!((found.seeds, found.tried.len()), (1, 2));
        assert_eq!(found.untried, ["a rule".to_owned(), in_words(&three)]);
        // The second seed was cut.
        let outcomes = [one, two, three, one].map(outcome).to_vec();
        let found = Found::of(settings, outcomes, Vec::new());
        assert_eq!((found.seeds, found.tried.len()), (1, 3));
        assert_eq!(found.untried, [""; 0]);
    }
}
