//! The HTTP/1.1 connections of a worker to one server: idle ones, those in use, and the requests
//! that wait for one.
//!
//! A pool belongs to its thread, and takes no lock. Only the limits are shared ([`ConnLimits`]).
//!
//! A server may close an idle connection at any time. A close that the kernel has reported is
//! noticed before the connection is reused, and when idle ones are evicted: [`Pool::checkout`]
//! polls it if its waker was called, and drops it if it has ended. A close that is still in flight
//! surfaces as the request's error: a request of which nothing was written has
//! [`SendError::is_unsent`], and one on a connection that had carried another before fails with
//! [`ProxyError::Stale`](crate::ProxyError::Stale). Neither reflects on the server, and the caller
//! may send the request again.

mod http1;
mod lease;
mod limits;
mod pool;
mod shared_waker;

pub use http1::{Http1Conn, SendError, UpgradedConn};
pub use lease::Lease;
pub use limits::ConnLimits;
pub use pool::{ConnOrPermit, Pool};
