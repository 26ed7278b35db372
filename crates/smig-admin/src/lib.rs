//! The admin interface of a running gateway or agent, on a loopback port: a live page, its event stream,
//! sessions as JSON, metrics, health checks.
//!
//! It is read-only. Snapshots of the sessions are taken only while a client reads them, a few times a second
//! at most; all else is counters. Start it after its subject, with the [`AdminObserver`] that observes the subject:
//!
//! ```no_run
//! # use smig_admin::{self as admin, AdminSpec, AdminTarget, AdminObserver};
//! # fn run(builder: smig::ServerBuilder) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let watch = AdminObserver::new();
//! let server = builder
//!     .observer(watch.clone())
//!     .request_label_limit(admin::NAME_LENGTH)
//!     .start(tower::service_fn(async |_| {
//!         Ok::<_, std::convert::Infallible>(http::Response::new(String::from("hello")))
//!     }))?;
//! let subject = AdminTarget::new("smig gateway", server.view(), watch);
//! let spec = AdminSpec { listen: "127.0.0.1:9901".parse()? };
//! let admin = admin::start(&spec, subject)?;
//! println!("http://{}/", admin.local_addr());
//! # Ok(())
//! # }
//! ```

pub mod access_log;
mod event_log;
mod event_stream;
mod json;
mod metrics;
mod observer;
mod page;
mod reports;
mod service;
mod snapshot_cache;
pub mod spans;
pub mod telemetry;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use smig::{CleartextTrust, Client, Server, ServerView, Snapshot, Stats};

pub use observer::AdminObserver;
pub use reports::{ReportedStats, StatsSource, TelemetryReport, TunnelReport, UpstreamReport};

use service::AdminService;
use snapshot_cache::SnapshotCache;

/// Maximum length in bytes of a stream's method, authority and path on the page, each: the argument for the
/// subject's `describe_streams`.
pub const NAME_LENGTH: usize = 120;

/// Maximum number of concurrent connections to the admin port.
const MAX_CONNECTIONS: usize = 64;

/// Configuration of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSpec {
    /// A loopback address and a port: everyone who can log in to this machine may see the page. Remote access
    /// needs a reverse proxy that authenticates its users.
    pub listen: SocketAddr,
}

/// A source of sessions and counters: a server, a client, or several of them.
pub trait SessionSource: Send + Sync + 'static {
    /// Returns the counters since the start.
    fn stats(&self) -> Stats;
    /// Takes a snapshot of the sessions.
    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>>;
}

impl SessionSource for ServerView {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

impl SessionSource for Client {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

/// What the admin interface shows.
pub struct AdminTarget {
    title: String,
    source: Box<dyn SessionSource>,
    watch: Arc<AdminObserver>,
    reports: Vec<Arc<dyn StatsSource>>,
    ready: Ready,
}

/// Readiness check: an error's text says why the process does not accept work.
type Ready = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl AdminTarget {
    /// The sessions of `source`, observed by `watch`, under a title: the program, and perhaps its location.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        source: impl SessionSource,
        watch: Arc<AdminObserver>,
    ) -> Self {
        Self {
            title: title.into(),
            source: Box::new(source),
            watch,
            reports: Vec::new(),
            ready: Box::new(|| Ok(())),
        }
    }

    /// Adds statistics of another module, such as upstreams or tunnels.
    #[must_use]
    pub fn report(mut self, report: Arc<dyn StatsSource>) -> Self {
        self.reports.push(report);
        self
    }

    /// Sets the check of `/readyz`: an error's text says why the process is not ready, such as "draining".
    #[must_use]
    pub fn ready(mut self, ready: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.ready = Box::new(ready);
        self
    }
}

impl fmt::Debug for AdminTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminTarget").field("title", &self.title).finish_non_exhaustive()
    }
}

/// The running admin interface; dropping it closes its port at once.
#[derive(Debug)]
pub struct Admin {
    addr: SocketAddr,
    _server: Server,
}

impl Admin {
    /// The listening address, with the actual port.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Why the admin interface did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is reachable from other machines.
    #[error(
        "admin.listen: {0} is not a loopback address; use 127.0.0.1 or [::1], and a reverse proxy \
         with authentication for remote access"
    )]
    NotLocal(SocketAddr),
    /// The address cannot be bound.
    #[error("admin.listen: {0}")]
    Listen(#[source] smig::Error),
}

/// Starts the admin interface.
///
/// # Errors
/// The address is not a loopback address, or cannot be bound.
pub fn start(spec: &AdminSpec, subject: AdminTarget) -> Result<Admin, AdminError> {
    if !spec.listen.ip().to_canonical().is_loopback() {
        return Err(AdminError::NotLocal(spec.listen));
    }
    let desk = AdminService::new(SnapshotCache::new(subject));
    let server = Server::builder()
        .listen_cleartext(spec.listen, CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .max_connections(MAX_CONNECTIONS)
        .start(desk)
        .map_err(AdminError::Listen)?;
    let addr = server.local_addrs().first().copied().unwrap_or(spec.listen);
    Ok(Admin { addr, _server: server })
}
