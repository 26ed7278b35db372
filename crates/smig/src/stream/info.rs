//! A stream's handle for the application: information and control apart from the body.

use std::sync::Arc;

use smig_proto::{BulkHint, ConnId, Priority};

use super::shared::SharedStream;

/// A range of a body's bytes that arrived on one connection: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The session: a client numbers its sessions with an origin from 1. 0 at a server.
    pub session: u32,
    /// The connection, by its number in the session.
    pub connection: ConnId,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte so far.
    pub end: u64,
    /// Whether the bytes are the answer to a range request ([`RangeContinuation`](crate::RangeContinuation)).
    pub is_continuation: bool,
}

/// A handle of an open stream. It does not keep the stream open.
#[derive(Clone, Debug)]
pub struct StreamInfo(Arc<SharedStream>);

impl StreamInfo {
    pub(crate) const fn new(shared: Arc<SharedStream>) -> Self {
        Self(shared)
    }

    /// Returns which bytes of the incoming body have arrived on which connection so far.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        self.0.segments()
    }

    /// Returns the connection that the stream is on.
    #[must_use]
    pub fn connection(&self) -> Option<ConnId> {
        self.0.connection()
    }

    /// Requests a migration to a spare connection, whatever the policy decides. If no spare is ready, it has no effect
    /// at a client; a server offers the migration to its client, unless [`Offers::Never`](crate::Offers::Never) is set.
    pub fn migrate(&self) {
        self.0.request_migration();
    }

    /// Client: discards the part of the request that is unsent when the response is complete (RFC 9113
    /// section 8.1). If one second after the end of the response the request's body has not ended and the
    /// server has not sent RST_STREAM(NO_ERROR), the stream is reset, even if the server takes no more data
    /// of the body. A session does this only while its count of resets is below 192; the count includes all
    /// resets and the requests that the server refused, and decreases by 20 per second. Servers close
    /// connections that reset too many streams. The received response is not affected.
    ///
    /// By default the request is sent completely. Has no effect at a server or on a tunnel.
    pub fn stop_upload_after_response(&self) {
        self.0.request_upload_stop();
    }

    /// Server: overrides the policy that decides whether the request's body is bulk, and is therefore paced if it comes from
    /// a client without SMig while other streams are active. Has no effect at a client; the response's body has a hint
    /// of its own, an extension of the response.
    pub fn set_incoming_bulk_hint(&self, hint: BulkHint) {
        self.0.request_incoming_bulk_hint(hint);
    }

    /// Changes the stream's priority (RFC 9218): a client sends it to the server, a server schedules by it.
    pub fn set_priority(&self, priority: Priority) {
        self.0.request_priority(priority);
    }
}
