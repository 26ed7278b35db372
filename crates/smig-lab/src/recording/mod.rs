//! Samples of a run on one clock: nanoseconds of `CLOCK_MONOTONIC`, which the link, the kernel's
//! sockets and our own programs share.
//!
//! - `TrialRecorder`: all samples of one run, written as a [`Timeline`](crate::timeline::Timeline);
//! - [`QueueRecorder`]: the queue of a link, from its log;
//! - `TcpSampler`: the kernel's state of every TCP connection of a host, from sock_diag, whichever
//!   process owns the connection;
//! - [`ServerEvents`]: migrations, joins and resets, from our server's log;
//! - [`add_observation`]: each object, and the bytes of it that each connection carried.
//! - [`add_page_loads`]: the loads of pages, and what each request was in its page.
//!
//! Samplers are passive: none of them sets an option, opens a connection or sends a packet. Each
//! period costs one walk through the kernel's table of connections, about 0.2 ms.

mod observation;
mod page_parts;
mod queue;
mod server_events;
mod sock_diag;
mod tcp;
mod trial;

pub use observation::add_observation;
pub use page_parts::add_page_loads;
pub use queue::QueueRecorder;
pub use server_events::ServerEvents;
pub use sock_diag::{TcpState, decode_connections};
pub use tcp::{HostSide, TcpSampler, TcpSamples};
pub(crate) use trial::{TIMELINES_DIR, TrialRecorder};
