//! Integration tests: real sockets and processes of this machine, one binary.

mod process_target;
mod serve;
