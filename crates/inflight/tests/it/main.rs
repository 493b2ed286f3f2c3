//! Integration tests: real sockets on loopback.

mod api;
