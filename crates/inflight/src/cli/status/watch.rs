//! `inflight status --watch`: the status each second, for as long as somebody looks.

use std::io::{self, Write};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};

use super::{StatusError, fleets, table};
use crate::api::wire;
use crate::cli::AdminAddress;

/// How often the instance is asked.
pub const EVERY: Duration = Duration::from_secs(1);

/// Moves to the upper left corner and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Where the status is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// On a terminal, in place of what was shown before; else as further lines.
    pub in_place: bool,
    /// How often.
    pub every: Duration,
}

/// What was heard of the instance so far.
#[derive(Debug, Default)]
struct Heard {
    last: Vec<wire::Fleet>,
    /// Since when it does not answer.
    silent_since: Option<String>,
}

/// Shows the status until `stop` is ready. An instance that does not answer is asked again.
///
/// # Errors
/// What is shown cannot be written.
pub async fn watch(
    address: &AdminAddress,
    screen: Screen,
    out: &mut impl Write,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = pin!(stop);
    let mut heard = Heard::default();
    let mut ticks = interval(screen.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let answer = tokio::select! {
            () = &mut stop => return Ok(()),
            answer = async {
                ticks.tick().await;
                fleets(address).await
            } => answer,
        };
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let text = heard.hear(&now, answer, screen.in_place);
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
}

impl Heard {
    /// Takes an answer, and returns what is shown of it.
    fn hear(
        &mut self,
        now: &str,
        answer: Result<Vec<wire::Fleet>, StatusError>,
        in_place: bool,
    ) -> String {
        let error = match answer {
            Ok(fleets) => {
                self.last = fleets;
                let was_silent = self.silent_since.take();
                return match was_silent {
                    _ if in_place => format!("{CLEAR}{now}\n{}", table::render(&self.last)),
                    Some(since) => format!(
                        "{now} reachable again, was not since {since}\n{}",
                        self.lines(now)
                    ),
                    None => self.lines(now),
                };
            }
            Err(error) => error,
        };
        let is_news = self.silent_since.is_none();
        let since = self.silent_since.get_or_insert_with(|| now.to_owned());
        let told = format!("not reachable since {since}: {error}\n");
        match (in_place, is_news) {
            (true, _) if self.last.is_empty() => format!("{CLEAR}{now}\n{told}"),
            (true, _) => format!(
                "{CLEAR}{now}\n{told}\nbefore:\n{}",
                table::render(&self.last)
            ),
            (false, true) => format!("{now} {told}"),
            (false, false) => String::new(),
        }
    }

    fn lines(&self, now: &str) -> String {
        let lines = self.last.iter().map(table::one_line);
        lines.map(|line| format!("{now} {line}")).collect()
    }
}
