//! Bidirectional relay of bytes between two ends, with back-pressure and half-close.
//!
//! An end is a socket ([`Socket`]) or the two bodies of an HTTP stream ([`Stream`]). [`relay`]
//! connects two of them. An end that is dropped before both of its directions have completed is
//! reset: RST on TCP, RST_STREAM over HTTP/2. So whatever fails, and wherever a task is dropped, no
//! peer takes a truncated tunnel for a completed one.

mod channel;
mod end;
mod open;
mod relay;
mod socket;
mod stats;
mod stream;

pub use channel::{BodySender, ChannelBody, channel};
pub use end::TunnelEndpoint;
pub use open::{ConnectResponse, accept, open};
pub use relay::{TunnelError, TunnelOutcome, TunnelSide, relay};
pub use socket::{ResetOnClose, Socket};
pub use stats::{Tunnel, TunnelKind, TunnelRegistry};
pub use stream::Stream;
