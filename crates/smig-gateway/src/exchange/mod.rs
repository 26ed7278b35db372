//! One exchange with an upstream.

mod answer;
mod attempts;
mod body;
mod switch;
mod websocket;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use http::header::{ALLOW, EXPECT, VIA};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming as Received;
use hyper::upgrade::OnUpgrade;
use smig::{Incoming, InformationalSender, Sending};
use smig_proxy::conn_pool::{Lease, SendError};
use smig_proxy::framing::{self, Content};
use smig_proxy::head::{self, UpgradeKind, Upgrades, UpstreamHead};
use smig_proxy::tunnel::Tunnels;
use smig_proxy::upload::{ResponseClock, ResponseDeadline, Upload};
use smig_proxy::{ProxyError, grpc};
use tokio::time::Instant;

pub(crate) use answer::answer;
#[cfg(test)]
pub(crate) use answer::response;
pub use body::Body;

use crate::upstream::{
    ActiveRequest, BalanceInput, Connection, Http2Client, Upstream, WorkerPools,
};
use attempts::Attempts;
use switch::UpgradeExchange;

/// Sends a request to one of the upstream's servers and returns the response. Must run on a worker of a
/// [`smig::Server`] (or another [`tokio::task::LocalSet`]): connections to servers belong to the thread.
///
/// Failures are responses as well: the status gives the kind, `proxy-status` (RFC 9209) the reason. A request is
/// retried where that is safe: the server certainly did not process it, or its method is idempotent, and nothing of
/// its body was sent. Tunnels that result are counted in `tunnels`.
pub async fn exchange(
    request: Request<Incoming>,
    upstream: &Arc<Upstream>,
    client: SocketAddr,
    tunnels: &Tunnels,
) -> Response<Body> {
    match admit(request, None) {
        Ok(admitted) => admitted.send(upstream, client, tunnels).await,
        Err(failure) => answer(failure, upstream, client),
    }
}

/// A checked request for an upstream, without hop-by-hop fields.
///
/// It is part of the future of each active request: large parts are boxed.
#[derive(Debug)]
pub(crate) struct ValidRequest {
    outward: Box<UpstreamHead>,
    kind: ExchangeKind,
    role: Role,
}

/// What this program is for a request (RFC 9110 section 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A reverse proxy.
    Gateway,
    /// A forward proxy, which adds Via to requests and responses.
    Proxy,
}

/// What belongs to a request, by its kind.
#[derive(Debug)]
enum ExchangeKind {
    Usual {
        content: Content<Upload>,
        informational: Option<InformationalSender>,
        extensions: Extensions,
    },
    Switch(Box<Downstream>),
    /// The request must not be forwarded.
    Last,
}

/// The client's end of a request that switches protocols.
#[derive(Debug)]
struct Downstream {
    /// The client's data on its stream, over HTTP/2.
    body: Incoming,
    /// The client's connection, over HTTP/1.1.
    on_upgrade: Option<OnUpgrade>,
}

/// Checks a request of the reverse proxy, which adds no Via: nginx, as an upstream, compresses no response to a
/// request that has it (`gzip_proxied`). `host` is its URI's authority as a field value, if
/// that exists already.
pub(crate) fn admit(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
) -> Result<ValidRequest, ProxyError> {
    admit_as(request, host, Role::Gateway)
}

/// Checks a request of the forward proxy, which gets a response and cannot switch protocols.
pub(crate) fn admit_forwarded(mut request: Request<Incoming>) -> Result<ValidRequest, ProxyError> {
    let via = head::via(request.version());
    head::check_expect(request.headers())?;
    // The gateway's own server sends 100.
    request.headers_mut().remove(EXPECT);
    let mut admitted = admit_as(request, None, Role::Proxy)?;
    admitted.outward.fields.say(framing::Own::Via, via);
    Ok(admitted)
}

fn admit_as(
    request: Request<Incoming>,
    host: Option<HeaderValue>,
    role: Role,
) -> Result<ValidRequest, ProxyError> {
    let (mut parts, body) = request.into_parts();
    let is_last = head::count_hop(&parts.method, &mut parts.headers)?;
    let informational = parts.extensions.remove::<InformationalSender>();
    let on_upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrades = match role {
        Role::Gateway => Upgrades::Honored,
        Role::Proxy => Upgrades::Ignored,
    };
    let (outward, content, extensions) = head::validate_request(parts, body, host, upgrades)?;
    let kind = match outward.upgrade {
        _ if is_last => ExchangeKind::Last,
        UpgradeKind::None => {
            let expects = outward.fields.contains_key(EXPECT);
            let announced = content.left();
            let content = content.map(|body| Upload::new(body, announced, expects));
            ExchangeKind::Usual { content, informational, extensions }
        }
        UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) | UpgradeKind::Connect => {
            ExchangeKind::Switch(Box::new(Downstream { body: content.into_body(), on_upgrade }))
        }
    };
    Ok(ValidRequest { outward: Box::new(outward), kind, role })
}

/// Returns the response to an OPTIONS or TRACE request that must not be forwarded.
fn answer_as_last(method: &Method) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = if *method == Method::OPTIONS {
        StatusCode::NO_CONTENT
    } else {
        // A trace would contain the client's credentials.
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("OPTIONS"));
        StatusCode::METHOD_NOT_ALLOWED
    };
    response
}

impl ValidRequest {
    /// Sends the request, like [`exchange`].
    pub(crate) async fn send(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Response<Body> {
        let answered = self.exchange(upstream, client, tunnels).await;
        answered.unwrap_or_else(|failure| answer(failure, upstream, client))
    }

    /// Like [`Self::send`], but returns failures, for callers that build their own responses.
    pub(crate) async fn exchange(
        self,
        upstream: &Arc<Upstream>,
        client: SocketAddr,
        tunnels: &Tunnels,
    ) -> Result<Response<Body>, ProxyError> {
        let mut response = match self.kind {
            ExchangeKind::Usual { content, informational, extensions } => {
                let usual =
                    PlainExchange { upstream, client, content, informational, role: self.role };
                usual.run(self.outward, extensions).await?
            }
            ExchangeKind::Switch(near) => {
                let Downstream { body, on_upgrade } = *near;
                let switch = UpgradeExchange { upstream, client, body, on_upgrade, tunnels };
                Box::pin(switch.run(*self.outward)).await?
            }
            ExchangeKind::Last => return Ok(answer_as_last(&self.outward.method)),
        };
        // The client's version is that of its connection.
        let version = std::mem::take(response.version_mut());
        self.role.tell(response.headers_mut(), version);
        Ok(response)
    }
}

impl Role {
    /// Adds the entry in Via to a response that was received in this version.
    fn tell(self, headers: &mut HeaderMap, version: Version) {
        if self == Self::Proxy {
            headers.append(VIA, head::via(version));
        }
    }
}

/// A request that does not switch protocols.
struct PlainExchange<'a> {
    upstream: &'a Arc<Upstream>,
    client: SocketAddr,
    content: Content<Upload>,
    informational: Option<InformationalSender>,
    role: Role,
}

impl PlainExchange<'_> {
    const fn upload(&self) -> &Upload {
        self.content.body()
    }

    /// Tries servers until one responds or none is left.
    ///
    /// A future is stored in the one that awaits it, with space for all of its states: large values are boxed, and
    /// what does not wait is not async.
    async fn run(
        self,
        outward: Box<UpstreamHead>,
        mut extensions: Extensions,
    ) -> Result<Response<Body>, ProxyError> {
        let worker = WorkerPools::of(self.upstream);
        let mut attempts = Attempts::new(self.upstream);
        let mut next = Some(outward);
        let mut last = ProxyError::NoServer;
        while let Some(outward) = next.take() {
            let asked =
                BalanceInput { client: self.client, uri: &outward.uri, headers: &outward.fields };
            let Some((number, under_way)) = attempts.choose(asked) else { break };
            let (Some(pool), Some(server)) = (worker.pool(number), under_way.server()) else {
                break;
            };
            let idempotent = outward.method.is_idempotent();
            // Clone it only while a retry is possible.
            next = attempts.may_follow().then(|| outward.clone());
            let failure = match pool.connection(self.upstream, server).await {
                Ok(Connection::Http1(mut lease)) => {
                    let sent = match self.send_http1(*outward, &mut extensions, &mut lease) {
                        Ok(sending) => sending.await.map_err(ProxyError::from),
                        Err(failure) => Err(failure),
                    };
                    match sent.and_then(|sent| self.take_http1(sent, lease, under_way)) {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Ok(Connection::Http2(session)) => {
                    let exchange = self.by_http2(*outward, &session, under_way);
                    // The state is large, and HTTP/1.1 does not need it.
                    match Box::pin(exchange).await {
                        Ok(response) => return Ok(response),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            if self.upload().has_failed() {
                return Err(ProxyError::RequestBody(failure.to_string()));
            }
            attempts.blame(number, &failure);
            if self.upload().is_touched()
                || !failure.may_retry(idempotent)
                || !attempts.another(number, &failure)
            {
                return Err(failure);
            }
            last = failure;
        }
        Err(last)
    }

    /// Returns the timeouts for a request. gRPC calls require HTTP/2 to the server, and have their own deadlines
    /// there, or none.
    fn response_deadline(&self, outward: &UpstreamHead) -> ResponseDeadline {
        match grpc::is_grpc(&outward.fields) {
            true => ResponseDeadline::endless(self.upload()),
            false => self.upstream.timeouts().response_deadline(self.upload()),
        }
    }

    /// Starts to send a request over HTTP/1.1. The extensions have no meaning there; their allocation is reused.
    fn send_http1<'l>(
        &self,
        outward: UpstreamHead,
        extensions: &mut Extensions,
        lease: &'l mut Lease,
    ) -> Result<impl Future<Output = Result<Response<Received>, SendError>> + use<'l>, ProxyError>
    {
        let mut request = head::for_http1(outward, self.content.clone())?;
        *request.extensions_mut() = std::mem::take(extensions);
        if let Some(informational) = &self.informational {
            let (informational, upload) = (informational.clone(), self.upload().clone());
            let passed = InformationalResponses::new(self.role, Version::HTTP_11);
            hyper::ext::on_informational(&mut request, move |head| {
                on_informational(&informational, &upload, &passed, head.status(), head.headers());
            });
        }
        let Some(connection) = lease.get() else { return Err(ProxyError::NoServer) };
        let deadline = self.upstream.timeouts().response_deadline(self.upload());
        Ok(connection.send(request, deadline))
    }

    /// Turns a response received over HTTP/1.1 into the one for the client.
    fn take_http1(
        &self,
        mut response: Response<Received>,
        lease: Lease,
        under_way: ActiveRequest,
    ) -> Result<Response<Body>, ProxyError> {
        head::validate_response(&mut response)?;
        if let Some(server) = under_way.server() {
            server.on_success();
        }
        let (parts, incoming) = response.into_parts();
        let body = if incoming.is_end_stream() {
            lease.release();
            Body::empty()
        } else {
            let stall = self.upstream.timeouts().stall_of(&parts.headers);
            Body::http1(incoming, lease, under_way, self.upload().rest(), stall)
        };
        Ok(Response::from_parts(parts, body))
    }

    async fn by_http2(
        &self,
        outward: UpstreamHead,
        session: &Http2Client,
        under_way: ActiveRequest,
    ) -> Result<Response<Body>, ProxyError> {
        let limits = self.upstream.timeouts();
        let deadline = self.response_deadline(&outward);
        let mut request = head::for_http2(outward, &session.scheme, self.content.clone())?;
        if let Some(informational) = &self.informational {
            let (informational, upload) = (informational.clone(), self.upload().clone());
            let passed = InformationalResponses::new(self.role, Version::HTTP_2);
            smig::on_informational(&mut request, move |status, headers| {
                on_informational(&informational, &upload, &passed, status, headers);
            });
        }
        let sending =
            session.client.begin(&session.origin, request).map_err(ProxyError::from_smig)?;
        let mut response = answered(sending, deadline).await?.map_err(ProxyError::from_smig)?;
        if response.version() < Version::HTTP_2 {
            if let Some(server) = under_way.server() {
                server.set_selects_http2(false);
            }
            head::validate_response(&mut response)?;
        } else {
            head::accept_http2(&mut response)?;
        }
        if let Some(server) = under_way.server() {
            server.on_success();
        }
        let (parts, incoming) = response.into_parts();
        let rest = self.upload().rest();
        if !self.upload().is_nothing()
            && let Some(stream) = incoming.stream_info()
        {
            // RFC 9113 section 8.1: the server need not refuse the rest of the request, and an idle client must not
            // occupy the server's stream.
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

/// Maximum size in bytes of the forwarded informational responses to one request; an early hint takes a few hundred. If a
/// client does not read, all of them are buffered.
const MAX_INTERIM: usize = 16 << 10;
/// Cost of one without any field.
const INTERIM: usize = 128;

/// The informational responses to one request.
#[derive(Debug)]
struct InformationalResponses {
    /// Total cost so far.
    cost: AtomicUsize,
    role: Role,
    version: Version,
}

impl InformationalResponses {
    const fn new(role: Role, version: Version) -> Self {
        Self { cost: AtomicUsize::new(0), role, version }
    }

    /// Counts an informational response; returns whether it may be forwarded.
    fn has_room(&self, headers: &HeaderMap) -> bool {
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let cost = INTERIM + fields.sum::<usize>();
        self.cost.fetch_add(cost, Ordering::Relaxed).saturating_add(cost) <= MAX_INTERIM
    }
}

/// Handles an informational response (1xx) of an upstream. 100 opens the gate of the body and is not forwarded: the library
/// sends 100 itself when the body is read.
fn on_informational(
    informational: &InformationalSender,
    upload: &Upload,
    passed: &InformationalResponses,
    status: StatusCode,
    headers: &HeaderMap,
) {
    if status == StatusCode::CONTINUE {
        upload.open_gate();
        return;
    }
    if !passed.has_room(headers) {
        tracing::debug!(%status, "limit reached: informational responses to one request");
        return;
    }
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers.clone();
    if head::validate_response(&mut head).is_ok() {
        passed.role.tell(head.headers_mut(), passed.version);
        informational.send(status, std::mem::take(head.headers_mut()));
    }
}

/// How often at most to look whether a request was sent.
const LOOK: Duration = Duration::from_millis(10);

/// Waits for a response's header section. The timeouts begin when the request has a stream; waiting for that, and for
/// a connection, ends with the client's own limits.
async fn answered(
    mut sending: Sending<'_>,
    deadline: ResponseDeadline,
) -> Result<Result<Response<Incoming>, smig::Error>, ProxyError> {
    // The clock of the current attempt, and when that was sent: the client repeats what the server did not process.
    let mut running: Option<(std::time::Instant, ResponseClock)> = None;
    let mut timer = pin!(tokio::time::sleep(deadline.first()));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = Pin::new(&mut sending).poll(cx) {
                return Poll::Ready(Ok(output));
            }
            ready!(timer.as_mut().poll(cx));
            let sent_at = sending.sent_at();
            let clock = running.take().filter(|(since, _)| Some(*since) == sent_at);
            let until = match (sent_at, clock) {
                (None, _) => Instant::now() + deadline.first().max(LOOK),
                (Some(at), None) => {
                    let clock = deadline.clone().start();
                    let until = Instant::from_std(at) + clock.first();
                    running = Some((at, clock));
                    until
                }
                (Some(_), Some((since, mut clock))) => match clock.check_progress() {
                    Ok(more) => {
                        running = Some((since, clock));
                        Instant::now() + more
                    }
                    Err(failure) => return Poll::Ready(Err(failure)),
                },
            };
            timer.as_mut().reset(until);
        }
    })
    .await
}
