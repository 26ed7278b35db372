//! The forward proxy: tunnels and requests to other hosts, for authenticated users.
//!
//! Names are looked up by a resolver that filters out forbidden addresses, and only its results are
//! dialed: this defeats DNS rebinding.

mod address;
mod dial;
mod failure;
mod origin_pool;
mod origins;
mod pattern;
mod rules;
mod spec;
mod users;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::PROXY_AUTHORIZATION;
use http::uri::Authority;
use http::{Method, Request, Response, Uri, Version};
use smig::{ConnectionInfo, Incoming, Protocol, Resolver, throttled};
use smig_proxy::framing;
use smig_proxy::tunnel::{self, Socket, Tunnel, TunnelEndpoint, TunnelKind, TunnelRegistry};

pub use address::Nat64;
pub use pattern::{DestinationPattern, PortRange};
pub use spec::ForwardProxySpec;
pub use users::SecretDigest;

use crate::exchange::Body;
use dial::HostPort;
use failure::ForwardError;
use origin_pool::OriginPool;
use rules::DestinationRules;
use users::Users;

/// Placeholder for an unknown client address.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A forward proxy, shared by all workers.
#[derive(Debug)]
pub struct ForwardProxy {
    users: Users,
    destinations: Arc<Destinations>,
    spec: ForwardProxySpec,
    open_tunnels: Arc<TunnelCounts>,
    tunnels: TunnelRegistry,
}

/// The rules, the resolver and the connections to other hosts; independent of the users.
#[derive(Debug)]
struct Destinations {
    rules: Arc<DestinationRules>,
    resolver: Resolver,
    origins: OriginPool,
}

/// Number of tunnels per user that are open or being opened.
#[derive(Debug, Default)]
struct TunnelCounts(Mutex<HashMap<String, usize>>);

impl Destinations {
    fn new(spec: &ForwardProxySpec) -> Arc<Self> {
        let rules = Arc::new(DestinationRules::new(spec));
        let resolver_rules = Arc::clone(&rules);
        let resolver = Resolver::isolated().with_check(move |host, addr| {
            resolver_rules.check_address(host, addr.ip(), addr.port())
        });
        Arc::new(Self { rules, origins: OriginPool::new(spec, resolver.clone()), resolver })
    }
}

impl ForwardProxy {
    /// Creates a proxy, whose tunnels are counted in `tunnels`.
    ///
    /// # Errors
    /// There are no users, or the users file cannot be read.
    pub fn new(spec: ForwardProxySpec, tunnels: &TunnelRegistry) -> io::Result<Arc<Self>> {
        Self::with_destinations(Destinations::new(&spec), spec, tunnels.clone(), Arc::default())
    }

    /// Returns this proxy with another configuration. Open tunnels still count. If only the users differ, connections
    /// to origins and their statistics remain.
    ///
    /// # Errors
    /// Those of [`ForwardProxy::new`].
    pub fn reconfigured(&self, spec: ForwardProxySpec) -> io::Result<Arc<Self>> {
        let destinations = if self.spec.differs_only_in_users(&spec) {
            Arc::clone(&self.destinations)
        } else {
            Destinations::new(&spec)
        };
        Self::with_destinations(
            destinations,
            spec,
            self.tunnels.clone(),
            Arc::clone(&self.open_tunnels),
        )
    }

    fn with_destinations(
        destinations: Arc<Destinations>,
        spec: ForwardProxySpec,
        tunnels: TunnelRegistry,
        open_tunnels: Arc<TunnelCounts>,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { users: Users::new(&spec)?, destinations, spec, open_tunnels, tunnels }))
    }

    /// Denies the admin port, at every address of this machine, whatever the rules allow. There is only one.
    pub(crate) fn deny_admin_port(&self, port: u16) {
        self.destinations.rules.deny_admin_port(port);
    }

    /// Serves CONNECT, or a request for another host. `subject` is the name in the client's verified certificate, if
    /// it sent one. Every failure is a response whose Proxy-Status gives the reason (RFC 9209).
    pub async fn serve(
        &self,
        mut request: Request<Incoming>,
        subject: Option<&str>,
    ) -> Response<Body> {
        let Some(user) = self.users.find(request.headers(), subject) else {
            throttled!(info, "unknown user", uri = %request.uri(), "rejected an unknown user");
            return failure::authentication_required();
        };
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let uri = request.uri().clone();
        let result = if *request.method() == Method::CONNECT {
            self.connect(request, &user).await
        } else {
            self.exchange(request, &user).await
        };
        result.unwrap_or_else(|failure| {
            let why = failure.detail();
            throttled!(info, "forwarded request", user, %uri, why, "forwarded request failed");
            failure.into_response()
        })
    }

    async fn connect(
        &self,
        request: Request<Incoming>,
        user: &str,
    ) -> Result<Response<Body>, ForwardError> {
        if request.extensions().get::<Protocol>().is_some() {
            return Err(ForwardError::unsupported(
                "extended CONNECT is not forwarded; use CONNECT",
            ));
        }
        // RFC 9110 section 9.3.6: what follows belongs to the tunnel, but hyper would parse it as content.
        if framing::announces_content(request.headers()) {
            return Err(ForwardError::bad_request("content in a CONNECT request"));
        }
        let target = parse_target(request.uri(), None)?;
        self.destinations.rules.check_name(&target.host, target.port)?;
        let permit = TunnelPermit::acquire(self, user)?;
        let resolver = self.destinations.resolver.clone().for_client(user);
        let tcp = dial::dial(&target, &resolver, self.spec.connect_timeout).await?;
        Ok(self.open_tunnel(request, Socket::new(tcp), permit, target))
    }

    /// Starts a task that relays between the client and the connected socket; returns the response
    /// that opens the tunnel.
    fn open_tunnel(
        &self,
        mut request: Request<Incoming>,
        remote: Socket<tokio::net::TcpStream>,
        permit: TunnelPermit,
        target: HostPort,
    ) -> Response<Body> {
        let idle_timeout = self.spec.tunnel_idle_timeout;
        let tunnel = self.tunnels.begin(TunnelKind::Connect, request.body().stream_info());
        if request.version() == Version::HTTP_2 {
            let (downstream, body) = tunnel::accept(request.into_body());
            tokio::spawn(run_tunnel(tunnel, downstream, remote, idle_timeout, permit, target));
            return Response::new(Body::new(body));
        }
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            match upgraded.await.map_err(io::Error::other).and_then(Socket::of_client) {
                Ok(downstream) => {
                    run_tunnel(tunnel, downstream, remote, idle_timeout, permit, target).await
                }
                Err(error) => tracing::debug!(%error, "the client of a tunnel disconnected"),
            }
        });
        Response::new(Body::empty())
    }

    async fn exchange(
        &self,
        request: Request<Incoming>,
        user: &str,
    ) -> Result<Response<Body>, ForwardError> {
        if request.uri().scheme_str() != Some("http") {
            return Err(ForwardError::bad_request(
                "only http:// is forwarded; use CONNECT for https://",
            ));
        }
        let target = parse_target(request.uri(), Some(80))?;
        tracing::debug!(user, %target, "request forwarded");
        // An open connection is reused without a lookup, and the resolver checks only addresses.
        self.destinations.rules.check_name(&target.host, target.port)?;
        let info = request.extensions().get::<Arc<ConnectionInfo>>();
        let client = info.map_or(UNKNOWN_CLIENT, |info| info.peer_addr());
        self.destinations.origins.send(request, user, &target, client, &self.tunnels).await
    }
}

async fn run_tunnel<A: TunnelEndpoint, B: TunnelEndpoint>(
    tunnel: Tunnel,
    downstream: A,
    remote: B,
    idle_timeout: Option<std::time::Duration>,
    permit: TunnelPermit,
    target: HostPort,
) {
    let outcome = tunnel.run(downstream, remote, idle_timeout).await;
    let user = &permit.user;
    let (to_remote, to_client) = (outcome.bytes_to_remote, outcome.bytes_to_client);
    match outcome.end {
        Ok(()) => tracing::debug!(user, %target, to_remote, to_client, "tunnel ended"),
        Err(error) => tracing::debug!(user, %target, to_remote, to_client, %error, "tunnel failed"),
    }
}

/// Returns the destination of a request, from its authority.
fn parse_target(uri: &Uri, default_port: Option<u16>) -> Result<HostPort, ForwardError> {
    let bad_authority = || ForwardError::bad_request("the authority is not host:port");
    let authority =
        uri.authority().filter(|a| !a.as_str().contains('@')).ok_or_else(bad_authority)?;
    let port = authority.port_u16().or_else(|| default_port.filter(|_| has_no_port(authority)));
    let port = port.filter(|&port| port != 0).ok_or_else(bad_authority)?;
    HostPort::new(authority.host(), port).ok_or_else(bad_authority)
}

fn has_no_port(authority: &Authority) -> bool {
    authority.as_str().len() == authority.host().len()
}

/// Counts one tunnel of a user; dropping it ends the count.
#[derive(Debug)]
struct TunnelPermit {
    open_tunnels: Arc<TunnelCounts>,
    user: String,
}

impl TunnelPermit {
    fn acquire(proxy: &ForwardProxy, user: &str) -> Result<Self, ForwardError> {
        let mut counts = proxy.open_tunnels.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(user.to_owned()).or_default();
        if *count >= proxy.spec.max_tunnels {
            let limit = proxy.spec.max_tunnels;
            throttled!(warn, "tunnels of a user", user, limit, "limit reached: tunnels per user");
            return Err(ForwardError::too_many_tunnels(proxy.spec.max_tunnels));
        }
        *count += 1;
        Ok(Self { open_tunnels: Arc::clone(&proxy.open_tunnels), user: user.to_owned() })
    }
}

impl Drop for TunnelPermit {
    fn drop(&mut self) {
        let mut counts = self.open_tunnels.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}
