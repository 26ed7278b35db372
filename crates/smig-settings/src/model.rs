//! What the shared settings set.

use std::num::NonZeroUsize;
use std::time::Duration;

use smig::{Config, MoveRules, Pacing, Server, ServerBuilder, SocketOptions};
use smig_proto::SmigConfig;

/// Whether the extension is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Plain HTTP/2.
    Off,
    /// Clients are told that streams can move.
    On,
}

/// What every server of ours can be told, whatever it serves.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Threads; none: one for each processor.
    pub workers: Option<usize>,
    /// Connections open at once.
    pub max_connections: usize,
    /// Connections open at once from one address.
    pub max_connections_per_client: usize,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// How long a session without a stream stays open.
    pub idle_timeout: Duration,
    /// How long a handler may wait for 1 KB of its request's body.
    pub body_timeout: Duration,
    /// Time for running transfers when the server ends.
    pub drain_timeout: Duration,
    /// Whether streams can move.
    pub extension: Extension,
    /// The extension's numbers.
    pub smig: SmigConfig,
    /// When streams move.
    pub rules: MoveRules,
    /// Whether moved streams are kept near the path's rate.
    pub pace_bulk: bool,
    /// Whether connections that nothing was moved to are, too.
    pub pace_unmoved: bool,
    /// How long one interactive response may hold bulk back.
    pub max_hold: Duration,
    /// Sockets that carry what people wait for.
    pub interactive: SocketOptions,
    /// Sockets that carry moved streams.
    pub bulk: SocketOptions,
    /// HTTP/2, without the extension's part.
    pub engine: Config,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            workers: None,
            max_connections: 65_536,
            max_connections_per_client: 32_768,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(300),
            body_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            extension: Extension::On,
            smig: SmigConfig::default(),
            rules: MoveRules::default(),
            pace_bulk: true,
            pace_unmoved: false,
            max_hold: Duration::from_millis(25),
            interactive: SocketOptions::interactive(),
            bulk: SocketOptions::bulk(),
            engine: Config::server(),
        }
    }
}

impl ServerSettings {
    const fn pacing(&self) -> Pacing {
        match (self.pace_unmoved, self.pace_bulk) {
            (true, _) => Pacing::Every,
            (false, true) => Pacing::Moved,
            (false, false) => Pacing::Off,
        }
    }

    /// A server that is told all of this, and has no address yet.
    #[must_use]
    pub fn builder(&self) -> ServerBuilder {
        let smig = match self.extension {
            Extension::Off => None,
            Extension::On => Some(self.smig.clone()),
        };
        let builder = Server::builder()
            .engine(Config { smig, ..self.engine.clone() })
            .moves(self.rules.clone())
            .interactive_socket(self.interactive.clone())
            .bulk_socket(self.bulk.clone())
            .pacing(self.pacing())
            .max_hold(self.max_hold)
            .max_connections(self.max_connections)
            .max_connections_per_client(self.max_connections_per_client)
            .handshake_timeout(self.handshake_timeout)
            .idle_timeout(self.idle_timeout)
            .body_timeout(self.body_timeout);
        match self.workers.and_then(NonZeroUsize::new) {
            Some(workers) => builder.workers(workers),
            None => builder,
        }
    }
}
