//! Requests to `http://` origins, over HTTP/1.1, or over HTTP/2 with prior knowledge if the client requests it.
//!
//! A user's origin is an upstream with one server, created by its first request, with the limits, connections and
//! retries of the reverse proxy. Only its resolver differs: it filters out the addresses that the rules forbid.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, Request, Response};
use smig::{Incoming, Resolver};
use smig_proxy::tunnel::TunnelRegistry;

use super::dial::HostPort;
use super::failure::ForwardError;
use super::origins::{OriginKey, OriginProtocol, Origins, UNUSED_TIMEOUT};
use super::spec::ForwardProxySpec;
use crate::exchange::{self, Body, ValidRequest};
use crate::upstream::{Ejection, Timeouts, Upstream, UpstreamSpec};
use smig_proxy::ORIGIN_PROTOCOL;

/// Connections to origins.
#[derive(Debug)]
pub(super) struct OriginPool {
    resolver: Resolver,
    timeouts: Timeouts,
    max_connections: usize,
    max_pending_requests: usize,
    origins: Mutex<Origins>,
}

impl OriginPool {
    /// Creates an empty pool, with `resolver` for the origins' names.
    pub(super) fn new(spec: &ForwardProxySpec, resolver: Resolver) -> Self {
        let timeouts = Timeouts {
            connect: spec.connect_timeout,
            queue: spec.connect_timeout,
            response_header: spec.response_timeout,
            // A response may stall: the client decides how long it waits.
            stream_idle: None,
            keepalive: UNUSED_TIMEOUT,
            ..Timeouts::default()
        };
        Self {
            resolver,
            timeouts,
            max_connections: spec.max_connections,
            max_pending_requests: spec.max_pending_requests,
            origins: Mutex::default(),
        }
    }

    /// Sends a request to its origin and waits for the response's header section.
    ///
    /// # Errors
    /// The request is invalid, or the origin is forbidden, cannot be reached, or sends no valid response.
    pub(super) async fn send(
        &self,
        mut request: Request<Incoming>,
        user: &str,
        target: &HostPort,
        client: SocketAddr,
        tunnels: &TunnelRegistry,
    ) -> Result<Response<Body>, ForwardError> {
        let protocol = match request.headers_mut().remove(ORIGIN_PROTOCOL) {
            Some(value) if value == "h2c" => OriginProtocol::H2c,
            _ => OriginProtocol::Http1,
        };
        let authority = request.uri().authority().cloned();
        let authority = authority.ok_or_else(|| ForwardError::bad_request("no authority"))?;
        let request = prepare(request, &authority)?;
        let upstream = self.find_or_create_origin(user, target, protocol)?;
        let result = request.exchange(&upstream, client, tunnels).await;
        result.map_err(|failure| ForwardError::exchange_failed(&target.to_string(), &failure))
    }

    /// Returns the user's origin as an upstream. Holds no lock across an await.
    fn find_or_create_origin(
        &self,
        user: &str,
        target: &HostPort,
        protocol: OriginProtocol,
    ) -> Result<Arc<Upstream>, ForwardError> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        origins
            .find_or_create(user, (target.clone(), protocol), |key| self.create_origin(user, key))
    }

    fn create_origin(
        &self,
        user: &str,
        (target, protocol): &OriginKey,
    ) -> Result<Arc<Upstream>, ForwardError> {
        let scheme = match protocol {
            OriginProtocol::Http1 => "http",
            OriginProtocol::H2c => "h2c",
        };
        let bad_authority = || ForwardError::bad_request("the authority is not host:port");
        let url = format!("{scheme}://{target}").parse().map_err(|_| bad_authority())?;
        let spec = UpstreamSpec {
            timeouts: self.timeouts,
            max_connections: self.max_connections,
            max_pending_requests: self.max_pending_requests,
            ejection: Ejection { consecutive_failures: 0, ..Ejection::default() },
            ..UpstreamSpec::new(vec![url])
        };
        let resolver = self.resolver.clone().for_client(user);
        Upstream::with_resolver(target.to_string(), &spec, resolver)
            .map_err(|error| ForwardError::bad_request(&error.to_string()))
    }
}

/// Returns the request in the form for the origin.
fn prepare(
    mut request: Request<Incoming>,
    authority: &Authority,
) -> Result<ValidRequest, ForwardError> {
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Err(ForwardError::bad_request("more than one host"));
    }
    // The target's authority takes precedence over Host (RFC 9112 section 3.2.2).
    let host = HeaderValue::from_str(authority.as_str());
    let host = host.map_err(|_| ForwardError::bad_request("invalid authority"))?;
    request.headers_mut().insert(HOST, host);
    exchange::validate_for_forward_proxy(request)
        .map_err(|failure| ForwardError::invalid_request(&failure))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;
    use crate::forward_proxy::dial;
    use crate::forward_proxy::origins::MAX_ORIGINS_PER_USER;
    use crate::upstream::{ActiveRequest, BalanceInput, TriedServers};
    use smig_proxy::head::{self, UpgradeHandling};

    /// A pool whose lookups block until the sender is dropped: no connection is ever made.
    fn black_hole(spec: &ForwardProxySpec) -> (OriginPool, mpsc::Sender<()>) {
        let (release, blocked) = mpsc::channel();
        let blocked = Mutex::new(blocked);
        let resolver = Resolver::from_fn(move |_| {
            // Block until the test ends.
            let _ = blocked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Err(std::io::Error::other("released"))
        });
        (OriginPool::new(spec, resolver), release)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_end_within_one_timeout_while_the_resolver_blocks() {
        let spec = ForwardProxySpec::default();
        let (pool, _release) = black_hole(&spec);
        let target = HostPort::new("hole.example", 80).unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 1));
        let tunnels = TunnelRegistry::of_gateway();
        let local = tokio::task::LocalSet::new();
        for protocol in ["h2c", "http/1.1"] {
            let started_at = Instant::now();
            let call = || {
                let request = Request::get("http://hole.example/")
                    .header(ORIGIN_PROTOCOL, protocol)
                    .body(Incoming::empty())
                    .unwrap();
                pool.send(request, "ann", &target, client, &tunnels)
            };
            let calls = join_all((0..20).map(|_| call()));
            for answer in local.run_until(calls).await {
                let response = answer.unwrap_err().into_response();
                assert_eq!(response.status(), 504);
            }
            let took = started_at.elapsed();
            assert!(took < spec.connect_timeout * 3 / 2, "{protocol}: {took:?}");
        }
    }

    #[tokio::test]
    async fn a_busy_resolver_is_503_in_every_protocol() {
        assert_all_503(Resolver::from_fn(|_| Err(std::io::ErrorKind::ResourceBusy.into()))).await;
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_checked_is_503_in_every_protocol() {
        let resolver = Resolver::from_fn(|_| Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()]));
        assert_all_503(resolver.with_check(|_, _| Err(std::io::ErrorKind::ResourceBusy.into())))
            .await;
    }

    async fn assert_all_503(resolver: Resolver) {
        let target = HostPort::new("a.example", 80).unwrap();
        let timeout = Duration::from_secs(60);
        let by_connect = dial::dial(&target, &resolver, timeout).await.unwrap_err();
        let mut responses = vec![by_connect.into_response()];
        let pool = OriginPool::new(&ForwardProxySpec::default(), resolver);
        let (client, tunnels) =
            (SocketAddr::from(([192, 0, 2, 1], 1)), TunnelRegistry::of_gateway());
        let local = tokio::task::LocalSet::new();
        for protocol in ["h2c", "http/1.1"] {
            let request = Request::get("http://a.example/")
                .header(ORIGIN_PROTOCOL, protocol)
                .body(Incoming::empty())
                .unwrap();
            let sending = pool.send(request, "ann", &target, client, &tunnels);
            responses.push(local.run_until(sending).await.unwrap_err().into_response());
        }
        for response in responses {
            let why = response.headers()["proxy-status"].to_str().unwrap();
            assert_eq!(response.status(), 503, "{why}");
            assert!(why.starts_with("smig; error=proxy_internal_error; "), "{why}");
        }
    }

    /// Requests the origin with this number for a user.
    fn use_origin(
        pool: &OriginPool,
        user: &str,
        number: usize,
    ) -> Result<Arc<Upstream>, ForwardError> {
        let target = HostPort::new(&format!("{number}.example"), 80).unwrap();
        pool.find_or_create_origin(user, &target, OriginProtocol::Http1)
    }

    fn origin_count(pool: &OriginPool) -> usize {
        pool.origins.lock().unwrap().count()
    }

    /// An active request to an origin.
    fn begin_request(upstream: &Arc<Upstream>) -> ActiveRequest {
        let request = Request::get("http://a/").header(HOST, "a").body(Incoming::empty()).unwrap();
        let (parts, body) = request.into_parts();
        let (upstream_head, ..) =
            head::validate_request(parts, body, None, UpgradeHandling::Ignored).unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 1));
        let input =
            BalanceInput { client, uri: &upstream_head.uri, headers: &upstream_head.fields };
        upstream.choose_and_begin(input, TriedServers::default()).unwrap().1
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_h2c_origin_is_not_resolved_repeatedly() {
        let (lookups_tx, mut lookups) = mpsc::channel();
        let resolver = Resolver::from_fn(move |_| {
            let _ = lookups_tx.send(());
            Err(std::io::Error::other("no such name"))
        });
        let pool = OriginPool::new(&ForwardProxySpec::default(), resolver);
        let target = HostPort::new("a1.example", 80).unwrap();
        let request = Request::get("http://a1.example/")
            .header(ORIGIN_PROTOCOL, "h2c")
            .body(Incoming::empty())
            .unwrap();
        let (client, tunnels) =
            (SocketAddr::from(([192, 0, 2, 1], 1)), TunnelRegistry::of_gateway());
        let local = tokio::task::LocalSet::new();
        let run = async {
            pool.send(request, "ann", &target, client, &tunnels).await.unwrap_err();
            let mut late_lookups = 0;
            for second in 0..60 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                // The paused clock does not advance meanwhile: a lookup that has started can report within 10 ms.
                let receive =
                    move || (lookups.recv_timeout(Duration::from_millis(10)).is_ok(), lookups);
                let (was_resolved, receiver) = tokio::task::spawn_blocking(receive).await.unwrap();
                lookups = receiver;
                late_lookups += usize::from(was_resolved && second > 10);
            }
            assert!(late_lookups <= 1, "{late_lookups} lookups of an unused origin");
        };
        local.run_until(run).await;
    }

    #[tokio::test(start_paused = true)]
    async fn unused_origins_are_evicted() {
        let pool = OriginPool::new(&ForwardProxySpec::default(), Resolver::system());
        for n in 0..1000 {
            use_origin(&pool, "ann", n).unwrap();
            tokio::time::advance(UNUSED_TIMEOUT / 2).await;
        }
        assert!(origin_count(&pool) <= 3, "{}", origin_count(&pool));
        // The origins of a user without any further request, too.
        tokio::time::advance(UNUSED_TIMEOUT * 2).await;
        use_origin(&pool, "bob", 0).unwrap();
        assert_eq!(origin_count(&pool), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_with_many_origins_does_not_evict_those_of_others() {
        let pool = OriginPool::new(&ForwardProxySpec::default(), Resolver::system());
        let bobs_origin = use_origin(&pool, "bob", 0).unwrap();
        let mut in_use = Vec::new();
        for n in 1..MAX_ORIGINS_PER_USER * 4 {
            let Ok(upstream) = use_origin(&pool, "ann", n) else { break };
            if n % 4 == 0 {
                in_use.push(begin_request(&upstream));
            }
        }
        assert!(Arc::ptr_eq(&bobs_origin, &use_origin(&pool, "bob", 0).unwrap()), "it was evicted");
    }

    #[tokio::test(start_paused = true)]
    async fn many_origins_are_evicted_after_their_requests_end() {
        let pool = OriginPool::new(&ForwardProxySpec::default(), Resolver::system());
        let mut in_use = Vec::new();
        for n in 0..MAX_ORIGINS_PER_USER * 2 {
            let Ok(upstream) = use_origin(&pool, "ann", n) else { break };
            in_use.push(begin_request(&upstream));
        }
        assert!(origin_count(&pool) <= MAX_ORIGINS_PER_USER, "{}", origin_count(&pool));
        // Origins in use are not evicted, however old.
        tokio::time::advance(UNUSED_TIMEOUT * 10).await;
        use_origin(&pool, "ann", 0).unwrap();
        assert_eq!(origin_count(&pool), MAX_ORIGINS_PER_USER);
        drop(in_use);
        use_origin(&pool, "ann", 0).unwrap();
        assert_eq!(
            origin_count(&pool),
            MAX_ORIGINS_PER_USER,
            "their connections are kept for a while"
        );
        tokio::time::advance(UNUSED_TIMEOUT).await;
        use_origin(&pool, "ann", 0).unwrap();
        assert_eq!(origin_count(&pool), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn evictions_are_rate_limited_while_nearly_all_origins_are_in_use() {
        let pool = OriginPool::new(&ForwardProxySpec::default(), Resolver::system());
        let in_use: Vec<_> = (0..MAX_ORIGINS_PER_USER - 24)
            .map(|n| begin_request(&use_origin(&pool, "ann", n).unwrap()))
            .collect();
        let mut fresh_numbers = MAX_ORIGINS_PER_USER..;
        let mut request_origin = || use_origin(&pool, "ann", fresh_numbers.next().unwrap());
        for round in 0..3 {
            // There are 24 free slots; each eviction frees half of those 24.
            let created = (0..1000).filter(|_| request_origin().is_ok()).count();
            assert_eq!(created, if round == 0 { 24 + 12 } else { 12 });
            assert_eq!(request_origin().unwrap_err().into_response().status(), 503);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        drop(in_use);
        assert_eq!((0..1000).filter(|_| request_origin().is_ok()).count(), 1000);
    }
}
