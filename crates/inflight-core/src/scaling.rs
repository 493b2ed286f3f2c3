//! Deciding: how many replicas the load needs, and what surrounds every policy.
