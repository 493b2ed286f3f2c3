//! The scaler as its callers see it: golden numbers, runs of a fleet in virtual time, public
//! faults, and properties of any input.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod measured;
#[cfg(test)]
mod metric;
#[cfg(test)]
mod must_hold;
#[cfg(test)]
mod partial;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod reasons;
mod sized_elsewhere;
