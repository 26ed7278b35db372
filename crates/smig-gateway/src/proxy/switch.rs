//! Requests that switch protocols: WebSocket by Upgrade or RFC 8441, and tunnels by CONNECT. Either side may use
//! HTTP/1.1 or HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, UPGRADE};
use http::{Response, StatusCode, Version};
use hyper::body::Incoming as Received;
use hyper::upgrade::OnUpgrade;
use smig::{Incoming, Processed};

use super::attempts::Attempts;
use super::framing::{Content, Own};
use super::head::{self, Outward, Wish};
use super::upload::Rest;
use super::{Body, Failure, Patience, Upload, answered, websocket};
use crate::tunnel::{Abort, End, FedBody, Feed, Kind, Socket, Stream, Tunnel, Tunnels, feed};
use crate::upstream::{
    Asked, Connection, Io, Lease, Server, ServerPool, Session, Switched, Timeouts, UnderWay,
    Upstream, Worker,
};

/// A request that switches to another protocol.
pub(super) struct Switch<'a> {
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) client: SocketAddr,
    /// The client's data on its stream, over HTTP/2.
    pub(super) body: Incoming,
    /// The client's connection, over HTTP/1.1.
    pub(super) on_upgrade: Option<OnUpgrade>,
    pub(super) tunnels: &'a Tunnels,
}

/// The client's end of a future tunnel.
enum Near {
    /// A stream; the response's body is the tunnel's other direction.
    Stream(Incoming),
    /// A connection, available once its response has been sent.
    Connection(OnUpgrade),
}

/// A server's response to the request.
enum Reply {
    Http1 {
        response: Response<Received>,
        lease: Lease,
        /// The key that the gateway has sent for a client without one.
        own_key: Option<HeaderValue>,
    },
    Http2 {
        response: Response<Incoming>,
        /// The tunnel's direction to the server.
        feed: Feed,
        /// The client's key, which HTTP/2 has no use for.
        key: Option<HeaderValue>,
    },
}

impl Switch<'_> {
    pub(super) async fn run(self, outward: Outward) -> Result<Response<Body>, Failure> {
        let Self { upstream, client, body, on_upgrade, tunnels } = self;
        let near = match (&outward.wish, on_upgrade) {
            (Wish::Extended(_), _) | (Wish::Tunnel, None) => Near::Stream(body),
            (_, Some(on_upgrade)) => Near::Connection(on_upgrade),
            (_, None) => {
                return Err(Failure::Upgrade("the client's connection cannot switch protocols"));
            }
        };
        // Nothing of the client's data is sent before the answer: a WebSocket's handshake is a GET like any other.
        let idempotent = is_websocket(&outward.wish);
        let worker = Worker::of(upstream);
        let mut attempts = Attempts::new(upstream);
        let mut last = Failure::NoServer;
        let (number, under_way, reply) = loop {
            let asked = Asked { client, uri: &outward.uri, headers: &outward.fields };
            let Some((number, under_way)) = attempts.choose(asked) else { return Err(last) };
            let (Some(pool), Some(server)) = (worker.pool(number), under_way.server()) else {
                return Err(Failure::NoServer);
            };
            last = match ask(&outward, upstream, pool, server).await {
                Ok(reply) => break (number, under_way, reply),
                Err(failure) => failure,
            };
            attempts.blame(number, &last);
            if !last.may_retry(idempotent) || !attempts.another(number, &last) {
                return Err(last);
            }
        };
        if let Some(server) = under_way.server() {
            server.on_success();
        }
        let request = Answered { upstream, wish: &outward.wish, near, under_way, tunnels };
        let joined = match reply {
            Reply::Http1 { response, lease, own_key } => {
                request.by_http1(response, lease, own_key).await
            }
            Reply::Http2 { response, feed, key } => request.by_http2(response, feed, key),
        };
        if let Err(failure) = &joined {
            attempts.blame(number, failure);
        }
        joined
    }
}

fn is_websocket(wish: &Wish) -> bool {
    match wish {
        Wish::Upgrade(protocol) | Wish::Extended(protocol) => protocol.as_str() == "websocket",
        Wish::Usual | Wish::Tunnel => false,
    }
}

/// Sends the request to a server and waits for the response's header section.
async fn ask(
    outward: &Outward,
    upstream: &Upstream,
    pool: &ServerPool,
    server: &Server,
) -> Result<Reply, Failure> {
    let limits = upstream.timeouts();
    let websocket = is_websocket(&outward.wish);
    let connection = match websocket {
        true => pool.for_websocket(upstream, server).await?,
        false => pool.connection(upstream, server).await?,
    };
    let session = match connection {
        Connection::Http1(lease) => return ask_http1(outward.clone(), lease, limits).await,
        Connection::Http2(session) => session,
    };
    match ask_http2(outward.clone(), &session, pool, limits).await {
        Err(Failure::NoExtendedConnect) if websocket => {
            let lease = pool.without_extended_connect(upstream, server).await?;
            ask_http1(outward.clone(), lease, limits).await
        }
        other => other,
    }
}

/// Sends the request over HTTP/1.1, with Upgrade or as CONNECT.
async fn ask_http1(
    mut outward: Outward,
    mut lease: Lease,
    limits: &Timeouts,
) -> Result<Reply, Failure> {
    let mut own_key = None;
    match &outward.wish {
        Wish::Upgrade(_) | Wish::Extended(_) if !is_websocket(&outward.wish) => {
            return Err(Failure::NotImplemented("protocols other than websocket"));
        }
        Wish::Extended(_) => {
            let key = websocket::key().ok_or(Failure::Upgrade("no random numbers"))?;
            outward.fields.say(Own::WebSocketKey, key.clone());
            own_key = Some(key);
        }
        Wish::Upgrade(_) | Wish::Usual | Wish::Tunnel => {}
    }
    let request = head::for_http1(outward, Content::tunnel(Upload::default()))?;
    let Some(connection) = lease.get() else { return Err(Failure::NoServer) };
    // How a server parses the bytes that follow is uncertain, even if it does not switch.
    connection.use_no_more();
    let response = connection.send(request, Patience::new(&Upload::default(), limits)).await?;
    Ok(Reply::Http1 { response, lease, own_key })
}

/// Sends the request over HTTP/2, as extended CONNECT or CONNECT.
async fn ask_http2(
    mut outward: Outward,
    session: &Session,
    pool: &ServerPool,
    limits: &Timeouts,
) -> Result<Reply, Failure> {
    let key = outward.fields.remove(&websocket::KEY);
    let (feed, fed) = feed();
    let content = Content::tunnel(Upload::tunnel(fed));
    let request = head::for_http2(outward, &session.scheme, content)?;
    let failed = |error: smig::Error| match (error.is_user(), error.was_processed()) {
        (true, Processed::No) => Failure::NoExtendedConnect,
        (true, _) => Failure::Upgrade("the request was cancelled"),
        (false, _) => Failure::from_smig(error),
    };
    let sending = session.client.begin(&session.origin, request).map_err(failed)?;
    // The tunnel's other direction waits for this response, so it cannot stall.
    let patience = Patience::new(&Upload::default(), limits);
    let response = answered(sending, patience).await?.map_err(failed)?;
    if response.version() < Version::HTTP_2 {
        // The client sent a CONNECT, and has no tunnel there.
        pool.forget_alpn();
        return Err(Failure::Upgrade("the server no longer supports HTTP/2"));
    }
    Ok(Reply::Http2 { response, feed, key })
}

/// A request that a server has answered.
struct Answered<'a> {
    upstream: &'a Arc<Upstream>,
    wish: &'a Wish,
    near: Near,
    under_way: UnderWay,
    tunnels: &'a Tunnels,
}

impl Answered<'_> {
    /// Relays, if the server has switched on its HTTP/1.1 connection.
    async fn by_http1(
        self,
        mut response: Response<Received>,
        lease: Lease,
        own_key: Option<HeaderValue>,
    ) -> Result<Response<Body>, Failure> {
        let Self { upstream, wish, near, under_way, tunnels } = self;
        let limits = *upstream.timeouts();
        let switches = match wish {
            Wish::Tunnel => response.status().is_success(),
            _ => response.status() == StatusCode::SWITCHING_PROTOCOLS,
        };
        let upgraded = response.headers().get(UPGRADE).cloned();
        head::accept_switch(&mut response)?;
        if !switches {
            let (parts, incoming) = response.into_parts();
            let stall = limits.stall_of(&parts.headers);
            let body = Body::http1(incoming, lease, under_way, Rest::default(), stall);
            return Ok(Response::from_parts(parts, body));
        }
        if *wish != Wish::Tunnel {
            if !upgraded.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket")) {
                return Err(Failure::Upgrade("the server switched to another protocol"));
            }
            let answer = own_key.as_ref().and_then(websocket::accept);
            if own_key.is_some() && response.headers().get(websocket::ACCEPT) != answer.as_ref() {
                return Err(Failure::Upgrade("sec-websocket-accept is wrong"));
            }
        }
        let connection = lease.into_inner().ok_or(Failure::Upgrade("no connection"))?;
        let Switched { io, early, place } = connection.switch(limits.connect).await?;
        let far = Socket::with_first(io, early);
        let name = upstream.name().to_owned();
        let (head, body) = answer_head(wish, &near, response.headers());
        let held = (under_way, place);
        join(begin(tunnels, &near), near, far, body.feed, limits.tunnel, name, held);
        Ok(head.map(|()| body.body))
    }

    /// Relays, if the server has accepted the CONNECT on its HTTP/2 stream.
    fn by_http2(
        self,
        mut response: Response<Incoming>,
        mut feed: Feed,
        key: Option<HeaderValue>,
    ) -> Result<Response<Body>, Failure> {
        let Self { upstream, wish, near, under_way, tunnels } = self;
        let limits = *upstream.timeouts();
        let opened = response.status().is_success();
        if opened {
            // RFC 9110 section 9.3.6: it has no meaning there.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        head::accept_http2(&mut response)?;
        let (mut parts, incoming) = response.into_parts();
        parts.version = Version::default();
        if !opened {
            // Nothing was sent, so nothing is truncated: the request ends regularly, and the response is read to its
            // end.
            feed.finish();
            let stall = limits.stall_of(&parts.headers);
            let body = Body::http2(incoming, under_way, Rest::default(), stall);
            return Ok(Response::from_parts(parts, body));
        }
        if let (Wish::Upgrade(_), Some(key)) = (wish, &key)
            && let Some(accept) = websocket::accept(key)
        {
            parts.headers.insert(websocket::ACCEPT, accept);
        }
        let far = Stream::new(incoming, feed);
        let (head, body) = answer_head(wish, &near, &parts.headers);
        let name = upstream.name().to_owned();
        join(begin(tunnels, &near), near, far, body.feed, limits.tunnel, name, under_way);
        Ok(head.map(|()| body.body))
    }
}

/// The body of the response that opens a tunnel, and its writer.
struct Answer {
    body: Body,
    /// Over HTTP/2 only.
    feed: Option<Feed>,
}

/// Returns the head of that response in the client's protocol.
fn answer_head(wish: &Wish, near: &Near, headers: &HeaderMap) -> (Response<()>, Answer) {
    let mut head = Response::new(());
    *head.headers_mut() = headers.clone();
    head.headers_mut().remove(CONTENT_LENGTH);
    let answer = match near {
        Near::Stream(_) => {
            head.headers_mut().remove(websocket::ACCEPT);
            let (feed, fed): (_, FedBody) = feed();
            Answer { body: Body::new(fed), feed: Some(feed) }
        }
        Near::Connection(_) => {
            if let Wish::Upgrade(protocol) = wish {
                *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                head::add_upgrade(head.headers_mut(), protocol);
            }
            Answer { body: Body::empty(), feed: None }
        }
    };
    (head, answer)
}

/// Starts to count a tunnel.
fn begin(tunnels: &Tunnels, near: &Near) -> Tunnel {
    let stream = match near {
        Near::Stream(incoming) => incoming.stream_info(),
        Near::Connection(_) => None,
    };
    tunnels.begin(Kind::Upgrade, stream)
}

/// Starts a task that relays between client and server. It holds `held` until its end.
fn join<F: End + 'static, H: 'static>(
    tunnel: Tunnel,
    near: Near,
    far: F,
    feed: Option<Feed>,
    idle: std::time::Duration,
    name: String,
    held: H,
) {
    tokio::task::spawn_local(async move {
        let outcome = match (near, feed) {
            (Near::Stream(incoming), Some(feed)) => {
                tunnel.carry(Stream::new(incoming, feed), far, Some(idle)).await
            }
            (Near::Connection(on_upgrade), _) => {
                let near = on_upgrade.await.map_err(io::Error::other).and_then(Socket::of_client);
                match near {
                    Ok(near) => tunnel.carry(near, far, Some(idle)).await,
                    Err(error) => {
                        return tracing::debug!(upstream = name, %error, "the client disconnected");
                    }
                }
            }
            (Near::Stream(_), None) => return,
        };
        match outcome.end {
            Ok(()) => tracing::debug!(upstream = name, "tunnel ended"),
            Err(error) => tracing::debug!(upstream = name, %error, "tunnel failed"),
        }
        drop(held);
    });
}

impl Abort for Io {
    fn abort(&mut self) {
        match self {
            Self::Tcp(tcp) => tcp.abort(),
            Self::Unix(unix) => unix.abort(),
            // TLS ends without close_notify, TCP with a reset.
            Self::Tls(tls) => tls.get_mut().0.abort(),
        }
    }
}
