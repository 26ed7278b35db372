//! A worker's connections to the servers of each upstream.
//!
//! Nothing here is shared between threads: an exchange finds its connection without a lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smig::{
    Cleartext, CleartextTrust, Client, Config, NegotiatedProtocol, Origin, SocketOptions, Trust,
};
use smig_proxy::ProxyError;
use smig_proxy::conn_pool::{ConnOrPermit, Http1Conn, Lease, Pool};
use smig_proxy::dial::{AlpnOffer, Io, ServerAddr, TCP_KEEPALIVE_TIMEOUT, Tls, connect};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::Upstream;
use super::server::UpstreamServer;
use super::spec::Protocol;

/// Interval between the checks of idle connections, and timeout of the lookup for each.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// Keyed by the upstream's ID.
    static POOLS: RefCell<HashMap<usize, Rc<WorkerPools>>> = RefCell::default();
}

/// One worker's connections to one upstream's servers, in the order of the servers.
#[derive(Debug)]
pub(crate) struct WorkerPools {
    pools: Vec<ServerPool>,
}

/// One worker's connections to one server.
#[derive(Debug)]
pub(crate) struct ServerPool {
    http1: Rc<Pool>,
    http2_client: RefCell<Option<Rc<Http2Client>>>,
}

/// An HTTP/2 client with a session to one server.
#[derive(Debug)]
pub(crate) struct Http2Client {
    pub(crate) client: Client,
    pub(crate) origin: Origin,
    /// The value of `:scheme`.
    pub(crate) scheme: http::uri::Scheme,
}

/// A connection, before a request uses it.
enum UnusedConn {
    /// An idle connection of the pool.
    Idle(Lease),
    New(Io, OwnedSemaphorePermit),
}

/// The connection for a request.
#[derive(Debug)]
pub(crate) enum Connection {
    Http1(Lease),
    Http2(Rc<Http2Client>),
}

impl WorkerPools {
    /// Returns this thread's connections to the upstream.
    pub(crate) fn get_or_create(upstream: &Arc<Upstream>) -> Rc<Self> {
        POOLS.with_borrow_mut(|pools_by_id| {
            if let Some(worker_pools) = pools_by_id.get(&upstream.id) {
                return Rc::clone(worker_pools);
            }
            let pools = upstream.servers.iter().map(ServerPool::new).collect();
            let worker_pools = Rc::new(Self { pools });
            pools_by_id.insert(upstream.id, Rc::clone(&worker_pools));
            let (id, removal_rx) = (upstream.id, upstream.removal_tx.subscribe());
            tokio::task::spawn_local(evict_until_removed(Arc::downgrade(upstream), id, removal_rx));
            worker_pools
        })
    }

    pub(crate) fn pool(&self, server_index: usize) -> Option<&ServerPool> {
        self.pools.get(server_index)
    }
}

/// Checks idle connections at intervals. Closes all of them as soon as the upstream is dropped: its replacement
/// counts its connections from zero.
async fn evict_until_removed(
    upstream: Weak<Upstream>,
    id: usize,
    mut removal_rx: watch::Receiver<()>,
) {
    while timeout(EVICTION_INTERVAL, removal_rx.changed()).await.is_err() {
        let worker_pools = POOLS.with_borrow(|workers| workers.get(&id).cloned());
        let (Some(upstream), Some(worker)) = (upstream.upgrade(), worker_pools) else { break };
        for (pool, server) in worker.pools.iter().zip(&upstream.servers) {
            pool.evict_idle(&upstream, server).await;
        }
    }
    let removed = POOLS.with_borrow_mut(|workers| workers.remove(&id));
    drop(removed);
}

impl ServerPool {
    fn new(server: &UpstreamServer) -> Self {
        Self { http1: Pool::new(&server.limits), http2_client: RefCell::default() }
    }

    /// Closes idle connections, and those to addresses that the server's name no longer resolves to.
    async fn evict_idle(&self, upstream: &Upstream, server: &UpstreamServer) {
        let http2_client = self.live_http2_client();
        let addresses = match &server.url().target {
            ServerAddr::Tcp { host, port }
                if host.parse::<IpAddr>().is_err()
                    && (http2_client.is_some() || !self.http1.is_empty()) =>
            {
                // If the lookup fails, leave all connections as they are.
                let addresses =
                    timeout(EVICTION_INTERVAL, upstream.resolver.resolve(host, *port)).await;
                addresses.ok().and_then(Result::ok)
            }
            ServerAddr::Tcp { .. } | ServerAddr::Unix(_) => None,
        };
        // A session waits for a slot without being counted among the requests that wait in the pools.
        let is_slot_wanted = server.connections_limit.has_waiters();
        let idle_timeout =
            if is_slot_wanted { Duration::ZERO } else { upstream.timeouts.keepalive };
        self.http1.evict_idle(idle_timeout, addresses.as_deref());
        let Some(http2_client) = http2_client else { return };
        if let Some(addresses) = addresses {
            http2_client.client.set_addresses(&http2_client.origin, &addresses);
        }
        if is_slot_wanted {
            // A worker without a session waits for a slot: free this one after the last request.
            http2_client.client.retire(&http2_client.origin);
        } else if server.has_waiting() {
            // A request waits for HTTP/1.1, as a WebSocket may: it must not displace requests of
            // this session.
            http2_client.client.retire_if_idle(&http2_client.origin);
        }
    }

    /// Returns the HTTP/2 client, unless its session has ended: after [`Timeouts::keepalive`] without a request,
    /// or because it never connected. The name of an ended session need not be resolved any more.
    ///
    /// [`Timeouts::keepalive`]: super::Timeouts::keepalive
    fn live_http2_client(&self) -> Option<Rc<Http2Client>> {
        let mut slot = self.http2_client.borrow_mut();
        // A request holds a reference until the client has a session.
        let has_ended = |http2_client: &mut Rc<Http2Client>| {
            Rc::strong_count(http2_client) == 1
                && !http2_client.client.has_session(&http2_client.origin)
        };
        drop(slot.take_if(has_ended));
        slot.clone()
    }

    /// Returns a connection for a request.
    pub(crate) async fn connection(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
    ) -> Result<Connection, ProxyError> {
        let url = server.url();
        let uses_http2 = match url.protocol {
            Protocol::Http1 => false,
            Protocol::Https => server.selects_http2(),
            Protocol::H2c | Protocol::Smig => true,
        };
        if uses_http2 {
            return self.get_or_create_http2_client(upstream, server).map(Connection::Http2);
        }
        if let Some(lease) = self.http1.checkout() {
            return Ok(Connection::Http1(lease));
        }
        // The future is large: boxed, it does not enlarge that of requests that reuse a connection.
        Box::pin(self.connect(upstream, server)).await
    }

    /// Returns a connection for the handshake of a WebSocket.
    pub(crate) async fn websocket_connection(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
    ) -> Result<Connection, ProxyError> {
        match server.websockets_need_http1() {
            false => self.connection(upstream, server).await,
            true => self.http1_connection(upstream, server).await.map(Connection::Http1),
        }
    }

    /// Records that the session cannot carry a WebSocket: the server's HTTP/2 has no extended
    /// CONNECT, or the server supports only HTTP/1.1 by now. Returns an HTTP/1.1 connection if the
    /// server may support that.
    pub(crate) async fn fall_back_to_http1(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
        http2_client: &Http2Client,
    ) -> Result<Lease, ProxyError> {
        match server.url().protocol {
            Protocol::Https => {
                if http2_client.has_only_http1(upstream.timeouts.connect).await {
                    http2_client.record_fallback(server);
                } else {
                    server.set_websockets_need_http1(true);
                }
                self.http1_connection(upstream, server).await
            }
            Protocol::Http1 | Protocol::H2c | Protocol::Smig => Err(ProxyError::NoExtendedConnect),
        }
    }

    /// Returns an HTTP/1.1 connection to a server that selects HTTP/2 if it is offered.
    async fn http1_connection(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
    ) -> Result<Lease, ProxyError> {
        if let Some(lease) = self.http1.checkout() {
            return Ok(lease);
        }
        match Box::pin(self.dial(upstream, server, AlpnOffer::Http1)).await {
            Ok(UnusedConn::Idle(lease)) => Ok(lease),
            Ok(UnusedConn::New(io, permit)) if io.has_alpn() => {
                Ok(self.http1.lease_new(Http1Conn::handshake(io, permit).await?))
            }
            Ok(UnusedConn::New(io, permit)) => {
                // The server selected nothing: it has no ALPN any more, or supports only HTTP/2 and
                // sends no alert. An offer of both distinguishes these cases.
                drop((io, permit));
                server.set_websockets_need_http1(false);
                match Box::pin(self.connect(upstream, server)).await? {
                    Connection::Http1(lease) => Ok(lease),
                    Connection::Http2(_) => Err(ProxyError::NoExtendedConnect),
                }
            }
            Err(ProxyError::Tls(fault)) if fault.is_alert() => {
                // The server supports only HTTP/2, which is not a failure.
                server.set_websockets_need_http1(false);
                Err(ProxyError::NoExtendedConnect)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits for a connection of the pool, or opens a new one.
    async fn connect(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
    ) -> Result<Connection, ProxyError> {
        let (io, permit) = match self.dial(upstream, server, AlpnOffer::Both).await? {
            UnusedConn::Idle(lease) => return Ok(Connection::Http1(lease)),
            UnusedConn::New(io, permit) => (io, permit),
        };
        if io.is_h2() {
            // The session opens its own connection; this one only served to determine the protocol.
            server.set_selects_http2(true);
            drop((io, permit));
            return self.get_or_create_http2_client(upstream, server).map(Connection::Http2);
        }
        server.set_selects_http2(false);
        Ok(Connection::Http1(self.http1.lease_new(Http1Conn::handshake(io, permit).await?)))
    }

    /// Waits until a connection is checked in, or opens a new one.
    async fn dial(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
        offer: AlpnOffer,
    ) -> Result<UnusedConn, ProxyError> {
        let (url, timeouts) = (server.url(), &upstream.timeouts);
        let permit = match self.http1.acquire(timeouts.queue).await? {
            ConnOrPermit::Idle(lease) => return Ok(UnusedConn::Idle(lease)),
            ConnOrPermit::Permit(permit) => permit,
        };
        server.on_connection_attempt();
        let trust = &upstream.trust;
        let tls = (url.protocol == Protocol::Https).then_some(Tls { trust, alpn: offer });
        let io = timeout(timeouts.connect, connect(&url.target, &upstream.resolver, tls))
            .await
            .map_err(|_| ProxyError::ConnectTimeout)??;
        Ok(UnusedConn::New(io, permit))
    }

    fn get_or_create_http2_client(
        &self,
        upstream: &Upstream,
        server: &UpstreamServer,
    ) -> Result<Rc<Http2Client>, ProxyError> {
        let mut slot = self.http2_client.borrow_mut();
        if let Some(http2_client) = &*slot {
            return Ok(Rc::clone(http2_client));
        }
        let http2_client =
            Http2Client::new(upstream, server, ApplyLimits::Yes).map_err(ProxyError::from_smig)?;
        Ok(Rc::clone(slot.insert(Rc::new(http2_client))))
    }
}

/// Whether connections and requests count towards the server's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApplyLimits {
    Yes,
    /// A health check, which must also work while the server is at its limits.
    No,
}

impl Http2Client {
    /// Creates a client for a server; it connects on first use.
    pub(super) fn new(
        upstream: &Upstream,
        server: &UpstreamServer,
        apply_limits: ApplyLimits,
    ) -> Result<Self, smig::Error> {
        let url = server.url();
        let timeouts = &upstream.timeouts;
        let with_keepalive = |mut options: SocketOptions| {
            options.keepalive_timeout = Some(TCP_KEEPALIVE_TIMEOUT);
            options
        };
        let mut builder = Client::builder();
        if apply_limits == ApplyLimits::Yes {
            builder = builder
                .queue(server.queue_limit.clone())
                .queue_timeout(timeouts.queue)
                .connections(server.connections_limit.clone());
        }
        let client = builder
            .trust(Trust::Loaded(upstream.trust.clone()))
            .resolver(upstream.resolver.clone())
            // Each worker has its own connection to an upstream server already.
            .plain_connections(1)
            .interactive_socket(with_keepalive(SocketOptions::interactive()))
            .bulk_socket(with_keepalive(SocketOptions::bulk()))
            .engine(engine_config(url.protocol))
            .cleartext(match url.protocol {
                Protocol::H2c => Cleartext::PriorKnowledge(CleartextTrust::None),
                Protocol::Http1 | Protocol::Https | Protocol::Smig => Cleartext::Http1,
            })
            .connect_timeout(timeouts.connect)
            .handshake_timeout(timeouts.connect)
            .idle_timeout(timeouts.keepalive)
            .build()?;
        let (host, port) = match &url.target {
            ServerAddr::Tcp { host, port } => (host.clone(), *port),
            // Unix sockets are used with HTTP/1.1 only.
            ServerAddr::Unix(_) => (String::new(), 0),
        };
        Ok(match url.protocol {
            Protocol::Http1 | Protocol::H2c => {
                Self { client, origin: Origin::http(host, port), scheme: http::uri::Scheme::HTTP }
            }
            Protocol::Https | Protocol::Smig => {
                Self { client, origin: Origin::https(host, port), scheme: http::uri::Scheme::HTTPS }
            }
        })
    }

    /// Records that the server selected HTTP/1.1 for this session. If the server may speak both, the session is retired:
    /// once the server selects HTTP/2 again, a new session is needed.
    pub(crate) fn record_fallback(&self, server: &UpstreamServer) {
        server.set_selects_http2(false);
        if server.url().protocol == Protocol::Https {
            self.client.retire(&self.origin);
        }
    }

    /// Returns whether there is a session, and it negotiated HTTP/1.1.
    async fn has_only_http1(&self, connect_timeout: Duration) -> bool {
        // Without a session, `connect` would open one.
        self.client.has_session(&self.origin)
            && timeout(connect_timeout, self.client.connect(&self.origin))
                .await
                .is_ok_and(|protocol| matches!(protocol, Ok(NegotiatedProtocol::Http1)))
    }
}

/// Returns the HTTP/2 settings for a server. All clients of a worker share its session, and some of
/// them read nothing: the connection window has room for as many stream windows as our servers
/// allow streams, so that stalled streams do not block others. It is an upper bound, and uses
/// memory only if streams stall. The stream window is that of the agent, so that the path behind
/// the gateway is no slower than the path in front of it: 1 Gbit/s at an RTT of 16 ms, 320 Mbit/s
/// at 50 ms.
fn engine_config(protocol: Protocol) -> Config {
    let windows =
        Config { stream_window: 2 << 20, connection_window: 256 << 20, ..Config::client() };
    match protocol {
        Protocol::Smig => windows,
        Protocol::Http1 | Protocol::H2c | Protocol::Https => Config { smig: None, ..windows },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::UpstreamSpec;

    #[tokio::test(start_paused = true)]
    async fn connections_are_closed_as_soon_as_their_upstream_is_dropped() {
        let local = tokio::task::LocalSet::new();
        let run = async {
            let spec = UpstreamSpec::new(vec!["http://a.example".parse().unwrap()]);
            let upstream = Upstream::new("a", &spec).unwrap();
            let worker_pools = Rc::downgrade(&WorkerPools::get_or_create(&upstream));
            // Let the task run until it waits.
            tokio::time::sleep(EVICTION_INTERVAL * 2).await;
            assert!(worker_pools.upgrade().is_some());
            let started_at = tokio::time::Instant::now();
            drop(upstream);
            while worker_pools.upgrade().is_some() {
                // The paused clock advances only when no task is ready.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(started_at.elapsed() < EVICTION_INTERVAL / 10, "{:?}", started_at.elapsed());
        };
        local.run_until(run).await;
    }
}
