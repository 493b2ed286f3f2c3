//! "Did you mean": the nearest of the words that would have been right.

/// Returns the word nearest to what was written, when it is near enough to be meant.
pub(super) fn nearest<'a>(written: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const WRITTEN_MAX: usize = 40;
    if written.chars().count() > WRITTEN_MAX {
        return None;
    }
    let near = words.map(|word| (edits(&written.to_lowercase(), word), word));
    let (distance, word) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= (word.chars().count() / 3).max(1)).then_some(word)
}

/// Counts the insertions, deletions, replacements and swaps of neighbours that turn one word into
/// the other (optimal string alignment).
fn edits(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().collect();
    let to: Vec<char> = to.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let words = ["replicas", "scaling", "slots", "min", "max"];
        let check = |written| nearest(written, words.into_iter());
        assert_eq!(check("replica"), Some("replicas"));
        assert_eq!(check("sclaing"), Some("scaling"));
        assert_eq!(check("Slots"), Some("slots"));
        assert_eq!(check("mni"), Some("min"));
        assert_eq!(check("threshold"), None);
        assert_eq!(check(""), None);
    }
}
