//! Forwarded header sections: hop-by-hop fields are removed (RFC 9110 section 7.6.1), and a message
//! that two parsers could interpret differently is rejected, or forwarded in a form with one reading, as
//! content-length without leading zeros. Where a message ends is determined in `framing`.

mod hop_by_hop;
mod outgoing;
mod request;
mod response;
mod trailers;

use http::{HeaderValue, Method, Uri};
use smig::Protocol;

pub use outgoing::{add_upgrade, into_http1_request, into_http2_request, via};
pub use request::{check_expect, decrement_max_forwards, validate_request};
pub use response::{validate_http2_response, validate_response, validate_switch_response};
pub use trailers::validate_response_frame;

pub(crate) use trailers::validate_request_frame;

use crate::framing::Fields;

/// The protocol switch or tunnel that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeKind {
    /// Nothing.
    None,
    /// Another protocol on its HTTP/1.1 connection.
    Upgrade(Protocol),
    /// Another protocol on its stream (RFC 8441).
    ExtendedConnect(Protocol),
    /// A tunnel (CONNECT).
    Connect,
}

/// Whether an Upgrade over HTTP/1.1 is honored. A server may ignore it (RFC 9110 section 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeHandling {
    /// A GET's upgrade to `websocket` is honored; any other one is ignored.
    Honored,
    /// The request is treated as one without it.
    Ignored,
}

/// A request without hop-by-hop fields, except `te: trailers`.
#[derive(Clone, Debug)]
pub struct UpstreamHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The other fields, without framing.
    pub fields: Fields,
    /// The URI's authority as a field value, if that exists already.
    pub host: Option<HeaderValue>,
    /// The protocol switch or tunnel that it asks for.
    pub upgrade: UpgradeKind,
}
