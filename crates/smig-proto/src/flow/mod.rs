//! Flow control (RFC 9113 sections 5.2 and 6.9): windows, and credit that cannot be lost unnoticed.
//!
//! [`SendWindow`] counts what this side may send, [`RecvWindow`] what the peer may send. Received
//! bytes become [`Credit`], which is neither `Copy` nor `Clone`: it must be returned to its window,
//! or forfeited explicitly with its connection.

mod recv;
mod send;

pub(crate) use recv::{Credit, RecvWindow};
pub(crate) use send::SendWindow;

/// The maximum flow-control window (RFC 9113 section 6.9.1).
pub(crate) const MAX_WINDOW: u32 = 0x7fff_ffff;

/// The initial flow-control window of streams and connections (RFC 9113 section 6.9.2).
pub(crate) const INITIAL_WINDOW: u32 = 65_535;
