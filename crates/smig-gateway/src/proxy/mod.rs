//! One exchange with an upstream.

mod body;
mod failure;
pub(crate) mod framing;
pub(crate) mod grpc;
pub(crate) mod head;
mod switch;
mod upload;
mod websocket;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use http::header::EXPECT;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming as Received;
use hyper::upgrade::OnUpgrade;
use smig::{Incoming, Interim};
use tokio::time::Instant;

pub use body::Body;
pub use failure::Failure;

pub(crate) use upload::{Patience, Upload};

use crate::tunnel::Tunnels;
use crate::upstream::{
    Asked, Connection, Lease, ServerPool, Session, Tried, Unanswered, UnderWay, Upstream, Worker,
};
use framing::Content;
use head::{Outward, Upgrades, Wish};
use switch::Switch;

/// Sends a request to one of the upstream's servers and returns the response. Must run on a worker of a
/// [`smig::Server`] (or another [`tokio::task::LocalSet`]): connections to servers belong to the thread.
///
/// What fails is a response as well: the status says what, `proxy-status` (RFC 9209) why. A request is
/// sent again where that is safe: the server did certainly not act on it, or its method is idempotent,
/// and nothing of its body was sent. Tunnels that come of it are counted among `tunnels`.
pub async fn exchange(
    request: Request<Incoming>,
    upstream: &Arc<Upstream>,
    client: SocketAddr,
    tunnels: &Tunnels,
) -> Response<Body> {
    match admit(request, None) {
        Ok(admitted) => admitted.send(upstream, client, tunnels).await,
        Err(failure) => failure.answer(upstream, client),
    }
}

/// A request that may go to an upstream, without anything that was for the client's hop only.
///
/// It lies in the future of each request that runs: what is big stands behind pointers.
#[derive(Debug)]
pub(crate) struct Admitted {
    outward: Box<Outward>,
    kind: Kind,
}

/// What comes with a request.
#[derive(Debug)]
enum Kind {
    Usual { content: Content<Upload>, interim: Option<Interim>, extensions: Extensions },
    Switch(Box<Near>),
}

/// The client's end of what a request may become.
#[derive(Debug)]
struct Near {
    /// What the client sends on its stream, by HTTP/2.
    body: Incoming,
    /// The client's connection, by HTTP/1.1.
    on_upgrade: Option<OnUpgrade>,
}

/// Checks a request. `host` is its URI's authority as a field has it, if somebody has made it already.
pub(crate) fn admit(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
) -> Result<Admitted, Failure> {
    admit_as(request, host, Upgrades::Heard)
}

/// The same for a request to another host, which gets a response and nothing else. `via` is how it came.
pub(crate) fn admit_forwarded(
    mut request: Request<Incoming>,
    via: HeaderValue,
) -> Result<Admitted, Failure> {
    head::check_expect(request.headers())?;
    // Our own side says 100.
    request.headers_mut().remove(EXPECT);
    let mut admitted = admit_as(request, None, Upgrades::Ignored)?;
    admitted.outward.fields.say(framing::Own::Via, via);
    Ok(admitted)
}

fn admit_as(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
    upgrades: Upgrades,
) -> Result<Admitted, Failure> {
    let (mut parts, body) = request.into_parts();
    let interim = parts.extensions.remove::<Interim>();
    let on_upgrade = parts.extensions.remove::<OnUpgrade>();
    let (outward, content, extensions) = head::admit(parts, body, host, upgrades)?;
    let kind = match outward.wish {
        Wish::Usual => {
            let expects = outward.fields.contains_key(EXPECT);
            let announced = content.left();
            let content = content.map(|body| Upload::new(body, announced, expects));
            Kind::Usual { content, interim, extensions }
        }
        Wish::Upgrade(_) | Wish::Extended(_) | Wish::Tunnel => {
            Kind::Switch(Box::new(Near { body: content.into_body(), on_upgrade }))
        }
    };
    Ok(Admitted { outward: Box::new(outward), kind })
}

impl Admitted {
    /// As [`exchange`].
    pub(crate) async fn send(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Response<Body> {
        let answered = self.exchange(upstream, client, tunnels).await;
        answered.unwrap_or_else(|failure| failure.answer(upstream, client))
    }

    /// The same, to a caller who has words of its own for what fails.
    pub(crate) async fn exchange(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Result<Response<Body>, Failure> {
        match self.kind {
            Kind::Usual { content, interim, extensions } => {
                let usual = Usual { upstream, client, content, interim };
                usual.run(self.outward, extensions).await
            }
            Kind::Switch(near) => {
                let Near { body, on_upgrade } = *near;
                let switch = Switch { upstream, client, body, on_upgrade, tunnels };
                Box::pin(switch.run(*self.outward)).await
            }
        }
    }
}

/// A request that is answered by a response.
struct Usual<'a> {
    upstream: &'a Arc<Upstream>,
    client: SocketAddr,
    content: Content<Upload>,
    interim: Option<Interim>,
}

impl Usual<'_> {
    const fn upload(&self) -> &Upload {
        self.content.body()
    }

    /// Tries servers until one answers or none is left.
    ///
    /// A future is copied into the one that awaits it, with room for all of its states: what is big
    /// stands behind pointers, and what needs not wait is not async.
    async fn run(
        self,
        outward: Box<Outward>,
        mut extensions: Extensions,
    ) -> Result<Response<Body>, Failure> {
        let worker = Worker::of(self.upstream);
        let (mut tried, mut left) = (Tried::default(), self.upstream.retries());
        let mut excused = false;
        let mut next = Some(outward);
        let mut last = Failure::NoServer;
        while let Some(outward) = next.take() {
            let asked = Asked { client: self.client, uri: &outward.uri, headers: &outward.fields };
            let Some((number, under_way)) = self.upstream.choose(asked, tried) else { break };
            let (Some(pool), Some(server)) = (worker.pool(number), under_way.server()) else {
                break;
            };
            let idempotent = outward.method.is_idempotent();
            // Kept only while it may be needed.
            next = (left > 0).then(|| outward.clone());
            let failure = match pool.connection(self.upstream, server).await {
                Ok(Connection::Http1(mut lease)) => {
                    let sent = match self.send_http1(*outward, &mut extensions, &mut lease) {
                        Ok(sending) => sending.await.map_err(Failure::from),
                        Err(failure) => Err(failure),
                    };
                    match sent.and_then(|sent| self.take_http1(sent, lease, under_way)) {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Ok(Connection::Http2(session)) => {
                    let exchange = self.by_http2(*outward, &session, pool, under_way);
                    // Its state is big, and HTTP/1.1 does without it.
                    match Box::pin(exchange).await {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            if self.upload().has_failed() {
                return Err(Failure::RequestBody(failure.to_string()));
            }
            if failure.is_servers()
                && let Some(server) = self.upstream.servers().get(number)
            {
                server.on_failure();
            }
            if !failure.may_retry(idempotent) || self.upload().is_touched() {
                return Err(failure);
            }
            if left > 0 {
                tracing::debug!(upstream = self.upstream.name(), %failure, "sent again");
            }
            if failure.is_of_connection() && !excused {
                // It says nothing of the server; if that is gone as well, a retry is left for another.
                excused = true;
            } else {
                left = left.saturating_sub(1);
                // Twice is no accident, where there is another server.
                if !failure.is_of_connection() || self.upstream.servers().len() > 1 {
                    tried.add(number);
                }
            }
            last = failure;
        }
        Err(last)
    }

    /// Calls want HTTP/2 behind, and have a deadline of their own there, or none.
    fn patience(&self, outward: &Outward) -> Patience {
        match grpc::is_grpc(&outward.fields) {
            true => Patience::endless(self.upload()),
            false => Patience::new(self.upload(), self.upstream.timeouts()),
        }
    }

    /// Begins to send by HTTP/1.1. The extensions are of no meaning there, but have room for more.
    fn send_http1<'l>(
        &self,
        outward: Outward,
        extensions: &mut Extensions,
        lease: &'l mut Lease,
    ) -> Result<impl Future<Output = Result<Response<Received>, Unanswered>> + use<'l>, Failure>
    {
        let mut request = head::for_http1(outward, self.content.clone())?;
        *request.extensions_mut() = std::mem::take(extensions);
        if let Some(interim) = &self.interim {
            let (interim, upload) = (interim.clone(), self.upload().clone());
            let passed = Interims::default();
            hyper::ext::on_informational(&mut request, move |head| {
                on_interim(&interim, &upload, &passed, head.status(), head.headers());
            });
        }
        let Some(connection) = lease.get() else { return Err(Failure::NoServer) };
        let patience = Patience::new(self.upload(), self.upstream.timeouts());
        Ok(connection.send(request, patience))
    }

    /// What came by HTTP/1.1, as the client gets it.
    fn take_http1(
        &self,
        mut response: Response<Received>,
        lease: Lease,
        under_way: UnderWay,
    ) -> Result<Response<Body>, Failure> {
        head::accept(&mut response)?;
        if let Some(server) = under_way.server() {
            server.on_success();
        }
        let (parts, incoming) = response.into_parts();
        let body = if incoming.is_end_stream() {
            if let Some(server) = under_way.server() {
                lease.release(server);
            }
            Body::empty()
        } else {
            let stall = self.upstream.timeouts().stall_of(&parts.headers);
            Body::http1(incoming, lease, under_way, self.upload().rest(), stall)
        };
        Ok(Response::from_parts(parts, body))
    }

    async fn by_http2(
        &self,
        outward: Outward,
        session: &Session,
        pool: &ServerPool,
        under_way: UnderWay,
    ) -> Result<Response<Body>, Failure> {
        let limits = self.upstream.timeouts();
        let patience = self.patience(&outward);
        let mut request = head::for_http2(outward, &session.scheme, self.content.clone())?;
        if let Some(interim) = &self.interim {
            let (interim, upload) = (interim.clone(), self.upload().clone());
            let passed = Interims::default();
            smig::on_interim(&mut request, move |status, headers| {
                on_interim(&interim, &upload, &passed, status, headers);
            });
        }
        let sending = session.client.request_to(&session.origin, request);
        let mut response = within(sending, patience).await?.map_err(Failure::from_smig)?;
        if response.version() < Version::HTTP_2 {
            pool.forget_alpn();
            head::accept(&mut response)?;
        } else {
            head::accept_http2(&mut response)?;
        }
        if let Some(server) = under_way.server() {
            server.on_success();
        }
        let (mut parts, incoming) = response.into_parts();
        parts.version = Version::default();
        let rest = self.upload().rest();
        if !self.upload().is_nothing()
            && let Some(stream) = incoming.stream_info()
        {
            // RFC 9113 section 8.1: the server need not say that it wants no more, and its stream is not to
            // be held by a client that rests.
            stream.give_up_rest();
        }
        let body = if incoming.is_end_stream() {
            rest.hold(under_way);
            Body::empty()
        } else {
            Body::http2(incoming, under_way, rest, limits.stall_of(&parts.headers))
        };
        Ok(Response::from_parts(parts, body))
    }
}

/// Bytes of the interim responses to one request that are passed on: an early hint has some hundred. A client
/// that does not read has them all waiting for it.
const MAX_INTERIM: usize = 16 << 10;
/// What one costs without any field.
const INTERIM: usize = 128;

/// How much the interim responses to one request have been so far.
#[derive(Debug, Default)]
struct Interims(AtomicUsize);

impl Interims {
    /// Counts one, if it may be passed on.
    fn has_room(&self, headers: &HeaderMap) -> bool {
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let cost = INTERIM + fields.sum::<usize>();
        self.0.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) <= MAX_INTERIM
    }
}

/// An upstream's 1xx: 100 lets the body go, and the library says 100 itself when the body is read.
fn on_interim(
    interim: &Interim,
    upload: &Upload,
    passed: &Interims,
    status: StatusCode,
    headers: &HeaderMap,
) {
    if status == StatusCode::CONTINUE {
        upload.open_gate();
        return;
    }
    if !passed.has_room(headers) {
        tracing::debug!(%status, "limit hit: interim responses to one request");
        return;
    }
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.clone();
    if head::accept(&mut head).is_ok() {
        interim.send(status, std::mem::take(head.headers_mut()));
    }
}

/// Waits for a response's head as long as there is hope.
async fn within<F: Future>(sending: F, mut patience: Patience) -> Result<F::Output, Failure> {
    let mut sending = pin!(sending);
    let mut timer = pin!(tokio::time::sleep(patience.first()));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            std::task::ready!(timer.as_mut().poll(cx));
            match patience.next() {
                Ok(more) => timer.as_mut().reset(Instant::now() + more),
                Err(failure) => return Poll::Ready(Err(failure)),
            }
        }
    })
    .await
}
