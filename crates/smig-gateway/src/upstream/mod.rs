//! Upstreams: servers, connection pools, and load balancing.
//!
//! Load and health are shared by all workers; connections belong to the worker that opened them.

mod balance;
mod health;
mod server;
mod spec;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smig::{LoadedTrust, Resolver, Trust};
use tokio::sync::watch;

pub use server::{ServerStatus, UpstreamServer};
pub use spec::{
    Balance, Ejection, HashKey, HealthSpec, ServerUrl, Timeouts, TlsSpec, UpstreamSpec,
};

pub(crate) use balance::{BalanceInput, TriedServers};
pub(crate) use server::ActiveRequest;
pub(crate) use worker::{Connection, Http2Client, ServerPool, WorkerPools};

/// Why an upstream cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The upstream has no server.
    #[error("upstream {0} has no servers; set servers = [\"http://host:port\"]")]
    NoServer(String),
    /// The CA certificates cannot be read.
    #[error(transparent)]
    Trust(#[from] smig::Error),
}

/// A group of equivalent servers.
#[derive(Debug)]
pub struct Upstream {
    name: String,
    /// Unique within the process: the key of a worker's pools.
    id: usize,
    servers: Vec<UpstreamServer>,
    balance: Balance,
    timeouts: Timeouts,
    retries: u32,
    health: Option<HealthSpec>,
    trust: LoadedTrust,
    resolver: Resolver,
    rotation: AtomicUsize,
    /// Carries no values: dropping it notifies the workers that the upstream was removed.
    removal_tx: watch::Sender<()>,
}

impl Upstream {
    /// Creates an upstream. It connects when the first request arrives.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub fn new(name: impl Into<String>, spec: &UpstreamSpec) -> Result<Arc<Self>, UpstreamError> {
        Self::with_resolver(name, spec, Resolver::system())
    }

    /// Like [`Upstream::new`], with another resolver for the servers' names.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub fn with_resolver(
        name: impl Into<String>,
        spec: &UpstreamSpec,
        resolver: Resolver,
    ) -> Result<Arc<Self>, UpstreamError> {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(0);
        let name = name.into();
        if spec.servers.is_empty() {
            return Err(UpstreamError::NoServer(name));
        }
        let trust = match &spec.tls {
            TlsSpec { insecure: true, .. } => Trust::DangerAcceptInvalidCerts,
            TlsSpec { ca: Some(path), .. } => Trust::File(path.clone()),
            TlsSpec { .. } => Trust::System,
        };
        let server = |url: &ServerUrl| {
            let (connections, waiting) = (spec.max_connections, spec.max_pending_requests);
            UpstreamServer::new(url.clone(), connections, waiting, spec.ejection)
        };
        Ok(Arc::new(Self {
            name,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            servers: spec.servers.iter().map(server).collect(),
            balance: spec.balance.clone(),
            timeouts: spec.timeouts,
            retries: spec.retries,
            health: spec.health.clone(),
            trust: trust.load()?,
            resolver: resolver.fresh_for(spec.dns_cache_time),
            rotation: AtomicUsize::new(0),
            removal_tx: watch::Sender::new(()),
        }))
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its servers.
    #[must_use]
    pub fn servers(&self) -> &[UpstreamServer] {
        &self.servers
    }

    /// Returns whether any server is healthy and not ejected.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.servers.iter().any(UpstreamServer::is_healthy)
    }

    /// Active requests at all servers.
    #[must_use]
    pub fn load(&self) -> usize {
        self.servers.iter().map(UpstreamServer::load).sum()
    }

    pub(crate) const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub(crate) const fn retries(&self) -> u32 {
        self.retries
    }

    /// Picks a server for a request, and counts the request as active there.
    pub(crate) fn choose_and_begin(
        self: &Arc<Self>,
        input: BalanceInput<'_>,
        tried_servers: TriedServers,
    ) -> Option<(usize, ActiveRequest)> {
        let rotation = match self.servers.len() {
            1 => 0,
            _ => self.rotation.fetch_add(1, Ordering::Relaxed),
        };
        let server_index =
            balance::choose(&self.servers, &self.balance, input, tried_servers, rotation)?;
        Some((server_index, ActiveRequest::begin(self, server_index)))
    }
}
