//! Configuration of a client.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use smig_proto::Config;

use super::dial::DialTimeouts;
use super::pool::SessionPool;
use super::range_continuation::RangeContinuation;
use super::tls::Trust;
use super::{Client, Inner};
use crate::connection::CleartextTrust;
use crate::driver::{ConnOptions, Pacing};
use crate::entropy;
use crate::error::Error;
use crate::limits::{ConnectionLimit, QueueLimit, QueueReservation};
use crate::migration::{MigrationConfig, MigrationMode};
use crate::observer::{EventSink, Observer};
use crate::resolve::Resolver;
use crate::socket::SocketOptions;

/// Default limit of queued requests.
const DEFAULT_QUEUE_LIMIT: usize = 1024;

/// The protocol for `http://` URIs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleartext {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge: the server must support it.
    PriorKnowledge(CleartextTrust),
}

/// Builder of a client. Every setting has a default.
pub struct ClientBuilder {
    trust: Trust,
    resolver: Resolver,
    engine_config: Config,
    migration: MigrationConfig,
    interactive_options: SocketOptions,
    bulk_options: SocketOptions,
    pacing: Pacing,
    max_bulk_deferral: Duration,
    cleartext: Cleartext,
    target_spares: usize,
    max_plain_connections: usize,
    range_continuation: RangeContinuation,
    receive_pacing: Pacing,
    connect_timeout: Duration,
    handshake_timeout: Duration,
    response_timeout: Option<Duration>,
    idle_timeout: Duration,
    queue_limit: QueueLimit,
    queue_timeout: Option<Duration>,
    connection_limit: Option<ConnectionLimit>,
    request_label_limit: usize,
    observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            trust: Trust::default(),
            resolver: Resolver::system(),
            engine_config: Config::client(),
            migration: MigrationConfig {
                mode: MigrationMode::Policy,
                ..MigrationConfig::default()
            },
            interactive_options: SocketOptions::interactive(),
            bulk_options: SocketOptions::bulk(),
            pacing: Pacing::default(),
            max_bulk_deferral: Duration::from_millis(25),
            cleartext: Cleartext::default(),
            target_spares: 1,
            max_plain_connections: 2,
            range_continuation: RangeContinuation::Off,
            receive_pacing: Pacing::Off,
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            response_timeout: None,
            idle_timeout: Duration::from_secs(90),
            queue_limit: QueueLimit::new(DEFAULT_QUEUE_LIMIT),
            queue_timeout: None,
            connection_limit: None,
            request_label_limit: 0,
            observer: None,
        }
    }
}

impl ClientBuilder {
    /// Sets which server certificates are accepted. The system's trust store is read on the first connection over
    /// TLS.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Sets the name resolver; default: the system's.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets the HTTP/2 settings and limits of each session.
    #[must_use]
    pub fn engine(mut self, config: Config) -> Self {
        self.engine_config = config;
        self
    }

    /// Sets when this side migrates streams, mainly for what it sends.
    #[must_use]
    pub fn migration(mut self, config: MigrationConfig) -> Self {
        self.migration = config;
        self
    }

    /// Sets the socket options of connections for short transfers.
    #[must_use]
    pub fn interactive_socket(mut self, options: SocketOptions) -> Self {
        self.interactive_options = options;
        self
    }

    /// Sets the socket options of connections for migrated streams.
    #[must_use]
    pub fn bulk_socket(mut self, options: SocketOptions) -> Self {
        self.bulk_options = options;
        self
    }

    /// Sets whether bulk uploads are limited to the measured rate of their path (default). Without pacing,
    /// [`max_bulk_deferral`](Self::max_bulk_deferral) has no effect.
    #[must_use]
    pub fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// Sets how long interactive uploads may defer bulk ones (default 25 ms); zero disables that.
    #[must_use]
    pub fn max_bulk_deferral(mut self, limit: Duration) -> Self {
        self.max_bulk_deferral = limit;
        self
    }

    /// Sets the protocol for `http://` URIs.
    #[must_use]
    pub fn cleartext(mut self, cleartext: Cleartext) -> Self {
        self.cleartext = cleartext;
        self
    }

    /// Sets the number of spare connections per session with a server that supports SMig; 0: dial one only when the
    /// server offers a migration.
    #[must_use]
    pub fn spares(mut self, spares: usize) -> Self {
        self.target_spares = spares;
        self
    }

    /// Sets how many connections a client has at most with a server over HTTP/2 that does not support SMig (default
    /// 2). Nothing migrates there. So while a connection carries bulk, by the thresholds of the
    /// [migration policy](Self::migration), and other requests share it, a second one is opened beside it, and new
    /// requests go to the connection with the least bulk. Each connection is a session of its own; those beside the
    /// first close after 30 seconds without a request, or earlier by [`idle_timeout`](Self::idle_timeout). 1: there is
    /// only one.
    #[must_use]
    pub fn plain_connections(mut self, max: usize) -> Self {
        self.max_plain_connections = max.max(1);
        self
    }

    /// Sets whether a long download, from a server over HTTP/2 that does not support SMig, continues on another
    /// connection when streams that are open already share its connection (default: never). The rest is requested by a
    /// range request; the application sees one response. [`plain_connections`](Self::plain_connections) must be at
    /// least 2.
    #[must_use]
    pub fn range_continuation(mut self, when: RangeContinuation) -> Self {
        self.range_continuation = when;
        self
    }

    /// Sets whether bulk from a server over HTTP/2 that does not support SMig is paced by its connection's receive window
    /// once other streams are active, until it ends (default: no): the queue of the path, where their responses wait,
    /// stays short. Beside other users of the path it then gets less than its share, although the window is lifted while
    /// they fill the queue. Paths with a round-trip time below 2 ms are not paced.
    #[must_use]
    pub fn receive_pacing(mut self, is_enabled: bool) -> Self {
        self.receive_pacing = if is_enabled { Pacing::On } else { Pacing::Off };
        self
    }

    /// Sets the timeout for name resolution and the TCP connection.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the timeout for the TLS handshake.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.handshake_timeout = limit;
        self
    }

    /// Sets the timeout from each attempt to send a request, its time in the queue included, to its response's head; default:
    /// none.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = Some(limit);
        self
    }

    /// Sets how long an unused session stays open.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// Sets how many requests may wait at once for a connection, or for a stream that the server allows (default
    /// 1024). Further ones fail at once. The limit may be shared with other clients.
    #[must_use]
    pub fn queue(mut self, limit: QueueLimit) -> Self {
        self.queue_limit = limit;
        self
    }

    /// Sets how long a request may wait for a stream that the server allows, or over HTTP/1.1 for one of six
    /// connections; default: no limit.
    #[must_use]
    pub fn queue_timeout(mut self, limit: Duration) -> Self {
        self.queue_timeout = Some(limit);
        self
    }

    /// Sets how many connections may be open at once; default: no limit. The limit may be shared with other clients.
    /// A connection that a request needs (the first of a session, over HTTP/1.1 each) waits for a permit, at most for
    /// [`queue_timeout`](Self::queue_timeout); without an available permit, no spare or second connection is dialed.
    #[must_use]
    pub fn connections(mut self, limit: ConnectionLimit) -> Self {
        self.connection_limit = Some(limit);
        self
    }

    /// Sets how many bytes of a request's method, authority and path each are stored for [`Client::sessions`];
    /// default: 0, which stores nothing.
    #[must_use]
    pub fn request_label_limit(mut self, limit: usize) -> Self {
        self.request_label_limit = limit;
        self
    }

    /// Sets the observer that receives all countable events.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Builds the client. It connects when the first request is sent.
    ///
    /// # Errors
    /// CA certificates that cannot be read, or a system that provides no random bytes.
    pub fn build(self) -> Result<Client, Error> {
        entropy::check()?;
        let max_connections =
            self.engine_config.smig.as_ref().map_or(1, |smig| smig.max_connections);
        let engine_config = self.pacing.apply_to(self.engine_config);
        let inner = Arc::new(Inner {
            trust: self.trust.load()?,
            resolver: self.resolver,
            pool: Arc::new(SessionPool::default()),
            engine_config: Arc::new(engine_config),
            migration: self.migration,
            conn_options: Arc::new(ConnOptions {
                interactive_options: self.interactive_options,
                bulk_options: self.bulk_options,
                pacing: self.pacing,
                receive_pacing: self.receive_pacing,
                max_bulk_deferral: self.max_bulk_deferral,
            }),
            cleartext: self.cleartext,
            target_spares: self.target_spares,
            max_session_connections: max_connections,
            max_plain_connections: self.max_plain_connections,
            range_continuation: self.range_continuation,
            queue_limit: self.queue_limit,
            queue_timeout: self.queue_timeout,
            connection_limit: self.connection_limit,
            dial_timeouts: DialTimeouts {
                connect: self.connect_timeout,
                handshake: self.handshake_timeout,
            },
            response_timeout: self.response_timeout,
            idle_timeout: self.idle_timeout,
            request_label_limit: self.request_label_limit,
            events: Arc::new(EventSink::new(self.observer)),
            open_connections: Arc::new(AtomicUsize::new(0)),
        });
        Ok(Client { inner, queue_reservation: QueueReservation::default() })
    }
}
