//! What the driver may look at.

use crate::conn::{ConnId, Connection, ConnectionRole, Membership};
use crate::error::ErrorCode;
use crate::migrate::HandOver;
use crate::priority::Priority;
use crate::session::Session;
use crate::stream::{Exchange, Stream, StreamKey};
use crate::wire::{Cid, StreamId};

/// A connection, seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionView {
    /// Its handle.
    pub id: ConnId,
    /// Its name in the session, if the extension is on.
    pub cid: Option<Cid>,
    /// Whether it belongs to the session: streams can move to and from it.
    pub joined: bool,
    /// What it is used for.
    pub role: ConnectionRole,
    /// Streams on it.
    pub streams: usize,
    /// Whether new streams may be opened on it or moved to it.
    pub takes_streams: bool,
    /// Octets of DATA payload framed for it.
    pub data_sent: u64,
    /// Octets of DATA payload received on it.
    pub data_received: u64,
    /// The connection's window towards the peer.
    pub send_window: i64,
    /// The peer's window by our account.
    pub recv_window: i64,
    /// Octets received that still hold the window: unread, or waiting behind a barrier.
    pub unread: u64,
    /// Carriers on it that no MIGRATE has named yet.
    pub unbound: usize,
}

/// A stream, seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct StreamView {
    /// The connection that its frames go to.
    pub connection: ConnId,
    /// Its id there.
    pub id: StreamId,
    /// Octets of body framed.
    pub sent: u64,
    /// Octets of body queued and not framed.
    pub queued: usize,
    /// Octets of body received.
    pub received: u64,
    /// The body's announced length that is still to be queued, when sending.
    pub unqueued: Option<u64>,
    /// The announced length of the body that is received.
    pub expected: Option<u64>,
    /// Its priority.
    pub priority: Priority,
    /// How often it moved.
    pub moves: u8,
    /// Whether a migration or an offer of it is open.
    pub moving: bool,
    /// Whether it is a CONNECT tunnel.
    pub tunnel: bool,
    /// The stream's window towards the peer, which may be negative.
    pub send_window: i64,
    /// The peer's window by our account.
    pub recv_window: i64,
}

impl Session {
    /// The session's connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionView> + '_ {
        self.conns.iter().filter(|conn| !conn.is_dead()).map(view)
    }

    /// One connection.
    #[must_use]
    pub fn connection(&self, id: ConnId) -> Option<ConnectionView> {
        self.conn(id).map(view)
    }

    /// One stream, unless it is over and forgotten.
    #[must_use]
    pub fn stream(&self, key: StreamKey) -> Option<StreamView> {
        self.streams.find(key).map(stream_view)
    }

    /// The streams that are not over, released ones whose octets are still to be sent included.
    pub fn streams(&self) -> impl Iterator<Item = (StreamKey, StreamView)> + '_ {
        let running = self.streams.iter().filter(|(_, stream)| !stream.is_over());
        running.map(|(key, stream)| (key, stream_view(stream)))
    }

    /// Streams that the session holds, unreleased ones included.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Streams that this end reset in its whole life, by its application's wish or by its own judgement. The peer
    /// may bear only so many (CVE-2023-44487).
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// The code with which a connection ended, while it is still known.
    #[must_use]
    pub fn end_code(&self, id: ConnId) -> Option<ErrorCode> {
        self.conn(id)?.error.as_ref().map(|error| error.code)
    }
}

fn view(conn: &Connection) -> ConnectionView {
    ConnectionView {
        id: conn.id,
        cid: conn.cid,
        joined: conn.membership == Membership::Joined,
        role: conn.role,
        streams: conn.streams.len(),
        takes_streams: conn.takes_streams(),
        data_sent: conn.data_sent,
        data_received: conn.data_received,
        send_window: conn.send_window.value(),
        recv_window: conn.recv_window.open(),
        unread: conn.recv_window.outstanding(),
        unbound: conn.carriers.len(),
    }
}

fn stream_view(stream: &Stream) -> StreamView {
    StreamView {
        connection: stream.route.conn,
        id: stream.route.id,
        sent: stream.send.sent(),
        queued: stream.send.queued(),
        received: stream.recv.received(),
        unqueued: stream.send.expected(),
        expected: stream.recv.expected(),
        priority: stream.priority,
        moves: stream.moves,
        moving: !matches!(stream.hand_over, HandOver::Settled),
        tunnel: stream.exchange == Exchange::Tunnel,
        send_window: stream.send.window.value(),
        recv_window: stream.recv.window.open(),
    }
}
