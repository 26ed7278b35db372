//! What the engine tells the driver and the application.

use crate::conn::ConnId;
use crate::error::{ConnectionError, ErrorCode, StreamError};
use crate::head::{RequestHead, ResponseHead};
use crate::migrate::Mover;
use crate::session::KeyingRequest;
use crate::stream::StreamKey;
use crate::wire::{AppId, Cid, EndStream, JoinRefusal};

/// Why a transport ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The peer closed it.
    Closed,
    /// It failed, or the driver gave it up; the text says why.
    Failed(String),
}

/// Something happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Export keying material from this connection's TLS and hand it to
    /// [`crate::Session::handle_keying_material`] at once.
    KeyingMaterialNeeded {
        /// The connection.
        conn: ConnId,
        /// What to export.
        request: KeyingRequest,
    },
    /// Server: a connection wants to join the session of `cid.app`. Nothing more is read from it
    /// until the driver answers with [`crate::Session::detach`] or [`crate::Session::refuse_join`].
    JoinRequested {
        /// The connection.
        conn: ConnId,
        /// The name it claims.
        cid: Cid,
    },
    /// The session has its key: a server's driver makes `app` known to all workers, unless another
    /// session has it; a client may open spares.
    SessionEstablished {
        /// The connection whose exporter made the key.
        conn: ConnId,
        /// The session's AppID.
        app: AppId,
    },
    /// The connection belongs to the session now.
    Joined {
        /// The connection.
        conn: ConnId,
    },
    /// Client: the server refused; the connection is a plain one.
    JoinRefused {
        /// The connection.
        conn: ConnId,
        /// The server's reason.
        reason: JoinRefusal,
    },
    /// Server: a request came.
    Request {
        /// Where it came.
        conn: ConnId,
        /// Its stream.
        stream: StreamKey,
        /// Its head; boxed, as events are moved about.
        head: Box<RequestHead>,
        /// Whether it has no body.
        end: EndStream,
    },
    /// Client: the final response's head came.
    Response {
        /// Its stream.
        stream: StreamKey,
        /// The head.
        head: ResponseHead,
        /// Whether it has no body.
        end: EndStream,
    },
    /// Client: a 1xx response came.
    Informational {
        /// Its stream.
        stream: StreamKey,
        /// The head.
        head: ResponseHead,
    },
    /// Client: the server promised a response.
    Pushed {
        /// The stream on which it was promised.
        parent: StreamKey,
        /// The promised stream.
        stream: StreamKey,
        /// The request that it will answer.
        head: Box<RequestHead>,
    },
    /// There is something to read.
    Readable {
        /// Where.
        stream: StreamKey,
    },
    /// The send buffer has room again.
    Writable {
        /// Where.
        stream: StreamKey,
    },
    /// Our direction ended and its last octet was handed to a transport, or the peer wants no more of it.
    Sent {
        /// Where.
        stream: StreamKey,
    },
    /// The stream is over with an error. It must still be released.
    Reset {
        /// Which.
        stream: StreamKey,
        /// Why.
        error: StreamError,
    },
    /// Client: a stream may be opened again.
    OpenPossible,
    /// Client: the server would like the stream moved (SMIG-6.1/offer): open and join a connection
    /// and [`crate::Session::migrate`], or [`crate::Session::decline_offer`].
    MigrationOffered {
        /// Which.
        stream: StreamKey,
    },
    /// The stream goes on, on another connection.
    Migrated {
        /// Which.
        stream: StreamKey,
        /// Where it was.
        from: ConnId,
        /// Where it is.
        to: ConnId,
        /// Who moved it.
        mover: Mover,
        /// Octets of body that came before: from this offset on the body comes by `to`.
        received: u64,
    },
    /// The peer declined a migration or an offer of ours; the stream goes on where it was.
    MigrationDeclined {
        /// Which.
        stream: StreamKey,
    },
    /// The peer opens or accepts no more streams on this connection.
    GoingAway {
        /// The connection.
        conn: ConnId,
        /// The peer's code.
        code: ErrorCode,
        /// The peer's words.
        reason: String,
    },
    /// The connection is over: write what [`crate::Session::poll_transmit`] still gives, close it,
    /// and call [`crate::Session::handle_lost`].
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why, unless it ended in order.
        error: Option<ConnectionError>,
    },
    /// A cancelled stream was alone on this bulk connection: close it at once with a TCP reset, so
    /// that what is in flight is dropped (SMIG-8.4/cancel-by-close), and call
    /// [`crate::Session::handle_lost`].
    Abandon {
        /// The connection.
        conn: ConnId,
    },
    /// A limit fired; to be logged and counted.
    LimitHit {
        /// Where.
        conn: ConnId,
        /// Which.
        limit: &'static str,
    },
}
