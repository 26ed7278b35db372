//! A running agent: binds the local ports, connects to the gateway, and drains.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smig::{Client, ClientBuilder, Config, QueueLimit, SocketOptions};
use smig_admin::telemetry::{self, Telemetry};
use smig_admin::{self as admin, Admin, AdminObserver, AdminTarget};
use smig_proxy::tunnel::TunnelRegistry;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::listen::{LocalProtocol, accept_all};
use crate::options::AgentOptions;
use crate::shared::SharedState;
use crate::uplink::{Uplink, UplinkState};

/// A running agent. Dropping it stops it at once: local connections are closed, and reset if a response or tunnel is incomplete.
#[derive(Debug)]
pub struct Agent {
    http_addrs: Vec<SocketAddr>,
    socks_addrs: Vec<SocketAddr>,
    forward_addrs: Vec<SocketAddr>,
    uplink: Arc<Uplink>,
    admin: Option<Admin>,
    shutdown_sender: watch::Sender<bool>,
    tasks: JoinSet<()>,
    telemetry: Option<Telemetry>,
}

/// HTTP/2 settings for an agent. Some of its streams may end at programs that do not read: the
/// connection's window is as large as those of many streams, so that they do not block the others.
#[must_use]
pub fn engine_config() -> Config {
    Config { stream_window: 2 << 20, connection_window: 64 << 20, ..Config::client() }
}

/// A client builder for an agent: its HTTP/2 settings, and sockets that detect within half a minute that the
/// gateway, or the network path to it, is lost.
#[must_use]
pub fn client_builder() -> ClientBuilder {
    let with_user_timeout = |mut options: SocketOptions| {
        options.user_timeout = Some(Duration::from_secs(30));
        options
    };
    Client::builder()
        .engine(engine_config())
        .interactive_socket(with_user_timeout(SocketOptions::interactive()))
        .bulk_socket(with_user_timeout(SocketOptions::bulk()))
}

/// Minimum length of the queue of requests that wait for the gateway, however few connections are allowed:
/// one connection may carry many gRPC calls.
const MIN_QUEUED_REQUESTS: usize = 1024;

impl Agent {
    /// Binds the local addresses and starts to connect to the gateway. `client` is based on
    /// [`client_builder()`], and sets the trusted CAs.
    ///
    /// # Errors
    /// An address that cannot be bound, certificates that cannot be read, or an invalid telemetry or admin
    /// configuration.
    pub async fn start(options: AgentOptions, client: ClientBuilder) -> io::Result<Self> {
        let telemetry = options.telemetry.as_ref();
        let telemetry = telemetry.map(|spec| Telemetry::start(spec, "smig-agent")).transpose();
        let telemetry =
            telemetry.map_err(|error| io::Error::other(format!("telemetry: {error}")))?;
        let observer = options.admin.as_ref().map(|_| AdminObserver::new());
        // Everything that is accepted may wait for the gateway.
        let client =
            client.queue(QueueLimit::new(options.max_connections.max(MIN_QUEUED_REQUESTS)));
        let client = match &observer {
            Some(observer) => {
                client.observer(observer.clone()).request_label_limit(admin::MAX_LABEL_BYTES)
            }
            None => client,
        };
        let client = client.build().map_err(io::Error::other)?;
        let uplink = Uplink::new(client.clone(), options.gateway, options.credentials);
        let tunnels = TunnelRegistry::of_agent();
        let admin = match (&options.admin, observer) {
            (Some(spec), Some(observer)) => {
                let mut target = AdminTarget::new("smig agent", client, observer)
                    .with_stats(Arc::new(tunnels.clone()))
                    .with_readiness(readiness_check(uplink.state()));
                if let Some(telemetry) = &telemetry {
                    target = target.with_stats(telemetry.stats());
                }
                Some(admin::start(spec, target).map_err(io::Error::other)?)
            }
            _ => None,
        };
        let (shutdown_sender, shutdown) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let uplink = Arc::clone(&uplink);
            async move { uplink.run().await }
        });
        let proxy_listeners = [bind_all(&options.http).await?, bind_all(&options.socks).await?];
        let [http_listeners, socks_listeners] = &proxy_listeners;
        let shared = Arc::new(SharedState {
            uplink: Arc::clone(&uplink),
            socks_addr: local_addrs(socks_listeners)?.first().copied(),
            tunnel_idle_timeout: options.tunnel_idle_timeout,
            tunnels: tunnels.clone(),
            tracer: telemetry.as_ref().map(Telemetry::tracer),
            connection_permits: Arc::new(Semaphore::new(
                options.max_connections.min(Semaphore::MAX_PERMITS),
            )),
        });
        let (http_addrs, socks_addrs) =
            (local_addrs(http_listeners)?, local_addrs(socks_listeners)?);
        let mut forward_addrs = Vec::new();
        let mut ports: Vec<(TcpListener, LocalProtocol)> = Vec::new();
        for (listeners, protocol) in
            proxy_listeners.into_iter().zip([LocalProtocol::Http, LocalProtocol::Socks])
        {
            ports.extend(listeners.into_iter().map(|listener| (listener, protocol.clone())));
        }
        for forward in options.forwards {
            let listener = bind_one(forward.listen).await?;
            forward_addrs.push(listener.local_addr()?);
            ports.push((listener, LocalProtocol::PortForward(Arc::new(forward))));
        }
        for (listener, protocol) in ports {
            tasks.spawn(accept_all(listener, protocol, Arc::clone(&shared), shutdown.clone()));
        }
        Ok(Self {
            http_addrs,
            socks_addrs,
            forward_addrs,
            uplink,
            admin,
            shutdown_sender,
            tasks,
            telemetry,
        })
    }

    /// The addresses of the HTTP proxy, with the actual ports.
    #[must_use]
    pub fn http_addrs(&self) -> &[SocketAddr] {
        &self.http_addrs
    }

    /// The addresses of the SOCKS proxy, with the actual ports.
    #[must_use]
    pub fn socks_addrs(&self) -> &[SocketAddr] {
        &self.socks_addrs
    }

    /// The addresses of the forwarded ports, in configuration order, with the actual ports.
    #[must_use]
    pub fn forward_addrs(&self) -> &[SocketAddr] {
        &self.forward_addrs
    }

    /// The address of the admin page.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::local_addr)
    }

    /// The state of the connection to the gateway, and its changes.
    #[must_use]
    pub fn uplink_state(&self) -> watch::Receiver<UplinkState> {
        self.uplink.state()
    }

    /// Counters of the client.
    #[must_use]
    pub fn stats(&self) -> smig::Stats {
        self.uplink.stats()
    }

    /// Shuts down gracefully: stops accepting, and lets active exchanges finish; those still active
    /// after `drain_timeout` are reset. Then the last spans are sent, for three seconds at most. Returns the final
    /// counters.
    pub async fn shutdown(mut self, drain_timeout: Duration) -> smig::Stats {
        self.shutdown_sender.send_replace(true);
        self.uplink.stop();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(drain_timeout, ended).await.is_err() {
            tracing::debug!("the remaining streams were reset");
        }
        self.tasks.shutdown().await;
        if let Some(telemetry) = self.telemetry {
            telemetry.shutdown(telemetry::FLUSH_TIMEOUT).await;
        }
        self.uplink.stats()
    }
}

/// The readiness check: ready while the gateway is connected.
fn readiness_check(state: watch::Receiver<UplinkState>) -> impl Fn() -> Result<(), String> {
    move || match &*state.borrow() {
        UplinkState::Up(_) => Ok(()),
        UplinkState::Connecting => Err("connecting to the gateway".to_owned()),
        UplinkState::Unreachable(why) => Err(format!("the gateway cannot be reached: {why}")),
    }
}

async fn bind_all(addrs: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
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

fn local_addrs(listeners: &[TcpListener]) -> io::Result<Vec<SocketAddr>> {
    listeners.iter().map(TcpListener::local_addr).collect()
}
