//! Where numbers about a fleet come from that its own gateway does not know.

pub mod text_format;
