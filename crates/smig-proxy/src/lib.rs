//! Building blocks of a proxy, without routing: shared by the gateway and the agent.
//!
//! - [`head`]: forwarded header sections, checked and without hop-by-hop fields; [`framing`]: where a message ends;
//! - [`dial`]: opens connections to servers; [`conn_pool`]: a worker's HTTP/1.1 connections to one server;
//! - [`upload`]: a request's body as it is forwarded, and the timeouts of waiting for the response;
//! - [`tunnel`]: relays bytes both ways; [`grpc`]: how calls are recognized and refused;
//! - [`ProxyError`]: why an exchange failed, and whether it may be retried.
//!
//! It depends on no configuration, and has no routes or groups of servers.

pub mod conn_pool;
pub mod dial;
mod error;
pub mod framing;
pub mod grpc;
pub mod head;
pub mod tunnel;
pub mod upload;

pub use error::{ProxyError, is_cancel};

use http::HeaderName;

/// Request field from an agent to a forward proxy: with the value `h2c`, the request is sent to the
/// origin over HTTP/2 with prior knowledge instead of HTTP/1.1.
pub const ORIGIN_PROTOCOL: HeaderName = HeaderName::from_static("smig-origin-protocol");
