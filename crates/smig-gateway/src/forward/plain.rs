//! Requests to `http://` origins: HTTP/1.1, or HTTP/2 with prior knowledge where the client asks for it.
//!
//! An origin is an upstream of one server, made when it is asked for first: its limits, its connections and
//! its retries are those of the reverse proxy. What is its own is the resolver, which leaves out the
//! addresses that the rules forbid.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{HOST, PROXY_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, Version};
use smig::{Incoming, Resolver};
use tokio::time::Instant;

use super::NEXT_PROTOCOL;
use super::dial::Target;
use super::failure::Failure;
use super::spec::ForwardSpec;
use crate::proxy::{self, Admitted, Body};
use crate::tunnel::Tunnels;
use crate::upstream::{Ejection, Timeouts, Upstream, UpstreamSpec};

/// How long an origin is remembered that nobody asks for; its unused connections are kept as long.
const KEPT: Duration = Duration::from_secs(30);

/// How many origins are remembered beside those that are in use: whoever asks for more at a time makes the
/// unused ones forgotten.
const MAX_ORIGINS: usize = 1024;
/// So many are looked at by nobody.
const FEW: usize = 64;

/// What an origin is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Http1,
    H2c,
}

/// Connections to origins.
#[derive(Debug)]
pub(super) struct Plain {
    resolver: Resolver,
    timeouts: Timeouts,
    max_connections: usize,
    max_waiting: usize,
    origins: Mutex<Origins>,
}

#[derive(Debug, Default)]
struct Origins {
    by_key: HashMap<(Target, Protocol), Origin>,
    /// At how many they are looked through: twice as many as were left the last time, so that a new origin
    /// costs the same however many there are.
    tidy_at: usize,
}

#[derive(Debug)]
struct Origin {
    upstream: Arc<Upstream>,
    used: Instant,
}

impl Plain {
    /// Connections to what `resolver` finds.
    pub(super) fn new(spec: &ForwardSpec, resolver: Resolver) -> Self {
        let timeouts = Timeouts {
            connect: spec.connect_timeout,
            queue: spec.connect_timeout,
            head: spec.response_timeout,
            // Whose response it is may rest as long as its client likes.
            stall: None,
            idle: KEPT,
            ..Timeouts::default()
        };
        Self {
            resolver,
            timeouts,
            max_connections: spec.max_connections,
            max_waiting: spec.max_waiting,
            origins: Mutex::default(),
        }
    }

    /// Sends a request to its origin and waits for the response's head.
    ///
    /// # Errors
    /// The origin may not be reached, cannot be, or gives no response.
    pub(super) async fn send(
        &self,
        mut request: Request<Incoming>,
        target: &Target,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Result<Response<Body>, Failure> {
        let protocol = match request.headers_mut().remove(NEXT_PROTOCOL) {
            Some(value) if value == "h2c" => Protocol::H2c,
            _ => Protocol::Http1,
        };
        let authority = request.uri().authority().cloned();
        let authority = authority.ok_or_else(|| Failure::bad_request("no authority"))?;
        let admitted = prepare(request, &authority)?;
        let upstream = self.origin(target, protocol)?;
        let answered = admitted.exchange(&upstream, client, tunnels).await;
        let mut response =
            answered.map_err(|failure| Failure::of_exchange(&target.to_string(), &failure))?;
        // A challenge of the origin's is for nobody: ours is the only proxy that the client knows.
        response.headers_mut().remove(PROXY_AUTHENTICATE);
        Ok(response)
    }

    /// The origin as an upstream. No lock is held while anything is waited for.
    fn origin(&self, target: &Target, protocol: Protocol) -> Result<Arc<Upstream>, Failure> {
        let now = Instant::now();
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (target.clone(), protocol);
        if let Some(origin) = origins.by_key.get_mut(&key) {
            origin.used = now;
            return Ok(Arc::clone(&origin.upstream));
        }
        origins.tidy(now);
        let scheme = match protocol {
            Protocol::Http1 => "http",
            Protocol::H2c => "h2c",
        };
        let bad = || Failure::bad_request("the authority is not host:port");
        let url = format!("{scheme}://{target}").parse().map_err(|_| bad())?;
        let spec = UpstreamSpec {
            timeouts: self.timeouts,
            max_connections: self.max_connections,
            max_waiting: self.max_waiting,
            ejection: Ejection { failures: 0, ..Ejection::default() },
            ..UpstreamSpec::new(vec![url])
        };
        let upstream = Upstream::with_resolver(target.to_string(), &spec, self.resolver.clone());
        let upstream = upstream.map_err(|error| Failure::bad_request(&error.to_string()))?;
        origins.by_key.insert(key, Origin { upstream: Arc::clone(&upstream), used: now });
        Ok(upstream)
    }
}

impl Origins {
    /// Makes room for a new one.
    fn tidy(&mut self, now: Instant) {
        if self.by_key.len() < self.tidy_at.max(FEW) {
            return;
        }
        let in_use = |origin: &Origin| origin.upstream.load() > 0;
        let is_new = |origin: &Origin| now.saturating_duration_since(origin.used) < KEPT;
        self.by_key.retain(|_, origin| in_use(origin) || is_new(origin));
        if self.by_key.len() >= MAX_ORIGINS {
            self.by_key.retain(|_, origin| in_use(origin));
        }
        // Those in use are counted by their users' limits.
        let twice = self.by_key.len() * 2;
        self.tidy_at = if self.by_key.len() < MAX_ORIGINS { twice.min(MAX_ORIGINS) } else { twice };
    }
}

/// The request as the origin is to see it.
fn prepare(mut request: Request<Incoming>, target: &Authority) -> Result<Admitted, Failure> {
    let by = match request.version() {
        Version::HTTP_2 => "2 smig",
        _ => "1.1 smig",
    };
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Err(Failure::bad_request("more than one host"));
    }
    // The target's authority goes before Host (RFC 9112 section 3.2.2).
    let host = HeaderValue::from_str(target.as_str());
    let host = host.map_err(|_| Failure::bad_request("a bad authority"))?;
    request.headers_mut().insert(HOST, host);
    let via = HeaderValue::from_static(by);
    proxy::admit_forwarded(request, via).map_err(|failure| Failure::of_head(&failure))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;

    /// An origin whose name is never found: a connection that never comes.
    fn black_hole(spec: &ForwardSpec) -> (Plain, mpsc::Sender<()>) {
        let (release, blocked) = mpsc::channel();
        let blocked = Mutex::new(blocked);
        let resolver = Resolver::by(move |_| {
            // Until the test has ended.
            let _ = blocked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Err(std::io::Error::other("released"))
        });
        (Plain::new(spec, resolver), release)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_to_a_black_hole_all_end_within_one_limit() {
        let spec = ForwardSpec::default();
        let (plain, _release) = black_hole(&spec);
        let target = Target::new("hole.example", 80).unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 1));
        let tunnels = Tunnels::of_gateway();
        let local = tokio::task::LocalSet::new();
        for protocol in ["h2c", "http/1.1"] {
            let begin = Instant::now();
            let call = || {
                let request = Request::get("http://hole.example/")
                    .header(NEXT_PROTOCOL, protocol)
                    .body(Incoming::empty())
                    .unwrap();
                plain.send(request, &target, client, &tunnels)
            };
            let calls = join_all((0..20).map(|_| call()));
            for answer in local.run_until(calls).await {
                let response = answer.unwrap_err().response();
                assert_eq!(response.status(), 504);
            }
            let took = begin.elapsed();
            assert!(took < spec.connect_timeout * 3 / 2, "{protocol}: {took:?}");
        }
    }

    fn count(plain: &Plain) -> usize {
        plain.origins.lock().unwrap().by_key.len()
    }

    #[tokio::test(start_paused = true)]
    async fn origins_that_nobody_asks_for_are_forgotten() {
        let plain = Plain::new(&ForwardSpec::default(), Resolver::system());
        for n in 0..1000 {
            let target = Target::new(&format!("{n}.example"), 80).unwrap();
            plain.origin(&target, Protocol::Http1).unwrap();
            tokio::time::advance(KEPT / 2).await;
        }
        assert!(count(&plain) <= FEW, "{}", count(&plain));
    }

    #[tokio::test(start_paused = true)]
    async fn origins_are_not_more_than_their_limit_however_many_are_asked_for() {
        let plain = Plain::new(&ForwardSpec::default(), Resolver::system());
        let mut tidied = 0;
        for n in 0..MAX_ORIGINS * 4 {
            let target = Target::new(&format!("{n}.example"), 80).unwrap();
            let before = count(&plain);
            plain.origin(&target, Protocol::Http1).unwrap();
            assert!(count(&plain) <= MAX_ORIGINS, "{n}");
            tidied += usize::from(count(&plain) <= before);
        }
        // Each time all are looked at: seldom.
        assert!(tidied <= 4, "{tidied}");
    }
}
