//! What is wrong with a scenario or a trace, and where.

/// What is wrong, with the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The text of a scenario is wrong.
    #[error("line {line}: {what}")]
    Scenario {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The scenario as a whole is wrong.
    #[error("{what}")]
    Whole {
        /// What is wrong.
        what: String,
    },
    /// The text of a trace is wrong.
    #[error("trace {file}, line {line}: {what}")]
    Trace {
        /// Which trace.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A trace cannot be read.
    #[error("trace {file}: {what}")]
    Unreadable {
        /// Which trace.
        file: String,
        /// Why.
        what: String,
    },
}
