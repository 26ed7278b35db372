//! Samples of a run on one clock: nanoseconds of `CLOCK_MONOTONIC`, which the link, the kernel's
//! sockets and our own programs share.
//!
//! - `TrialRecorder`: all samples of one run, written as a [`Timeline`](crate::timeline::Timeline)
//!   (Linux);
//! - [`QueueRecorder`]: the queue of a link, from its log;
//! - `TcpSampler`: the kernel's state of every TCP connection of a host, from sock_diag, whichever
//!   process owns the connection (Linux);
//! - [`ServerEvents`]: migrations, joins and resets, from our server's own log;
//! - [`put_observation`]: each object, and the bytes of it that each connection carried.
//!
//! Samplers are passive: none of them sets an option, opens a connection or sends a packet. Each
//! period costs one walk through the kernel's table of connections, about 0.2 ms.

#[cfg(target_os = "linux")]
mod observation;
#[cfg(target_os = "linux")]
mod queue;
mod server_events;
#[cfg(target_os = "linux")]
mod sock_diag;
#[cfg(target_os = "linux")]
mod tcp;
#[cfg(target_os = "linux")]
mod trial;

#[cfg(target_os = "linux")]
pub use observation::put_observation;
#[cfg(target_os = "linux")]
pub use queue::QueueRecorder;
pub use server_events::ServerEvents;
#[cfg(target_os = "linux")]
pub use sock_diag::{TcpState, decode_connections};
#[cfg(target_os = "linux")]
pub use tcp::{HostSide, TcpSampler, TcpSamples};
#[cfg(target_os = "linux")]
pub(crate) use trial::{TIMELINES, TrialRecorder};
