//! What an application may see and ask of a stream beside its body.

use std::sync::Arc;

use smig_proto::{ConnId, Priority};

use super::shared::Shared;

/// Octets of a body that came by one connection: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The connection.
    pub connection: ConnId,
    /// Offset of the first octet.
    pub start: u64,
    /// Offset behind the last octet so far.
    pub end: u64,
}

/// A handle of a running stream. It does not keep the stream alive.
#[derive(Clone, Debug)]
pub struct StreamInfo(Arc<Shared>);

impl StreamInfo {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Which octets of the incoming body came by which connection, so far.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        self.0.segments()
    }

    /// The connection that the stream is on.
    #[must_use]
    pub fn connection(&self) -> Option<ConnId> {
        self.0.connection()
    }

    /// Asks for a move to another connection, whatever the policy says. Nothing happens if the
    /// session has none and can get none.
    pub fn migrate(&self) {
        self.0.ask_migrate();
    }

    /// A client: gives up what its response leaves of the request (RFC 9113 section 8.1). When the response
    /// is whole and a second later neither the request's body has ended nor the server said that it
    /// wants no more, the stream is reset, also where the server takes nothing more of the body. A
    /// session does so only while it has fewer than 192 resets behind it, whatever they were for and
    /// those by which the server refused a request among them; 20 are forgotten in each second. Servers
    /// end connections that reset too many. What the response has is not touched.
    ///
    /// Unasked, the request goes on to its end. Nothing happens at a server, and on a tunnel.
    pub fn give_up_rest(&self) {
        self.0.ask_give_up();
    }

    /// Changes the stream's priority (RFC 9218): a client tells the server, a server schedules.
    pub fn set_priority(&self, priority: Priority) {
        self.0.ask_priority(priority);
    }
}
