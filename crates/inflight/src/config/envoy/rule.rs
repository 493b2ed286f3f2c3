//! A setting that has to be something.

use super::spot::{Spot, problem};
use crate::config::error::Problem;

/// What one setting has to be, and why.
pub(super) struct Rule {
    /// Where it is, from what the rule is about.
    pub(super) at: &'static [&'static str],
    pub(super) is_right: fn(&Spot<'_>) -> bool,
    /// What Envoy takes where it is not set; may be empty.
    pub(super) default: &'static str,
    /// What follows from that.
    pub(super) why: &'static str,
    pub(super) should: &'static str,
}

/// Returns what a path of keys leads to.
pub(super) fn down<'a>(from: &Spot<'a>, path: &[&str]) -> Spot<'a> {
    path.iter().fold(from.clone(), |spot, key| spot.get(key))
}

impl Rule {
    fn judge(&self, about: &Spot<'_>) -> Option<Problem> {
        let at = down(about, self.at);
        (!(self.is_right)(&at)).then(|| {
            let found = at.found(self.default);
            problem(
                &at,
                format!("{found}: {}; should be {}", self.why, self.should),
            )
        })
    }
}

/// Judges something by rules.
pub(super) fn judge(rules: &[Rule], about: &Spot<'_>, advice: &mut Vec<Problem>) {
    advice.extend(rules.iter().filter_map(|rule| rule.judge(about)));
}
