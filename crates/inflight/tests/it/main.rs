//! Everything that needs real sockets or real processes, as one binary.

mod api;
mod tidy;
