//! TCP senders over model links, in virtual time: to develop and to test what bounds bulk.
//!
//! A server's session sends small responses and a download to one client, on one connection or on two, over
//! [`smig_link`]'s links, beside others' traffic. Congestion control, loss recovery, pacing and what TCP_INFO shows
//! follow Linux. The server's process runs for requests, for sockets that take more and by its timer. Not modelled:
//! handshakes, receive windows, TLS records, more than one client, and the client's other frames, which wake the process
//! too.
//!
//! | file | owns |
//! |---|---|
//! | `cell` | [`Cell`]: a path and what uses it, a run and its results |
//! | `matrix` | the cells by name |
//! | `process` | [`Schedule`]: when the server's process runs |
//! | `session` | the server's session, and the ways in which it sends bulk |
//! | `cross` | others' traffic |
//! | `network` | connections over a link; the next event |
//! | `sender/`, `receiver`, `congestion/` | TCP |
//! | `packet` | what travels |

mod cell;
mod congestion;
mod cross;
pub mod matrix;
mod network;
mod packet;
mod process;
mod receiver;
mod sender;
mod session;

pub use cell::{Cell, Measurement, Responses, Sending};
pub use congestion::Algorithm;
pub use cross::CrossTraffic;
pub use network::{PathPolicerSpec, PathSpec};
pub use packet::MSS;
pub use process::Schedule;
pub use sender::TcpInfo;
pub use session::{BulkConnection, BulkLimit};
