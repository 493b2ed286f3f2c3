//! Gates before a fleet whose requests pass elsewhere: proxies ask here whether a call may pass.
//!
//! Only how a question and its answer are spelled; who passes is the fleet's to say, from memory.

pub mod ext_authz;
