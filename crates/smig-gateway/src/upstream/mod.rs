//! Where requests go: servers, pools of connections to them, and which one is taken.
//!
//! Load and health are shared by all workers; connections belong to the worker that made them.

mod balance;
mod connect;
mod health;
mod http1;
mod pool;
mod relay;
mod server;
mod spec;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smig::{Loaded, Resolver, Trust};
use tokio::sync::watch;

pub use server::{Server, ServerStatus};
pub use spec::{
    Balance, Ejection, HashKey, HealthSpec, ServerUrl, Timeouts, TlsSpec, UpstreamSpec,
};

pub(crate) use balance::{Asked, Tried};
pub(crate) use connect::{Io, SILENT_FOR};
pub(crate) use http1::{Switched, Unanswered};
pub(crate) use pool::Lease;
pub(crate) use server::UnderWay;
pub(crate) use worker::{Connection, ServerPool, Session, Worker};

/// What is wrong with an upstream's description.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is nowhere to send requests.
    #[error("upstream {0}: no server; write servers = [\"http://host:port\"]")]
    NoServer(String),
    /// Authorities cannot be read.
    #[error(transparent)]
    Trust(#[from] smig::Error),
}

/// Servers that answer the same requests.
#[derive(Debug)]
pub struct Upstream {
    name: String,
    /// Of this process: where a worker keeps its pools.
    number: usize,
    servers: Vec<Server>,
    balance: Balance,
    timeouts: Timeouts,
    max_waiting: usize,
    retries: u32,
    health: Option<HealthSpec>,
    trust: Loaded,
    resolver: Resolver,
    turn: AtomicUsize,
    /// Nothing is sent: its end tells the workers that there is no such upstream any more.
    present: watch::Sender<()>,
}

impl Upstream {
    /// An upstream by its description. It connects when the first request comes.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn new(name: impl Into<String>, spec: &UpstreamSpec) -> Result<Arc<Self>, SpecError> {
        Self::with_resolver(name, spec, Resolver::system())
    }

    /// The same, whose servers' names are looked up by a resolver of one's own.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn with_resolver(
        name: impl Into<String>,
        spec: &UpstreamSpec,
        resolver: Resolver,
    ) -> Result<Arc<Self>, SpecError> {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let name = name.into();
        if spec.servers.is_empty() {
            return Err(SpecError::NoServer(name));
        }
        let trust = match &spec.tls {
            TlsSpec { insecure: true, .. } => Trust::DangerAcceptInvalidCerts,
            TlsSpec { ca: Some(path), .. } => Trust::File(path.clone()),
            TlsSpec { .. } => Trust::System,
        };
        let server = |url: &ServerUrl| {
            let (connections, waiting) = (spec.max_connections, spec.max_waiting);
            Server::new(url.clone(), connections, waiting, spec.ejection)
        };
        Ok(Arc::new(Self {
            name,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            servers: spec.servers.iter().map(server).collect(),
            balance: spec.balance.clone(),
            timeouts: spec.timeouts,
            max_waiting: spec.max_waiting,
            retries: spec.retries,
            health: spec.health.clone(),
            trust: trust.load()?,
            resolver: resolver.fresh_for(spec.resolve),
            turn: AtomicUsize::new(0),
            present: watch::Sender::new(()),
        }))
    }

    /// The name that the configuration gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its servers.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Whether any server gets requests because it is well.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.servers.iter().any(Server::is_well)
    }

    /// Requests under way at all servers.
    #[must_use]
    pub fn load(&self) -> usize {
        self.servers.iter().map(Server::load).sum()
    }

    pub(crate) const fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    pub(crate) const fn retries(&self) -> u32 {
        self.retries
    }

    /// The server for a request, which begins there.
    pub(crate) fn choose(
        self: &Arc<Self>,
        asked: Asked<'_>,
        tried: Tried,
    ) -> Option<(usize, UnderWay)> {
        let turn = match self.servers.len() {
            1 => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed),
        };
        let server = balance::choose(&self.servers, &self.balance, asked, tried, turn)?;
        Some((server, UnderWay::begin(self, server)))
    }
}
