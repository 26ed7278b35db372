//! Bidirectional relay of bytes between two ends, with back-pressure and half-close.
//!
//! An end is a socket ([`Socket`]) or the two bodies of an HTTP stream ([`Stream`]). [`relay`] joins two of
//! them. An end that is dropped before both of its directions have completed is reset: RST on TCP,
//! RST_STREAM over HTTP/2. So whatever fails, and wherever a task is dropped, no peer takes a truncated tunnel
//! for a completed one.

mod channel;
mod end;
mod open;
mod relay;
mod socket;
mod stream;
mod tally;

pub use channel::{BodySender, ChannelBody, channel};
pub use end::TunnelEnd;
pub use open::{Opened, accept, open};
pub use relay::{TunnelError, TunnelOutcome, TunnelSide, relay};
pub use socket::{Abort, Socket};
pub use stream::Stream;
pub use tally::{Tunnel, TunnelKind, Tunnels};
