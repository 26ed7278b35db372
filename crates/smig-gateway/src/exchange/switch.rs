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
use smig_proxy::ProxyError;
use smig_proxy::conn_pool::{Lease, UpgradedConn};
use smig_proxy::framing::{Content, ProxyField};
use smig_proxy::head::{self, UpgradeKind, UpstreamHead};
use smig_proxy::tunnel::{
    BodySender, ChannelBody, Socket, Stream, Tunnel, TunnelEnd, TunnelKind, Tunnels, channel,
};
use smig_proxy::upload::{Upload, WeakUpload};

use super::attempts::Attempts;
use super::await_response::await_response;
use super::body::Body;
use super::websocket;
use crate::upstream::{
    ActiveRequest, BalanceInput, Connection, Http2Client, ServerPool, Timeouts, Upstream,
    UpstreamServer, WorkerPools,
};

/// A request that switches to another protocol.
pub(super) struct UpgradeExchange<'a> {
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) client: SocketAddr,
    /// The client's data on its stream, over HTTP/2.
    pub(super) body: Incoming,
    /// The client's connection, over HTTP/1.1.
    pub(super) on_upgrade: Option<OnUpgrade>,
    pub(super) tunnels: &'a Tunnels,
}

/// What a request switches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchTo {
    /// A tunnel, by CONNECT.
    Tunnel,
    WebSocket,
    /// Another protocol, for which only HTTP/2 has a handshake.
    Other,
}

/// The client's end of a future tunnel.
enum Downstream {
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
        sender: BodySender,
        /// The client's key, which HTTP/2 has no use for.
        key: Option<HeaderValue>,
    },
}

impl UpgradeExchange<'_> {
    pub(super) async fn run(
        self,
        upstream_head: UpstreamHead,
    ) -> Result<Response<Body>, ProxyError> {
        let Self { upstream, client, body, on_upgrade, tunnels } = self;
        let downstream = match (&upstream_head.upgrade, on_upgrade) {
            (UpgradeKind::ExtendedConnect(_), _) | (UpgradeKind::Connect, None) => {
                Downstream::Stream(body)
            }
            (_, Some(on_upgrade)) => Downstream::Connection(on_upgrade),
            (_, None) => {
                return Err(ProxyError::Upgrade("the client's connection cannot switch protocols"));
            }
        };
        // Nothing of the client's data is sent before the answer: a WebSocket's handshake is a GET like any other.
        let switch_to = SwitchTo::of(&upstream_head.upgrade);
        let idempotent = switch_to == SwitchTo::WebSocket;
        let worker = WorkerPools::of(upstream);
        let mut attempts = Attempts::new(upstream);
        let mut last = ProxyError::NoServer;
        let (number, active, reply) = loop {
            let asked =
                BalanceInput { client, uri: &upstream_head.uri, headers: &upstream_head.fields };
            let Some((number, active)) = attempts.choose(asked) else { return Err(last) };
            let (Some(pool), Some(server)) = (worker.pool(number), active.server()) else {
                return Err(ProxyError::NoServer);
            };
            last = match ask(&upstream_head, switch_to, upstream, pool, server).await {
                Ok(reply) => break (number, active, reply),
                Err(failure) => failure,
            };
            attempts.blame(number, &last);
            if !last.may_retry(idempotent) || !attempts.another(number, &last) {
                return Err(last);
            }
        };
        if let Some(server) = active.server() {
            server.on_success();
        }
        let request = Answered {
            upstream,
            switch_to,
            upgrade: &upstream_head.upgrade,
            downstream,
            active,
            tunnels,
        };
        let joined = match reply {
            Reply::Http1 { response, lease, own_key } => {
                request.by_http1(response, lease, own_key).await
            }
            Reply::Http2 { response, sender, key } => request.by_http2(response, sender, key),
        };
        if let Err(failure) = &joined {
            attempts.blame(number, failure);
        }
        joined
    }
}

impl SwitchTo {
    fn of(upgrade: &UpgradeKind) -> Self {
        match upgrade {
            UpgradeKind::Upgrade(protocol) | UpgradeKind::ExtendedConnect(protocol)
                if protocol.as_str() == "websocket" =>
            {
                Self::WebSocket
            }
            UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) => Self::Other,
            UpgradeKind::None | UpgradeKind::Connect => Self::Tunnel,
        }
    }
}

/// Sends the request to a server and waits for the response's header section.
async fn ask(
    upstream_head: &UpstreamHead,
    switch_to: SwitchTo,
    upstream: &Upstream,
    pool: &ServerPool,
    server: &UpstreamServer,
) -> Result<Reply, ProxyError> {
    let limits = upstream.timeouts();
    let connection = match switch_to {
        SwitchTo::WebSocket => pool.for_websocket(upstream, server).await?,
        SwitchTo::Tunnel | SwitchTo::Other => pool.connection(upstream, server).await?,
    };
    let session = match connection {
        Connection::Http1(lease) if switch_to == SwitchTo::Other => {
            // Nothing was sent on it.
            lease.release();
            return Err(ProxyError::NotImplemented("protocols other than websocket"));
        }
        Connection::Http1(lease) => return ask_http1(upstream_head.clone(), lease, limits).await,
        Connection::Http2(session) => session,
    };
    match ask_http2(upstream_head.clone(), &session, server, limits).await {
        Err(ProxyError::NoExtendedConnect) if switch_to == SwitchTo::WebSocket => {
            let lease = pool.without_extended_connect(upstream, server, &session).await?;
            ask_http1(upstream_head.clone(), lease, limits).await
        }
        other => other,
    }
}

/// Sends the request over HTTP/1.1, with Upgrade or as CONNECT.
async fn ask_http1(
    mut upstream_head: UpstreamHead,
    mut lease: Lease,
    limits: &Timeouts,
) -> Result<Reply, ProxyError> {
    let mut own_key = None;
    if let UpgradeKind::ExtendedConnect(_) = upstream_head.upgrade {
        let key = websocket::key().ok_or(ProxyError::Upgrade("no random numbers"))?;
        upstream_head.fields.set(ProxyField::WebSocketKey, key.clone());
        own_key = Some(key);
    }
    let request = head::for_http1(upstream_head, Content::tunnel(Upload::default()))?;
    let Some(connection) = lease.get() else { return Err(ProxyError::NoServer) };
    // How a server parses the bytes that follow is uncertain, even if it does not switch.
    connection.mark_last();
    let response = connection.send(request, limits.response_deadline(&Upload::default())).await?;
    Ok(Reply::Http1 { response, lease, own_key })
}

/// Sends the request over HTTP/2, as extended CONNECT or CONNECT.
async fn ask_http2(
    mut upstream_head: UpstreamHead,
    session: &Http2Client,
    server: &UpstreamServer,
    limits: &Timeouts,
) -> Result<Reply, ProxyError> {
    let key = upstream_head.fields.remove(&websocket::KEY);
    let (sender, fed) = channel();
    let content = Content::tunnel(Upload::tunnel(fed));
    let request = head::for_http2(upstream_head, &session.scheme, content)?;
    let failed = |error: smig::Error| match (error.is_user(), error.was_processed()) {
        (true, Processed::No) => ProxyError::NoExtendedConnect,
        (true, _) => ProxyError::Upgrade("the request was cancelled"),
        (false, _) => ProxyError::from_smig(error),
    };
    let sending = session.client.submit(&session.origin, request).map_err(failed)?;
    // The tunnel's other direction waits for this response, so it cannot stall.
    let deadline = limits.response_deadline(&Upload::default());
    let response = await_response(sending, deadline).await?.map_err(failed)?;
    if response.version() < Version::HTTP_2 {
        // The client sent a CONNECT, and has no tunnel there.
        session.fell_back(server);
        return Err(ProxyError::Upgrade("the server no longer supports HTTP/2"));
    }
    Ok(Reply::Http2 { response, sender, key })
}

/// A request that a server has answered.
struct Answered<'a> {
    upstream: &'a Arc<Upstream>,
    switch_to: SwitchTo,
    upgrade: &'a UpgradeKind,
    downstream: Downstream,
    active: ActiveRequest,
    tunnels: &'a Tunnels,
}

impl Answered<'_> {
    /// Relays, if the server has switched on its HTTP/1.1 connection.
    async fn by_http1(
        self,
        mut response: Response<Received>,
        lease: Lease,
        own_key: Option<HeaderValue>,
    ) -> Result<Response<Body>, ProxyError> {
        let Self { upstream, switch_to, upgrade, downstream, active, tunnels } = self;
        let limits = *upstream.timeouts();
        let switches = match switch_to {
            SwitchTo::Tunnel => response.status().is_success(),
            SwitchTo::WebSocket | SwitchTo::Other => {
                response.status() == StatusCode::SWITCHING_PROTOCOLS
            }
        };
        let upgraded = response.headers().get(UPGRADE).cloned();
        head::validate_switch_response(&mut response)?;
        if !switches {
            if matches!(upgrade, UpgradeKind::ExtendedConnect(_)) && response.status().is_success()
            {
                // The server answers the GET, as it may (RFC 9110 section 7.8); to the client, 2xx would mean that the
                // WebSocket is open (RFC 8441 section 5).
                return Err(ProxyError::Upgrade("the server did not switch protocols"));
            }
            let (parts, incoming) = response.into_parts();
            let stall = limits.stream_idle_of(&parts.headers);
            let body = Body::http1(incoming, lease, active, WeakUpload::default(), stall);
            return Ok(Response::from_parts(parts, body));
        }
        if switch_to != SwitchTo::Tunnel {
            if !upgraded.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket")) {
                return Err(ProxyError::Upgrade("the server switched to another protocol"));
            }
            let answer = own_key.as_ref().and_then(websocket::accept);
            if own_key.is_some() && response.headers().get(websocket::ACCEPT) != answer.as_ref() {
                return Err(ProxyError::Upgrade("sec-websocket-accept is wrong"));
            }
        }
        let connection = lease.into_inner().ok_or(ProxyError::Upgrade("no connection"))?;
        let UpgradedConn { io, read_buf: early, permit } =
            connection.switch(limits.connect).await?;
        let server_end = Socket::with_prefix(io, early);
        let name = upstream.name().to_owned();
        let (head, body) = answer_head(upgrade, &downstream, response.headers());
        let held = (active, permit);
        join(
            begin(tunnels, &downstream),
            downstream,
            server_end,
            body.sender,
            limits.tunnel,
            name,
            held,
        );
        Ok(head.map(|()| body.body))
    }

    /// Relays, if the server has accepted the CONNECT on its HTTP/2 stream.
    fn by_http2(
        self,
        mut response: Response<Incoming>,
        mut sender: BodySender,
        key: Option<HeaderValue>,
    ) -> Result<Response<Body>, ProxyError> {
        let Self { upstream, upgrade, downstream, active, tunnels, .. } = self;
        let limits = *upstream.timeouts();
        let opened = response.status().is_success();
        if opened {
            // RFC 9110 section 9.3.6: it has no meaning there.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        head::validate_http2_response(&mut response)?;
        let (mut parts, incoming) = response.into_parts();
        parts.version = Version::default();
        if !opened {
            // Nothing was sent, so nothing is truncated: the request ends regularly, and the response is read to its
            // end.
            sender.finish();
            let stall = limits.stream_idle_of(&parts.headers);
            let body = Body::http2(incoming, active, WeakUpload::default(), stall);
            return Ok(Response::from_parts(parts, body));
        }
        if let (UpgradeKind::Upgrade(_), Some(key)) = (upgrade, &key)
            && let Some(accept) = websocket::accept(key)
        {
            parts.headers.insert(websocket::ACCEPT, accept);
        }
        let server_end = Stream::new(incoming, sender);
        let (head, body) = answer_head(upgrade, &downstream, &parts.headers);
        let name = upstream.name().to_owned();
        join(
            begin(tunnels, &downstream),
            downstream,
            server_end,
            body.sender,
            limits.tunnel,
            name,
            active,
        );
        Ok(head.map(|()| body.body))
    }
}

/// The body of the response that opens a tunnel, and its writer.
struct Answer {
    body: Body,
    /// Over HTTP/2 only.
    sender: Option<BodySender>,
}

/// Returns the head of that response in the client's protocol.
fn answer_head(
    upgrade: &UpgradeKind,
    downstream: &Downstream,
    headers: &HeaderMap,
) -> (Response<()>, Answer) {
    let mut head = Response::new(());
    *head.headers_mut() = headers.clone();
    head.headers_mut().remove(CONTENT_LENGTH);
    let answer = match downstream {
        Downstream::Stream(_) => {
            head.headers_mut().remove(websocket::ACCEPT);
            let (sender, fed): (_, ChannelBody) = channel();
            Answer { body: Body::new(fed), sender: Some(sender) }
        }
        Downstream::Connection(_) => {
            if let UpgradeKind::Upgrade(protocol) = upgrade {
                *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                head::add_upgrade(head.headers_mut(), protocol);
            }
            Answer { body: Body::empty(), sender: None }
        }
    };
    (head, answer)
}

/// Starts to count a tunnel.
fn begin(tunnels: &Tunnels, downstream: &Downstream) -> Tunnel {
    let stream = match downstream {
        Downstream::Stream(incoming) => incoming.stream_info(),
        Downstream::Connection(_) => None,
    };
    tunnels.begin(TunnelKind::Upgrade, stream)
}

/// Starts a task that relays between client and server. It holds `held` until its end.
fn join<F: TunnelEnd + 'static, H: 'static>(
    tunnel: Tunnel,
    downstream: Downstream,
    server_end: F,
    sender: Option<BodySender>,
    idle: std::time::Duration,
    name: String,
    held: H,
) {
    tokio::task::spawn_local(async move {
        let outcome = match (downstream, sender) {
            (Downstream::Stream(incoming), Some(sender)) => {
                tunnel.run(Stream::new(incoming, sender), server_end, Some(idle)).await
            }
            (Downstream::Connection(on_upgrade), _) => {
                let downstream =
                    on_upgrade.await.map_err(io::Error::other).and_then(Socket::of_client);
                match downstream {
                    Ok(downstream) => tunnel.run(downstream, server_end, Some(idle)).await,
                    Err(error) => {
                        return tracing::debug!(upstream = name, %error, "the client disconnected");
                    }
                }
            }
            (Downstream::Stream(_), None) => return,
        };
        match outcome.end {
            Ok(()) => tracing::debug!(upstream = name, "tunnel ended"),
            Err(error) => tracing::debug!(upstream = name, %error, "tunnel failed"),
        }
        drop(held);
    });
}
