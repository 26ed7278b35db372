//! What happens during a run, on one clock: nanoseconds of `CLOCK_MONOTONIC`, which the link, the
//! kernel's sockets and our own programs share.
//!
//! - [`Timeline`]: everything that was sampled of one run, and its file;
//! - [`QueueRecorder`]: the queue of a link, from its log;
//! - `TcpSampler`: what the kernel knows of every TCP connection of a host, by sock_diag, whoever
//!   owns the connection (Linux);
//! - [`ServerEvents`]: moves, joins and resets, from our server's own words;
//! - [`put_observation`]: each object, and which connection brought which bytes of it.
//!
//! Samplers only look: none of them sets an option, opens a connection or sends a packet. Their
//! own cost is a walk through the kernel's table of connections each period, about 0.2 ms.

#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod observation;
#[cfg(target_os = "linux")]
mod queue;
mod server_events;
#[cfg(target_os = "linux")]
mod sock_diag;
#[cfg(target_os = "linux")]
mod tcp;
mod timeline;

#[cfg(target_os = "linux")]
pub use clock::now;
#[cfg(target_os = "linux")]
pub use observation::put_observation;
#[cfg(target_os = "linux")]
pub use queue::QueueRecorder;
pub use server_events::ServerEvents;
#[cfg(target_os = "linux")]
pub use sock_diag::{TcpState, decode_connections};
#[cfg(target_os = "linux")]
pub use tcp::{End, TcpSampler, TcpSamples};
pub use timeline::{
    Column, ConnectionName, Direction, Head, LinkFacts, Mark, MarkKind, Outcome, ReadError, Span,
    Subject, Timeline, Track,
};
