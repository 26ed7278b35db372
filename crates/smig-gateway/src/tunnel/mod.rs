//! Octets between two ends, both ways, with back-pressure and half-close.
//!
//! An end is a socket ([`Socket`]) or the two bodies of an HTTP stream ([`Stream`]). [`relay`] joins
//! two of them. An end that is dropped before both of its directions have ended in order is reset:
//! RST on TCP, RST_STREAM on HTTP/2. So whoever fails, and wherever a task is dropped, no peer takes
//! a broken tunnel for a finished one.

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
