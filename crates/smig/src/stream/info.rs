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

    /// Changes the stream's priority (RFC 9218): a client tells the server, a server schedules.
    pub fn set_priority(&self, priority: Priority) {
        self.0.ask_priority(priority);
    }
}
