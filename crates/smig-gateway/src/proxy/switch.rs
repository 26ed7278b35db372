//! Requests that switch protocols: WebSocket by Upgrade or RFC 8441, and tunnels by CONNECT. Either side may use
//! HTTP/1.1 or HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HeaderMap, UPGRADE};
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use smig::Incoming;

use super::framing::{Content, Own};
use super::head::{self, Outward, Wish};
use super::upload::Rest;
use super::{Body, Failure, Patience, Upload, websocket, within};
use crate::tunnel::{Abort, End, FedBody, Kind, Socket, Stream, Tunnel, Tunnels, feed};
use crate::upstream::{
    Asked, Connection, Io, Lease, Session, Switched, Tried, UnderWay, Upstream, Worker,
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

impl Switch<'_> {
    pub(super) async fn run(self, outward: Outward) -> Result<Response<Body>, Failure> {
        let Self { upstream, client, body, on_upgrade, tunnels } = self;
        let asked = Asked { client, uri: &outward.uri, headers: &outward.fields };
        let worker = Worker::of(upstream);
        let (mut tried, mut left) = (Tried::default(), upstream.retries());
        let mut last = Failure::NoServer;
        let (number, under_way, connection) = loop {
            let Some((number, under_way)) = upstream.choose(asked, tried) else { return Err(last) };
            let (Some(pool), Some(server)) = (worker.pool(number), under_way.server()) else {
                return Err(Failure::NoServer);
            };
            last = match pool.connection(upstream, server).await {
                Ok(connection) => break (number, under_way, connection),
                Err(failure) => failure,
            };
            if last.is_servers() {
                server.on_failure();
            }
            // Nothing was sent yet. After that there is no retry: a client that opens a long-lived connection can
            // retry itself.
            if left == 0 || !last.may_retry(false) {
                return Err(last);
            }
            left -= 1;
            tried.add(number);
        };
        let near = match (&outward.wish, on_upgrade) {
            (Wish::Extended(_), _) | (Wish::Tunnel, None) => Near::Stream(body),
            (_, Some(on_upgrade)) => Near::Connection(on_upgrade),
            (_, None) => return Err(Failure::Upgrade("the client's connection cannot change")),
        };
        let answered = match connection {
            Connection::Http1(lease) => {
                by_http1(upstream, outward, lease, under_way, near, tunnels).await
            }
            Connection::Http2(session) => {
                by_http2(upstream, outward, &session, under_way, near, tunnels).await
            }
        };
        if let Err(failure) = &answered
            && failure.is_servers()
            && let Some(server) = upstream.servers().get(number)
        {
            server.on_failure();
        }
        answered
    }
}

/// Switches with a server over HTTP/1.1: Upgrade, or CONNECT.
async fn by_http1(
    upstream: &Arc<Upstream>,
    mut outward: Outward,
    mut lease: Lease,
    under_way: UnderWay,
    near: Near,
    tunnels: &Tunnels,
) -> Result<Response<Body>, Failure> {
    let limits = *upstream.timeouts();
    let wish = outward.wish.clone();
    let mut own_key = None;
    match &wish {
        Wish::Upgrade(protocol) | Wish::Extended(protocol) => {
            if protocol.as_str() != "websocket" {
                return Err(Failure::NotImplemented("a protocol other than websocket"));
            }
            if matches!(wish, Wish::Extended(_)) {
                own_key = websocket::key();
                let key = own_key.clone().ok_or(Failure::Upgrade("no randomness"))?;
                outward.fields.say(Own::WebSocketKey, key);
            }
        }
        Wish::Usual | Wish::Tunnel => {}
    }
    let request = head::for_http1(outward, Content::tunnel(Upload::default()))?;
    let Some(connection) = lease.get() else { return Err(Failure::NoServer) };
    // How a server parses the bytes that follow is uncertain, even if it does not switch.
    connection.use_no_more();
    let sent = connection.send(request, Patience::new(&Upload::default(), &limits)).await;
    let mut response = sent.map_err(|unanswered| unanswered.failure)?;
    let switches = match &wish {
        Wish::Tunnel => response.status().is_success(),
        _ => response.status() == StatusCode::SWITCHING_PROTOCOLS,
    };
    if let Some(server) = under_way.server() {
        server.on_success();
    }
    let upgraded = response.headers().get(UPGRADE).cloned();
    head::accept_switch(&mut response)?;
    if !switches {
        let (parts, incoming) = response.into_parts();
        let stall = limits.stall_of(&parts.headers);
        let body = Body::http1(incoming, lease, under_way, Rest::default(), stall);
        return Ok(Response::from_parts(parts, body));
    }
    if wish != Wish::Tunnel {
        if !upgraded.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket")) {
            return Err(Failure::Upgrade("the server changes to another protocol"));
        }
        let answer = own_key.as_ref().and_then(websocket::accept);
        if own_key.is_some() && response.headers().get(websocket::ACCEPT) != answer.as_ref() {
            return Err(Failure::Upgrade("the server's proof is wrong"));
        }
    }
    let connection = lease.into_inner().ok_or(Failure::Upgrade("no connection"))?;
    let Switched { io, early, place } = connection.switch(limits.connect).await?;
    let far = Socket::with_first(io, early);
    let name = upstream.name().to_owned();
    let (head, body) = answer_head(&wish, &near, response.headers());
    let held = (under_way, place);
    join(begin(tunnels, &near), near, far, body.feed, limits.tunnel, name, held);
    Ok(head.map(|()| body.body))
}

/// Switches with a server over HTTP/2: extended CONNECT, or CONNECT.
async fn by_http2(
    upstream: &Arc<Upstream>,
    mut outward: Outward,
    session: &Session,
    under_way: UnderWay,
    near: Near,
    tunnels: &Tunnels,
) -> Result<Response<Body>, Failure> {
    let limits = *upstream.timeouts();
    let wish = outward.wish.clone();
    let key = outward.fields.remove(&websocket::KEY);
    let (mut feed, fed) = feed();
    let content = Content::tunnel(Upload::tunnel(fed));
    let request = head::for_http2(outward, &session.scheme, content)?;
    let sending = session.client.request_to(&session.origin, request);
    // The tunnel's other direction waits for this response, so it cannot stall.
    let patience = Patience::new(&Upload::default(), &limits);
    let response = within(sending, patience).await?.map_err(|error| match error.is_user() {
        true => Failure::Upgrade("the server takes no extended CONNECT"),
        false => Failure::from_smig(error),
    })?;
    if let Some(server) = under_way.server() {
        server.on_success();
    }
    let (mut parts, incoming) = response.into_parts();
    parts.version = http::Version::default();
    head::strip_proxys(&mut parts.headers);
    if !parts.status.is_success() {
        // Nothing was sent, so nothing is truncated: the request ends regularly, and the response is read to its end.
        feed.finish();
        let stall = limits.stall_of(&parts.headers);
        let body = Body::http2(incoming, under_way, Rest::default(), stall);
        return Ok(Response::from_parts(parts, body));
    }
    if let (Wish::Upgrade(_), Some(key)) = (&wish, &key)
        && let Some(accept) = websocket::accept(key)
    {
        parts.headers.insert(websocket::ACCEPT, accept);
    }
    let far = Stream::new(incoming, feed);
    let (head, body) = answer_head(&wish, &near, &parts.headers);
    let name = upstream.name().to_owned();
    join(begin(tunnels, &near), near, far, body.feed, limits.tunnel, name, under_way);
    Ok(head.map(|()| body.body))
}

/// The body of the response that opens a tunnel, and its writer.
struct Answer {
    body: Body,
    /// Over HTTP/2 only.
    feed: Option<crate::tunnel::Feed>,
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
    feed: Option<crate::tunnel::Feed>,
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
                        return tracing::debug!(upstream = name, %error, "the client left");
                    }
                }
            }
            (Near::Stream(_), None) => return,
        };
        match outcome.end {
            Ok(()) => tracing::debug!(upstream = name, "a tunnel ended"),
            Err(error) => tracing::debug!(upstream = name, %error, "a tunnel broke"),
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
