//! Runs side by side, on every processor that there is.

use std::io::{self, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use inflight_sim::Outcome;
use inflight_sim::scenario::Scenario;

/// Does every job; the order of the results is that of the jobs, on any number of processors.
pub(super) fn side_by_side<T: Send>(
    jobs: usize,
    job: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    until(None, jobs, job)
}

/// Does the jobs that can be begun until a deadline, from the first on.
pub(super) fn until<T: Send>(
    deadline: Option<Instant>,
    jobs: usize,
    job: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let work = || {
        let mut done = Vec::new();
        // A job that was taken is done, so that none is missing between others.
        while !is_late() {
            let place = next.fetch_add(1, Ordering::Relaxed);
            if place >= jobs {
                break;
            }
            progress(place, jobs);
            done.push((place, job(place)?));
        }
        Ok::<_, anyhow::Error>(done)
    };
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut done = Vec::new();
        for thread in threads {
            let results = thread.join().map_err(|_| anyhow!("a run panicked"))??;
            done.extend(results);
        }
        Ok::<_, anyhow::Error>(done)
    })?;
    progress(jobs, jobs);
    done.sort_by_key(|&(place, _)| place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

/// Returns what came of a run, if it kept every identity.
pub(super) fn whole(outcome: Outcome, scenario: &Scenario, by: &str, seed: u64) -> Result<Outcome> {
    match outcome.broken_identity() {
        Some(broken) => bail!("{} under {by}, seed {seed}: {broken}", scenario.name),
        None => Ok(outcome),
    }
}

/// Says on a terminal how far it is; a terminal that is gone does not matter.
fn progress(done: usize, all: usize) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        let end = if done == all { "\r\x1b[K" } else { "" };
        drop(write!(terminal, "\r{done} of {all} runs{end}"));
    }
}
