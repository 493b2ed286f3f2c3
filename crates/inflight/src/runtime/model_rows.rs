//! Which row of the core each model of a fleet has, over every configuration that the fleet had.
//!
//! A row is never given to another model: requests in flight and requests that are being routed
//! name it, and its counters belong to the name. A model that was taken out of the file keeps its
//! row, and finds its counters again when it comes back.

use inflight_core::{ModelIndex, Slots};

use crate::config::ModelConfig;

/// More names than a fleet has in its life, unless they are generated; each costs a little memory
/// and a little time at every decision.
const ROWS_MAX: usize = 1_000;

/// The models of one fleet by row.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelRows(Vec<(String, Slots)>);

/// A fleet had too many models in its life.
#[derive(Debug, thiserror::Error)]
#[error("more than {ROWS_MAX} names of models since the fleet was started; restart to forget them")]
pub(super) struct TooManyModels;

impl ModelRows {
    /// Returns the rows after the models of a file: known ones stay where they are.
    ///
    /// # Errors
    /// There were too many names.
    pub(super) fn with(&self, models: &[ModelConfig]) -> Result<Self, TooManyModels> {
        let mut rows = self.clone();
        for model in models {
            match rows.0.iter_mut().find(|(name, _)| *name == model.name) {
                Some((_, slots)) => *slots = model.slots,
                None => rows.0.push((model.name.clone(), model.slots)),
            }
        }
        // The first file may have as many as it likes.
        if rows.0.len() > ROWS_MAX.max(models.len()) {
            return Err(TooManyModels);
        }
        Ok(rows)
    }

    /// Returns the row of a model, the first for one that has none.
    pub(super) fn row_of(&self, model: &str) -> ModelIndex {
        let row = self.0.iter().position(|(name, _)| name == model);
        ModelIndex(row.unwrap_or_default())
    }

    /// Returns the name of each row.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the slots of each row.
    pub(super) fn slots(&self) -> Vec<Slots> {
        self.0.iter().map(|&(_, slots)| slots).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, slots: u32) -> ModelConfig {
        ModelConfig {
            name: name.to_owned(),
            path: format!("/{name}"),
            slots: Slots::new(slots).unwrap(),
        }
    }

    #[test]
    fn a_model_keeps_its_row_through_every_file() {
        let first = ModelRows::default()
            .with(&[model("a", 1), model("b", 2)])
            .unwrap();
        let second = first.with(&[model("c", 3), model("b", 4)]).unwrap();
        assert_eq!(second.row_of("b"), ModelIndex(1));
        assert_eq!(second.row_of("c"), ModelIndex(2));
        assert_eq!(
            second.slots().iter().map(|s| s.get()).collect::<Vec<_>>(),
            [1, 4, 3]
        );
        let third = second.with(&[model("a", 5)]).unwrap();
        assert_eq!(third.row_of("a"), ModelIndex(0));
    }

    #[test]
    fn names_without_end_are_refused_and_change_nothing() {
        let mut rows = ModelRows::default();
        for number in 0..ROWS_MAX {
            rows = rows.with(&[model(&number.to_string(), 1)]).unwrap();
        }
        assert!(rows.with(&[model("one more", 1)]).is_err());
        assert!(rows.with(&[model("7", 2)]).is_ok());
    }
}
