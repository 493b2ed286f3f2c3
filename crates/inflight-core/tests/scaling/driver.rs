//! What drives the scaler in these tests.

pub(crate) mod fleet;
pub(crate) mod reading;
