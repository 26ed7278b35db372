//! HTTP/2 with stream migration, without I/O.
#![forbid(unsafe_code)]

pub mod hpack;
pub mod wire;
