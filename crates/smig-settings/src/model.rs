//! The values of the shared settings.

use std::num::NonZeroUsize;
use std::time::Duration;

use smig::{Config, MigrationConfig, Pacing, Server, ServerBuilder, SocketOptions};
use smig_proto::{BulkPolicy, SmigConfig};

/// Whether the SMig extension is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Plain HTTP/2.
    Off,
    /// The server advertises to clients that streams can migrate.
    On,
}

/// The settings that every server has, independent of what it serves.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Worker threads; `None` starts one per processor.
    pub workers: Option<usize>,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Maximum number of open connections from one address (IPv6: from one /64 network).
    pub max_connections_per_client: usize,
    /// Timeout of a TLS handshake, and of the first bytes on a cleartext connection.
    pub handshake_timeout: Duration,
    /// How long a session without streams stays open.
    pub idle_timeout: Duration,
    /// How long a handler that has not responded yet may wait for 1 KiB of its request's body; CONNECT and gRPC may
    /// idle.
    pub body_timeout: Duration,
    /// How long running transfers may take after the server begins to shut down.
    pub drain_timeout: Duration,
    /// Whether streams can migrate.
    pub extension: Extension,
    /// The extension's parameters.
    pub smig: SmigConfig,
    /// When streams migrate.
    pub migration: MigrationConfig,
    /// Whether bulk is limited to the path's rate.
    pub pace_bulk: bool,
    /// Whether the bulk uploads of clients without SMig are paced, too.
    pub pace_uploads: bool,
    /// How long one interactive response may delay bulk data.
    pub max_bulk_deferral: Duration,
    /// Socket options of interactive connections.
    pub interactive: SocketOptions,
    /// Socket options of connections that carry migrated streams.
    pub bulk: SocketOptions,
    /// HTTP/2 settings, without the extension's.
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
            migration: MigrationConfig::default(),
            pace_bulk: true,
            pace_uploads: false,
            max_bulk_deferral: Duration::from_millis(25),
            interactive: SocketOptions::interactive(),
            bulk: SocketOptions::bulk(),
            engine: Config::server(),
        }
    }
}

impl ServerSettings {
    /// Returns a server builder with these settings, without an address.
    #[must_use]
    pub fn builder(&self) -> ServerBuilder {
        let smig = match self.extension {
            Extension::Off => None,
            Extension::On => Some(self.smig.clone()),
        };
        let bulk = BulkPolicy { min_size: self.migration.policy.min_size, ..BulkPolicy::default() };
        let builder = Server::builder()
            .engine(Config { smig, bulk: Some(bulk), ..self.engine.clone() })
            .migration(self.migration.clone())
            .interactive_socket(self.interactive.clone())
            .bulk_socket(self.bulk.clone())
            .pacing(if self.pace_bulk { Pacing::On } else { Pacing::Off })
            .upload_pacing(if self.pace_uploads { Pacing::On } else { Pacing::Off })
            .max_bulk_deferral(self.max_bulk_deferral)
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
