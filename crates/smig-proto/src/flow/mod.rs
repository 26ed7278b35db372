//! Flow control (RFC 9113 section 5.2 and 6.9): windows, and credit that cannot be lost unnoticed.
//!
//! [`SendWindow`] counts what the peer lets us send, [`RecvWindow`] what we let the peer send.
//! Octets received become [`Credit`], which is neither `Copy` nor `Clone`: it ends by being given back
//! to the window that it came from, or explicitly with its connection.

mod recv;
mod send;

pub(crate) use recv::{Credit, RecvWindow};
pub(crate) use send::SendWindow;

/// The highest flow-control window (RFC 9113 section 6.9.1).
pub(crate) const MAX_WINDOW: u32 = 0x7fff_ffff;

/// The initial window of streams and connections (RFC 9113 section 6.9.2).
pub(crate) const INITIAL_WINDOW: u32 = 65_535;
