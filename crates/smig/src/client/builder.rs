//! How a client is described.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use smig_proto::Config;

use super::dial::DialLimits;
use super::host::Hosts;
use super::limits::{ConnectionLimit, QueueLimit, Reserved};
use super::tls::Trust;
use super::{Client, Inner};
use crate::driver::{LinkOptions, Pacing};
use crate::entropy;
use crate::error::Error;
use crate::moves::{MoveMode, MoveRules};
use crate::observe::{Counters, Observer};
use crate::resolve::Resolver;
use crate::server::ClearTrust;
use crate::socket::SocketOptions;

/// Requests that wait at once, unless said otherwise.
const MAX_QUEUED: usize = 1024;

/// What `http://` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cleartext {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge: the server must speak it.
    PriorKnowledge(ClearTrust),
}

/// Describes a client. Every setting has a default.
pub struct ClientBuilder {
    trust: Trust,
    resolver: Resolver,
    engine: Config,
    rules: MoveRules,
    interactive: SocketOptions,
    bulk: SocketOptions,
    pacing: Pacing,
    max_hold: Duration,
    cleartext: Cleartext,
    spares: usize,
    connect_timeout: Duration,
    handshake_timeout: Duration,
    response_timeout: Option<Duration>,
    idle_timeout: Duration,
    queue: QueueLimit,
    queue_timeout: Option<Duration>,
    connections: Option<ConnectionLimit>,
    describe_streams: usize,
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
            engine: Config::client(),
            rules: MoveRules { mode: MoveMode::Policy, ..MoveRules::default() },
            interactive: SocketOptions::interactive(),
            bulk: SocketOptions::bulk(),
            pacing: Pacing::default(),
            max_hold: Duration::from_millis(25),
            cleartext: Cleartext::default(),
            spares: 1,
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            response_timeout: None,
            idle_timeout: Duration::from_secs(90),
            queue: QueueLimit::new(MAX_QUEUED),
            queue_timeout: None,
            connections: None,
            describe_streams: 0,
            observer: None,
        }
    }
}

impl ClientBuilder {
    /// Which server certificates are accepted. What the system trusts is read when a server is first reached by
    /// TLS.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Who looks names up; the system's resolver unless set.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// HTTP/2 settings and limits, for each session.
    #[must_use]
    pub fn engine(mut self, config: Config) -> Self {
        self.engine = config;
        self
    }

    /// When this side moves streams: what it sends, above all.
    #[must_use]
    pub fn moves(mut self, rules: MoveRules) -> Self {
        self.rules = rules;
        self
    }

    /// Socket options of connections that carry small things.
    #[must_use]
    pub fn interactive_socket(mut self, options: SocketOptions) -> Self {
        self.interactive = options;
        self
    }

    /// Socket options of connections that carry moved streams.
    #[must_use]
    pub fn bulk_socket(mut self, options: SocketOptions) -> Self {
        self.bulk = options;
        self
    }

    /// Which connections' uploads are kept near the rate that the path is seen to carry: those that
    /// streams have moved to, if nothing is said. Where none is, [`max_hold`](Self::max_hold) holds nothing
    /// back.
    #[must_use]
    pub fn pacing(mut self, pacing: Pacing) -> Self {
        self.pacing = pacing;
        self
    }

    /// How long one small upload may hold big ones back; zero: never.
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = limit;
        self
    }

    /// What `http://` means.
    #[must_use]
    pub fn cleartext(mut self, cleartext: Cleartext) -> Self {
        self.cleartext = cleartext;
        self
    }

    /// Spare connections to keep ready in each session with a server that speaks SMig; 0: only
    /// when the server offers a move.
    #[must_use]
    pub fn spares(mut self, spares: usize) -> Self {
        self.spares = spares;
        self
    }

    /// Time for name resolution and the TCP connection.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Time for the TLS handshake.
    #[must_use]
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.handshake_timeout = limit;
        self
    }

    /// Time from a request to its response's head; no limit unless set.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = Some(limit);
        self
    }

    /// How long a session stays open unused.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = limit;
        self
    }

    /// How many requests may wait at once, for a connection or for a stream that the server allows (1024); further
    /// ones are refused. The limit may be shared with other clients.
    #[must_use]
    pub fn queue(mut self, limit: QueueLimit) -> Self {
        self.queue = limit;
        self
    }

    /// How long a request may wait for a stream that the server allows, or by HTTP/1.1 for one of six connections; no
    /// limit unless set.
    #[must_use]
    pub fn queue_timeout(mut self, limit: Duration) -> Self {
        self.queue_timeout = Some(limit);
        self
    }

    /// How many connections may be open at once; no limit unless set. It may be shared with other
    /// clients. A session's first connection waits for a place, for [`queue_timeout`](Self::queue_timeout); spares do without.
    #[must_use]
    pub fn connections(mut self, limit: ConnectionLimit) -> Self {
        self.connections = Some(limit);
        self
    }

    /// How many octets of a request's method, authority and path are remembered for
    /// [`Client::sessions`], each; 0, the default, keeps nothing.
    #[must_use]
    pub fn describe_streams(mut self, limit: usize) -> Self {
        self.describe_streams = limit;
        self
    }

    /// Who is told of everything worth counting.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The client. It connects when the first request is sent.
    ///
    /// # Errors
    /// CA certificates that cannot be read.
    pub fn build(self) -> Result<Client, Error> {
        entropy::check()?;
        let max_connections = self.engine.smig.as_ref().map_or(1, |smig| smig.max_connections);
        let inner = Arc::new(Inner {
            trust: self.trust.load()?,
            resolver: self.resolver,
            hosts: Arc::new(Hosts::default()),
            engine: self.engine,
            rules: self.rules,
            links: Arc::new(LinkOptions {
                interactive: self.interactive,
                bulk: self.bulk,
                pacing: self.pacing,
                max_hold: self.max_hold,
            }),
            cleartext: self.cleartext,
            spares: self.spares,
            max_connections,
            queue: self.queue,
            queue_timeout: self.queue_timeout,
            connections: self.connections,
            limits: DialLimits { connect: self.connect_timeout, handshake: self.handshake_timeout },
            response_timeout: self.response_timeout,
            idle_timeout: self.idle_timeout,
            describe_streams: self.describe_streams,
            counters: Arc::new(Counters::new(self.observer)),
            open: Arc::new(AtomicUsize::new(0)),
        });
        Ok(Client { inner, reserved: Reserved::default() })
    }
}
