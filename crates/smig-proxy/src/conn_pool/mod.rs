//! The HTTP/1.1 connections of a worker to one server: idle ones, those in use, and the requests that wait for one.
//!
//! A pool belongs to its thread, and takes no lock. Only the limits are shared ([`ConnLimits`]).
//!
//! Stale connections, by one rule: a server may close an idle connection at any time. What the kernel has reported of
//! that is seen before a connection is reused, and again when idle ones are evicted: [`Pool::checkout`] polls it if its
//! waker was called, and drops it if it has ended. What is on its way is seen by the request: one of which nothing was
//! written has [`SendError::unsent`], and one whose connection had carried another before fails with
//! [`ProxyError::Stale`](crate::ProxyError::Stale). Neither reflects on the server, and the caller may send the request
//! again.

mod http1;
mod lease;
mod limits;
mod pool;
mod shared_waker;

pub use http1::{Http1, SendError, UpgradedConn};
pub use lease::Lease;
pub use limits::ConnLimits;
pub use pool::{Acquired, Pool};
