//! Bidirectional relay of bytes between two ends, with back-pressure and half-close.
//!
//! An end is a socket ([`Socket`]) or the two bodies of an HTTP stream ([`Stream`]). [`relay`] joins two of
//! them. An end that is dropped before both of its directions have completed is reset: RST on TCP,
//! RST_STREAM over HTTP/2. So whatever fails, and wherever a task is dropped, no peer takes a truncated tunnel
//! for a completed one.

mod end;
mod feed;
mod open;
mod relay;
mod socket;
mod stream;
mod tally;

pub use end::End;
pub use feed::{FedBody, Feed, feed};
pub use open::{Opened, accept, open};
pub use relay::{Broken, Outcome, Side, relay};
pub use socket::{Abort, Socket};
pub use stream::Stream;
pub use tally::{Kind, Tunnel, Tunnels};
