//! From keys to settings: what keys mean together, and everything that is wrong about that.
//!
//! Single values were judged when they were read; a key that was wrong there is `None` here and is
//! left out of comparisons, so that one slip gives one error.

mod advice;
mod endpoints;
mod fleet;
mod gate;
mod measured;
mod models;
mod peers;
mod policy;
mod publish;
mod scaling;
mod target;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::error::{Located, Place, Problem, Problems};
use super::setting::{Or, Setting};
use super::{AdminConfig, Config, FleetConfig, JournalSettings, Surroundings, document, raw};

/// Judges a text; the errors come in the order of the file.
pub(super) fn resolve(text: &str, surroundings: &Surroundings) -> Result<Config, Vec<Problem>> {
    let root = document::parse(text).map_err(|problem| vec![problem])?;
    let mut problems = Problems::default();
    let resolved = raw::File::read(&root, &(), &mut problems)
        .and_then(|file| resolve_file(&file, surroundings, &mut problems));
    let Problems {
        mut errors,
        mut warnings,
    } = problems;
    errors.sort_by_key(|problem| (problem.place.line, problem.place.column));
    warnings.sort_by_key(|problem| (problem.place.line, problem.place.column));
    match resolved {
        Some((admin, state_dir, journal, fleets)) if errors.is_empty() => Ok(Config {
            admin,
            state_dir,
            journal,
            fleets,
            warnings,
        }),
        Some(_) | None => Err(errors),
    }
}

/// What a file says: the admin API, the folder of what outlives us, the journal, the fleets.
type Resolved = (
    AdminConfig,
    Option<PathBuf>,
    Option<JournalSettings>,
    Vec<FleetConfig>,
);

fn resolve_file(
    file: &raw::File,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<Resolved> {
    let admin = file
        .admin
        .as_ref()
        .and_then(|admin| resolve_admin(&admin.value, surroundings, problems));
    let Some(raw_fleets) = &file.fleets else {
        return None;
    };
    check_names(&raw_fleets.value, problems);
    check_listeners(file, problems);
    check_keeping(file, problems);
    publish::check_files(file, problems);
    let fleets: Vec<Option<FleetConfig>> = raw_fleets
        .value
        .iter()
        .map(|fleet| fleet::resolve_fleet(fleet, surroundings, problems))
        .collect();
    // One version so far; a wrong one has been reported.
    file.version.as_ref()?;
    let state_dir = file
        .state
        .as_ref()
        .and_then(|state| state.value.dir.as_ref());
    let state_dir = state_dir.map(|dir| PathBuf::from(&dir.value));
    let journal = match &file.journal {
        Some(journal) => Some(resolve_journal(&journal.value)?),
        None => None,
    };
    Some((
        admin?,
        state_dir,
        journal,
        fleets.into_iter().collect::<Option<_>>()?,
    ))
}

/// Reports each fleet whose replicas would be left where nobody finds them.
fn check_keeping(file: &raw::File, problems: &mut Problems) {
    if file.state.is_some() {
        return;
    }
    for fleet in file.fleets.iter().flat_map(|fleets| &fleets.value) {
        let target = fleet.target.as_ref().map(|target| &target.value);
        let Some(Or::Value(keys)) = target else {
            continue;
        };
        let process = keys.process.as_ref();
        let on_exit = process.and_then(|process| process.value.on_exit.as_ref());
        if let Some(on_exit) = on_exit.filter(|on_exit| on_exit.value.0 == raw::OnExit::Keep) {
            problems.refuse(
                &on_exit.place,
                "keep needs `state: { dir: … }`, where the next inflight finds the replicas",
                "`stop`, or `keep` with `state.dir`",
            );
        }
    }
}

fn resolve_journal(raw: &raw::Journal) -> Option<JournalSettings> {
    Some(JournalSettings {
        file: PathBuf::from(&raw.file.as_ref()?.value),
        max_size: raw.max_size.as_ref()?.value,
    })
}

fn resolve_admin(
    raw: &raw::Admin,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<AdminConfig> {
    if let Some(file) = &raw.token_file {
        surroundings.check_secret(file, problems);
    }
    let listen = raw.listen.clone()?;
    if raw.token_file.is_none() && !listen.value.ip().is_loopback() {
        let what = format!(
            "{} can be reached from outside and there is no `token_file`: pausing and resizing \
             will be refused",
            listen.value
        );
        problems.warn(&listen.place, what);
    }
    let token_file = raw
        .token_file
        .as_ref()
        .map(|file| PathBuf::from(&file.value));
    Some(AdminConfig { listen, token_file })
}

/// Reports each name that an earlier item has as well.
fn check_distinct<'a>(
    names: impl Iterator<Item = &'a Located<String>>,
    what: &str,
    problems: &mut Problems,
) {
    let mut seen: BTreeMap<&str, &Place> = BTreeMap::new();
    for name in names {
        if let Some(first) = seen.get(name.value.as_str()) {
            let what = format!(
                "{:?} is already the {what} in line {}",
                name.value, first.line
            );
            problems.error(&name.place, what);
        } else {
            seen.insert(&name.value, &name.place);
        }
    }
}

fn check_names(fleets: &[raw::Fleet], problems: &mut Problems) {
    let names = fleets.iter().filter_map(|fleet| fleet.name.as_ref());
    check_distinct(names, "name of a fleet", problems);
}

/// Reports each listener that would find its port taken by another of this file.
fn check_listeners(file: &raw::File, problems: &mut Problems) {
    let admin = file
        .admin
        .as_ref()
        .and_then(|admin| admin.value.listen.as_ref());
    let fleets = file.fleets.iter().flat_map(|fleets| &fleets.value);
    let gateways = fleets.filter_map(|fleet| {
        fleet
            .source
            .as_ref()?
            .value
            .gateway
            .as_ref()?
            .value
            .listen
            .as_ref()
    });
    let fleets = file.fleets.iter().flat_map(|fleets| &fleets.value);
    let gates = fleets.filter_map(|fleet| {
        let gate = fleet.gate.as_ref()?.value.ext_authz.as_ref()?;
        gate.value.listen.as_ref()
    });
    let mut seen: BTreeMap<u16, Vec<&Located<SocketAddr>>> = BTreeMap::new();
    for listen in gateways
        .chain(gates)
        .chain(admin)
        .filter(|listen| listen.value.port() != 0)
    {
        let others = seen.entry(listen.value.port()).or_default();
        if let Some(first) = others.iter().find(|first| clash(first.value, listen.value)) {
            let (later, earlier) = in_order(listen, first);
            let what = format!("{} is taken by {}", later.value, earlier.place.key);
            problems.refuse(
                &later.place,
                what,
                "an address that nothing else listens on",
            );
        }
        others.push(listen);
    }
}

/// Returns the one that the file sets later first; a default is blamed last.
fn in_order<'a>(
    a: &'a Located<SocketAddr>,
    b: &'a Located<SocketAddr>,
) -> (&'a Located<SocketAddr>, &'a Located<SocketAddr>) {
    let order = |one: &Located<SocketAddr>| (one.given, one.place.line);
    if order(a) >= order(b) { (a, b) } else { (b, a) }
}

/// Whether two addresses of one port cannot both be listened on.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let same = a.ip().to_canonical() == b.ip().to_canonical();
    // `::` takes IPv4 as well on most systems.
    let any = |one: SocketAddr, other: SocketAddr| {
        one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    same || any(a, b) || any(b, a)
}
