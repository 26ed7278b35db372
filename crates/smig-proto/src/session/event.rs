//! Notifications of the engine to the driver and the application.

use crate::error::{ConnectionError, ErrorCode, StreamError};
use crate::head::{RequestHead, ResponseHead};
use crate::ids::{AppId, Cid, ConnId};
use crate::migrate::Mover;
use crate::session::KeyingRequest;
use crate::stream::StreamKey;
use crate::wire::{EndStream, JoinRefusal};

/// The reason why a transport ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The peer closed it.
    Closed,
    /// It failed, or the driver abandoned it, for the contained reason.
    Failed(String),
}

/// A notification.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Export keying material from this connection's TLS and pass it to
    /// [`crate::Session::handle_keying_material`] immediately.
    KeyingMaterialNeeded {
        /// The connection.
        conn: ConnId,
        /// What to export.
        request: KeyingRequest,
    },
    /// Server: a connection requests to join the session of `cid.app`. Nothing more is read from it
    /// until the driver calls [`crate::Session::detach`] or [`crate::Session::refuse_join`].
    JoinRequested {
        /// The connection.
        conn: ConnId,
        /// The CID that it claims.
        cid: Cid,
    },
    /// The session has its key. A server's driver announces `app` to all workers, unless another
    /// session has it; a client may open spares.
    SessionEstablished {
        /// The connection that founded the session; over TLS, its exporter made the key.
        conn: ConnId,
        /// The session's AppID.
        app: AppId,
    },
    /// The connection belongs to the session.
    Joined {
        /// The connection.
        conn: ConnId,
    },
    /// Client: the server refused the JOIN. After [`JoinRefusal::UnknownSession`] the connection founds
    /// a new session, if it can; otherwise it is an ordinary HTTP/2 connection.
    JoinRefused {
        /// The connection.
        conn: ConnId,
        /// The server's reason.
        reason: JoinRefusal,
    },
    /// Server: a request was received.
    Request {
        /// The connection on which it was received.
        conn: ConnId,
        /// Its stream.
        stream: StreamKey,
        /// Its head, boxed to keep events small.
        head: Box<RequestHead>,
        /// Whether it has no body.
        end: EndStream,
    },
    /// Client: the head of the final response was received.
    Response {
        /// Its stream.
        stream: StreamKey,
        /// The head.
        head: ResponseHead,
        /// Whether it has no body.
        end: EndStream,
    },
    /// Client: a 1xx response was received.
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
        /// The request that the promised response answers.
        head: Box<RequestHead>,
    },
    /// Body, trailers or the end can be read.
    Readable {
        /// The stream.
        stream: StreamKey,
    },
    /// The send buffer has room again, or this side's direction takes no more data.
    Writable {
        /// The stream.
        stream: StreamKey,
    },
    /// This side's direction ended: all of it was framed, though perhaps not written yet, or the peer
    /// does not need the rest.
    Finished {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream failed: it was reset, or its connection was lost. It must still be released.
    Failed {
        /// The stream.
        stream: StreamKey,
        /// The reason.
        error: StreamError,
    },
    /// Client: a stream may be opened again.
    StreamsAvailable,
    /// Client: the server requests that the stream be moved (SMIG-6.1/offer). Open and join a
    /// connection and call [`crate::Session::migrate`], or call [`crate::Session::decline_offer`].
    MigrationOffered {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream continues on another connection.
    Migrated {
        /// The stream.
        stream: StreamKey,
        /// The old connection.
        from: ConnId,
        /// The new connection.
        to: ConnId,
        /// The side that moved it.
        mover: Mover,
        /// Offset of the first body byte that arrives on `to`.
        recv_offset: u64,
    },
    /// The stream's connection has ended; the stream goes on if the client resumes it in time (spec/resumption.md).
    /// A client's driver opens a connection if the session has none.
    Adrift {
        /// The stream.
        stream: StreamKey,
    },
    /// The stream goes on, on this connection: nothing is lost, and nothing comes twice. To a client that waits for 100
    /// (Continue) with its body, it stands for that.
    Resumed {
        /// The stream.
        stream: StreamKey,
        /// The connection.
        on: ConnId,
    },
    /// The peer declined a migration or an offer of this side, and the stream continues on its old
    /// connection; or this side withdrew a migration, because the server stopped the request.
    MigrationDeclined {
        /// The stream.
        stream: StreamKey,
    },
    /// The peer accepts no more streams on this connection. It may still open some.
    GoingAway {
        /// The connection.
        conn: ConnId,
        /// The peer's code.
        code: ErrorCode,
        /// The text that the peer sent.
        reason: String,
    },
    /// The connection has ended: write the rest of [`crate::Session::poll_transmit`], close the
    /// transport, and call [`crate::Session::handle_lost`].
    Closed {
        /// The connection.
        conn: ConnId,
        /// The reason, unless [`crate::Session::close`] closed it or the peer closed it without
        /// streams.
        error: Option<ConnectionError>,
    },
    /// A cancelled stream was the only one on this bulk connection: close the connection
    /// immediately with a TCP reset, so that data in flight is dropped (SMIG-8.4/cancel-by-close),
    /// and call [`crate::Session::handle_lost`].
    AbortTransport {
        /// The connection.
        conn: ConnId,
    },
    /// A limit was exceeded, for logs and counters.
    LimitHit {
        /// The connection.
        conn: ConnId,
        /// The limit.
        limit: &'static str,
    },
}
