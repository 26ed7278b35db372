//! The agent: a local proxy whose traffic travels in one session to a gateway.
//!
//! Whatever comes in by a local port becomes a stream of the session: a tunnel by CONNECT, or a
//! request. What becomes of the session is the client's business ([`smig::Client`]) and that of
//! `gateway`, which keeps it there and knows why it is not.

mod accepted;
mod failure;
mod file;
mod gateway;
mod listen;
mod pac;
mod port;
mod proxy;
mod socks;
mod spec;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smig::{Client, ClientBuilder, Config, QueueLimit, SocketOptions};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use file::{AgentFile, EntranceSpec, GatewaySpec, LimitSpec, example};
pub use gateway::Link;
pub use spec::{AgentSpec, Credentials, PortForward, PortProtocol};

use gateway::Gateway;
use listen::{Entrance, accept_all};

use crate::admin::{self, Admin, Subject, Watch};
use crate::telemetry::{self, Telemetry, Tracer};
use crate::tunnel::Tunnels;

/// A running agent. Dropping it ends it at once: what is open is reset.
#[derive(Debug)]
pub struct Agent {
    http: Vec<SocketAddr>,
    socks: Vec<SocketAddr>,
    forwards: Vec<SocketAddr>,
    gateway: Arc<Gateway>,
    admin: Option<Admin>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
    telemetry: Option<Telemetry>,
}

/// What every entrance of an agent shares.
#[derive(Debug)]
struct Shared {
    gateway: Arc<Gateway>,
    /// Where the SOCKS entrance is, for the PAC file.
    socks: Option<SocketAddr>,
    tunnel_idle: Option<Duration>,
    tunnels: Tunnels,
    /// Who sends spans to a collector.
    tracer: Option<Tracer>,
    places: Arc<Semaphore>,
}

/// HTTP/2 settings that fit an agent. Some of its streams may end at programs that do not read: the
/// windows of many of them together fit into the connection's, so that they do not hold up the rest.
#[must_use]
pub fn engine() -> Config {
    Config { stream_window: 2 << 20, connection_window: 64 << 20, ..Config::client() }
}

/// A client's description that fits an agent: its settings, and sockets that notice within half a minute
/// that the gateway, or the network to it, is gone.
#[must_use]
pub fn client() -> ClientBuilder {
    let noticing = |mut options: SocketOptions| {
        options.dead_after = Some(Duration::from_secs(30));
        options
    };
    Client::builder()
        .engine(engine())
        .interactive_socket(noticing(SocketOptions::interactive()))
        .bulk_socket(noticing(SocketOptions::bulk()))
}

/// Requests that may wait for the gateway, however few connections may be open: calls share them.
const MIN_QUEUE: usize = 1024;

impl Agent {
    /// Binds the local addresses and begins to connect to the gateway. `client` begins as [`client()`],
    /// and says whom to trust.
    ///
    /// # Errors
    /// An address that cannot be bound, certificates that cannot be read.
    pub async fn start(spec: AgentSpec, client: ClientBuilder) -> io::Result<Self> {
        let telemetry = spec.telemetry.as_ref();
        let telemetry = telemetry.map(|spec| Telemetry::start(spec, "smig-agent")).transpose();
        let telemetry =
            telemetry.map_err(|error| io::Error::other(format!("telemetry: {error}")))?;
        let watch = spec.admin.as_ref().map(|_| Watch::new());
        // Whatever is accepted may wait for the gateway.
        let client = client.queue(QueueLimit::new(spec.max_connections.max(MIN_QUEUE)));
        let client = match &watch {
            Some(watch) => client.observer(watch.clone()).describe_streams(admin::NAME_LENGTH),
            None => client,
        };
        let client = client.build().map_err(io::Error::other)?;
        let gateway = Gateway::new(client.clone(), spec.via, spec.credentials);
        let tunnels = Tunnels::of_agent();
        let admin = match (&spec.admin, watch) {
            (Some(spec), Some(watch)) => {
                let mut subject = Subject::new("smig agent", client, watch)
                    .report(Arc::new(tunnels.clone()))
                    .ready(ready(gateway.link()));
                if let Some(telemetry) = &telemetry {
                    subject = subject.report(telemetry.tally());
                }
                Some(admin::start(spec, subject).map_err(io::Error::other)?)
            }
            _ => None,
        };
        let (stopping, stop) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let gateway = Arc::clone(&gateway);
            async move { gateway.keep().await }
        });
        let bound = [bind(&spec.listen).await?, bind(&spec.socks).await?];
        let [http, socks] = &bound;
        let shared = Arc::new(Shared {
            gateway: Arc::clone(&gateway),
            socks: addresses(socks)?.first().copied(),
            tunnel_idle: spec.tunnel_idle,
            tunnels: tunnels.clone(),
            tracer: telemetry.as_ref().map(Telemetry::tracer),
            places: Arc::new(Semaphore::new(spec.max_connections.min(Semaphore::MAX_PERMITS))),
        });
        let (http, socks_addrs) = (addresses(http)?, addresses(socks)?);
        let mut forwards = Vec::new();
        let mut entrances: Vec<(TcpListener, Entrance)> = Vec::new();
        for (listeners, entrance) in bound.into_iter().zip([Entrance::Http, Entrance::Socks]) {
            entrances.extend(listeners.into_iter().map(|listener| (listener, entrance.clone())));
        }
        for forward in spec.forwards {
            let listener = bind_one(forward.listen).await?;
            forwards.push(listener.local_addr()?);
            entrances.push((listener, Entrance::Port(Arc::new(forward))));
        }
        for (listener, entrance) in entrances {
            tasks.spawn(accept_all(listener, entrance, Arc::clone(&shared), stop.clone()));
        }
        Ok(Self { http, socks: socks_addrs, forwards, gateway, admin, stopping, tasks, telemetry })
    }

    /// The addresses of the HTTP proxy, ports filled in.
    #[must_use]
    pub fn http_addrs(&self) -> &[SocketAddr] {
        &self.http
    }

    /// The addresses of the SOCKS proxy, ports filled in.
    #[must_use]
    pub fn socks_addrs(&self) -> &[SocketAddr] {
        &self.socks
    }

    /// The forwarded ports' addresses, in their order, ports filled in.
    #[must_use]
    pub fn forward_addrs(&self) -> &[SocketAddr] {
        &self.forwards
    }

    /// Where the live page is.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::local_addr)
    }

    /// How things stand with the gateway, now and whenever it changes.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.gateway.link()
    }

    /// Counters of the client.
    #[must_use]
    pub fn stats(&self) -> smig::Stats {
        self.gateway.stats()
    }

    /// Stops in order: nothing new is accepted, what runs may finish; what still runs after `limit` is
    /// reset. The last spans are sent then, for three seconds at most.
    pub async fn shutdown(mut self, limit: Duration) {
        self.stopping.send_replace(true);
        self.gateway.stop();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(limit, ended).await.is_err() {
            tracing::debug!("what still runs is reset");
        }
        self.tasks.shutdown().await;
        if let Some(telemetry) = self.telemetry {
            telemetry.end(telemetry::LAST).await;
        }
    }
}

/// Work is welcome while the gateway is there.
fn ready(link: watch::Receiver<Link>) -> impl Fn() -> Result<(), String> {
    move || match &*link.borrow() {
        Link::Up(_) => Ok(()),
        Link::Connecting => Err("connecting to the gateway".to_owned()),
        Link::Away(why) => Err(format!("the gateway is away: {why}")),
    }
}

async fn bind(addrs: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for &addr in addrs {
        listeners.push(bind_one(addr).await?);
    }
    Ok(listeners)
}

async fn bind_one(addr: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(addr).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on {addr}: {error}; is it in use already?"),
        )
    })
}

fn addresses(listeners: &[TcpListener]) -> io::Result<Vec<SocketAddr>> {
    listeners.iter().map(TcpListener::local_addr).collect()
}
