//! Snapshots of connections and streams for the driver.

use crate::bulk::{BulkHint, BulkReason};
use crate::conn::{ConnState, Connection};
use crate::ids::{Cid, ConnId, StreamId};
use crate::migrate::MigrationState;
use crate::priority::Priority;
use crate::role::ConnectionRole;
use crate::session::Session;
use crate::stream::{ExchangeKind, Stream, StreamKey};

/// State of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionView {
    /// Its handle.
    pub id: ConnId,
    /// Its CID. A client's connection keeps the one that it announced, even if the extension is not on or its JOIN was refused:
    /// see [`Self::is_joined`].
    pub cid: Option<Cid>,
    /// Whether it belongs to the session: streams can move from and to it.
    pub is_joined: bool,
    /// Its purpose.
    pub role: ConnectionRole,
    /// Number of streams on it.
    pub stream_count: usize,
    /// Whether new streams may be opened here or moved here.
    pub accepts_streams: bool,
    /// Bytes of DATA payload that were framed.
    pub data_bytes_sent: u64,
    /// Bytes of DATA payload that were received.
    pub data_bytes_received: u64,
    /// The connection's send window, in bytes.
    pub send_window: i64,
    /// The connection's receive window, in bytes.
    pub recv_window: i64,
    /// Received bytes that occupy the receive window: unread, or waiting for a barrier.
    pub unread_bytes: u64,
    /// Number of carriers on it that no MIGRATE has named yet.
    pub unbound_carrier_count: usize,
}

/// State of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamView {
    /// The connection on which its frames are sent.
    pub connection: ConnId,
    /// Its ID there.
    pub id: StreamId,
    /// Bytes of body that were framed.
    pub sent_bytes: u64,
    /// Bytes of body that are queued and not framed.
    pub queued_bytes: usize,
    /// Bytes of body that were received.
    pub received_bytes: u64,
    /// Bytes of the announced length that are not queued yet, when sending.
    pub unqueued_bytes: Option<u64>,
    /// The announced length of the received body, in bytes.
    pub content_length: Option<u64>,
    /// Its priority.
    pub priority: Priority,
    /// Number of migrations that this side began, even if unanswered or declined, and that it followed.
    pub migrations: u8,
    /// Whether a migration or an offer of it is unanswered.
    pub is_migrating: bool,
    /// Server: what became of its offer.
    pub offer: OfferState,
    /// Why what it sends is bulk, if it is.
    pub bulk: Option<BulkReason>,
    /// What the application says of whether it is.
    pub bulk_hint: BulkHint,
    /// Whether it has to be resumed, or is being resumed.
    pub is_resuming: bool,
    /// Whether it is a CONNECT tunnel.
    pub is_tunnel: bool,
    /// The stream's send window, in bytes, which may be negative.
    pub send_window: i64,
    /// The stream's receive window, in bytes.
    pub recv_window: i64,
}

/// What became of a server's offer of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferState {
    /// The stream may be offered: it was not, or the client has moved it since.
    Available,
    /// The client has not answered.
    Unanswered,
    /// It was answered, or withdrawn, and the stream is not offered again.
    Spent,
}

impl Session {
    /// Returns the session's connections that have not ended; [`Self::connection`] finds an ended one too until
    /// the driver removes it.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionView> + '_ {
        self.conns.iter().filter(|conn| !conn.is_dead()).map(connection_view)
    }

    /// Returns one connection.
    #[must_use]
    pub fn connection(&self, id: ConnId) -> Option<ConnectionView> {
        self.conns.find(id).map(connection_view)
    }

    /// Client: returns whether the server's SETTINGS have been received on an open connection: it
    /// supports HTTP/2.
    #[must_use]
    pub fn has_peer_settings(&self) -> bool {
        self.conns.iter().any(|conn| matches!(conn.state, ConnState::Open))
    }

    /// Returns one stream, unless it has ended and was released.
    #[must_use]
    pub fn stream(&self, key: StreamKey) -> Option<StreamView> {
        self.streams.find(key).map(stream_view)
    }

    /// Returns the streams that have not failed, including complete ones whose key is held, and released ones that
    /// still have data to send.
    pub fn streams(&self) -> impl Iterator<Item = (StreamKey, StreamView)> + '_ {
        let running = self.streams.iter().filter(|(_, stream)| !stream.has_failed());
        running.map(|(key, stream)| (key, stream_view(stream)))
    }

    /// Returns the number of streams that the session stores, including unreleased ones.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of streams that this side has reset, for its application or because of an
    /// error. A peer may limit that number (CVE-2023-44487).
    #[must_use]
    pub fn local_resets(&self) -> u64 {
        self.local_resets
    }
}

fn connection_view(conn: &Connection) -> ConnectionView {
    ConnectionView {
        id: conn.id,
        cid: conn.cid,
        is_joined: conn.is_joined(),
        role: conn.role,
        stream_count: conn.streams.len(),
        accepts_streams: conn.accepts_streams(),
        data_bytes_sent: conn.data_bytes_sent,
        data_bytes_received: conn.data_bytes_received,
        send_window: conn.send_window.value(),
        recv_window: conn.recv_window.value(),
        unread_bytes: conn.recv_window.outstanding(),
        unbound_carrier_count: conn.unbound_carriers.len(),
    }
}

fn stream_view(stream: &Stream) -> StreamView {
    let addr = stream.binding.send_addr();
    StreamView {
        connection: addr.conn,
        id: addr.id,
        sent_bytes: stream.send.sent_bytes(),
        queued_bytes: stream.send.queued_bytes(),
        received_bytes: stream.recv.received_bytes(),
        unqueued_bytes: stream.send.unqueued_bytes(),
        content_length: stream.recv.content_length(),
        priority: stream.priority,
        migrations: stream.binding.migration_count(),
        is_migrating: !matches!(stream.binding.migration(), MigrationState::Idle),
        offer: offer_state(stream),
        bulk: stream.send.bulk(),
        bulk_hint: stream.send.bulk_hint(),
        is_resuming: stream.is_resuming(),
        is_tunnel: stream.exchange_kind == ExchangeKind::Tunnel,
        send_window: stream.send.window.value(),
        recv_window: stream.recv.window.value(),
    }
}

fn offer_state(stream: &Stream) -> OfferState {
    if matches!(stream.binding.migration(), MigrationState::Offered) {
        OfferState::Unanswered
    } else if stream.was_offered_or_declined {
        OfferState::Spent
    } else {
        OfferState::Available
    }
}
