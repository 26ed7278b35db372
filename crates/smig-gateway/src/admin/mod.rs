//! What operators see of a gateway or an agent while it runs, on a port of this machine: a live page,
//! its events, sessions as JSON, metrics, health.
//!
//! It only looks. Sessions are asked for their pictures while somebody reads them, a few times a
//! second; besides, it counts. To be started after what it shows, with the [`Watch`] that observed it:
//!
//! ```no_run
//! # use smig_gateway::admin::{self, AdminSpec, Subject, Watch};
//! # fn run(builder: smig::ServerBuilder) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let watch = Watch::new();
//! let server = builder
//!     .observer(watch.clone())
//!     .describe_streams(admin::NAME_LENGTH)
//!     .start(tower::service_fn(async |_| {
//!         Ok::<_, std::convert::Infallible>(http::Response::new(String::from("hello")))
//!     }))?;
//! let subject = Subject::new("smig gateway", server.view(), watch);
//! let spec = AdminSpec { listen: "127.0.0.1:9901".parse()? };
//! let admin = admin::start(&spec, subject)?;
//! println!("http://{}/", admin.local_addr());
//! # Ok(())
//! # }
//! ```

mod events;
mod json;
mod log;
mod metrics;
mod page;
mod reports;
mod sampler;
mod service;
pub mod span;
mod watch;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use smig::{ClearTrust, Client, Server, ServerView, Snapshot, Stats};

pub use reports::{Report, Reported, TelemetryReport, TunnelReport, UpstreamReport};
pub use watch::Watch;

use sampler::Sampler;
use service::Desk;

/// Octets of a stream's method, authority and path that the page shows: for `describe_streams` of what
/// is shown.
pub const NAME_LENGTH: usize = 120;

/// Connections to the admin port at once.
const MAX_CONNECTIONS: usize = 64;

/// Where operators look.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSpec {
    /// A loopback address and a port: what is shown is for who may log in here. Others get it by a
    /// reverse proxy that knows them.
    pub listen: SocketAddr,
}

/// Where sessions and counters come from: a server, a client, or several.
pub trait Source: Send + Sync + 'static {
    /// Counters since the start.
    fn stats(&self) -> Stats;
    /// A picture of the sessions.
    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>>;
}

impl Source for ServerView {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

impl Source for Client {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

/// What is shown.
pub struct Subject {
    title: String,
    source: Box<dyn Source>,
    watch: Arc<Watch>,
    reports: Vec<Arc<dyn Report>>,
    ready: Ready,
}

/// Says whether work is welcome, and if not, why.
type Ready = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Subject {
    /// Sessions of `source`, as `watch` observed them, under a title: what it is, and perhaps where.
    #[must_use]
    pub fn new(title: impl Into<String>, source: impl Source, watch: Arc<Watch>) -> Self {
        Self {
            title: title.into(),
            source: Box::new(source),
            watch,
            reports: Vec::new(),
            ready: Box::new(|| Ok(())),
        }
    }

    /// Shows the numbers of upstreams or tunnels too.
    #[must_use]
    pub fn report(mut self, report: Arc<dyn Report>) -> Self {
        self.reports.push(report);
        self
    }

    /// What `/readyz` asks: an error's text says why work is not welcome, such as "draining".
    #[must_use]
    pub fn ready(mut self, ready: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.ready = Box::new(ready);
        self
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("title", &self.title).finish_non_exhaustive()
    }
}

/// The running admin port; dropping it closes it at once.
#[derive(Debug)]
pub struct Admin {
    addr: SocketAddr,
    _server: Server,
}

impl Admin {
    /// Where it listens, the port filled in.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Why there is no admin port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// It would be open to others than this machine.
    #[error(
        "admin.listen: {0} is not a loopback address; use 127.0.0.1 or [::1], and a reverse proxy \
         that authenticates for others"
    )]
    NotLocal(SocketAddr),
    /// The address cannot be used.
    #[error("admin.listen: {0}")]
    Listen(#[source] smig::Error),
}

/// Opens the admin port.
///
/// # Errors
/// An address that is not this machine's own, or that cannot be bound.
pub fn start(spec: &AdminSpec, subject: Subject) -> Result<Admin, AdminError> {
    if !spec.listen.ip().to_canonical().is_loopback() {
        return Err(AdminError::NotLocal(spec.listen));
    }
    let desk = Desk::new(Sampler::new(subject));
    let server = Server::builder()
        .listen_cleartext(spec.listen, ClearTrust::None)
        .workers(NonZeroUsize::MIN)
        .max_connections(MAX_CONNECTIONS)
        .start(desk)
        .map_err(AdminError::Listen)?;
    let addr = server.local_addrs().first().copied().unwrap_or(spec.listen);
    Ok(Admin { addr, _server: server })
}
