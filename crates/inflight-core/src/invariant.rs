//! Named truths about our own state. A violation is a fault of ours, never of an input.

/// Asserts a named invariant in tests and debug builds; costs nothing in release builds.
///
/// Only for what the code itself guarantees: user or network input is never asserted on.
macro_rules! invariant {
    ($name:literal, $holds:expr) => {
        debug_assert!($holds, concat!("invariant violated: ", $name))
    };
}
