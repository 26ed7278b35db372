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
    BodySender, ChannelBody, Socket, Stream, Tunnel, TunnelEndpoint, TunnelKind, TunnelRegistry,
    channel,
};
use smig_proxy::upload::{Upload, WeakUpload};

use super::attempts::Attempts;
use super::await_response::await_response;
use super::body::Body;
use super::websocket_key;
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
    pub(super) tunnels: &'a TunnelRegistry,
}

/// What a request switches to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchTo {
    /// A tunnel, by CONNECT.
    Tunnel,
    WebSocket,
    /// Another protocol, forwarded only over HTTP/2.
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
enum ServerResponse {
    Http1 {
        response: Response<Received>,
        lease: Lease,
        /// The key that the gateway generated for a client over HTTP/2, which sends none.
        generated_key: Option<HeaderValue>,
    },
    Http2 {
        response: Response<Incoming>,
        /// The tunnel's direction to the server.
        sender: BodySender,
        /// The client's key, which is not sent over HTTP/2.
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
        // None of the client's data is sent before the response: a WebSocket's handshake is a plain
        // GET.
        let switch_to = SwitchTo::of(&upstream_head.upgrade);
        let is_idempotent = switch_to == SwitchTo::WebSocket;
        let pools = WorkerPools::get_or_create(upstream);
        let mut attempts = Attempts::new(upstream);
        let mut last_failure = ProxyError::NoServer;
        let (server_index, active_request, response) = loop {
            let input =
                BalanceInput { client, uri: &upstream_head.uri, headers: &upstream_head.fields };
            let Some((server_index, active_request)) = attempts.begin_next(input) else {
                return Err(last_failure);
            };
            let (Some(pool), Some(server)) = (pools.pool(server_index), active_request.server())
            else {
                return Err(ProxyError::NoServer);
            };
            last_failure =
                match send_request(&upstream_head, switch_to, upstream, pool, server).await {
                    Ok(response) => break (server_index, active_request, response),
                    Err(failure) => failure,
                };
            attempts.record_failure(server_index, &last_failure);
            if !last_failure.may_retry(is_idempotent)
                || !attempts.take_retry(server_index, &last_failure)
            {
                return Err(last_failure);
            }
        };
        if let Some(server) = active_request.server() {
            server.on_success();
        }
        let completion = UpgradeCompletion {
            upstream,
            switch_to,
            upgrade: &upstream_head.upgrade,
            downstream,
            active_request,
            tunnels,
        };
        let result = match response {
            ServerResponse::Http1 { response, lease, generated_key } => {
                completion.finish_http1(response, lease, generated_key).await
            }
            ServerResponse::Http2 { response, sender, key } => {
                completion.finish_http2(response, sender, key)
            }
        };
        if let Err(failure) = &result {
            attempts.record_failure(server_index, failure);
        }
        result
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
async fn send_request(
    upstream_head: &UpstreamHead,
    switch_to: SwitchTo,
    upstream: &Upstream,
    pool: &ServerPool,
    server: &UpstreamServer,
) -> Result<ServerResponse, ProxyError> {
    let timeouts = upstream.timeouts();
    let connection = match switch_to {
        SwitchTo::WebSocket => pool.websocket_connection(upstream, server).await?,
        SwitchTo::Tunnel | SwitchTo::Other => pool.connection(upstream, server).await?,
    };
    let http2_client = match connection {
        Connection::Http1(lease) if switch_to == SwitchTo::Other => {
            // Nothing was sent on it.
            lease.release();
            return Err(ProxyError::NotImplemented("protocols other than websocket"));
        }
        Connection::Http1(lease) => {
            return send_http1(upstream_head.clone(), lease, timeouts).await;
        }
        Connection::Http2(http2_client) => http2_client,
    };
    match send_http2(upstream_head.clone(), &http2_client, server, timeouts).await {
        Err(ProxyError::NoExtendedConnect) if switch_to == SwitchTo::WebSocket => {
            let lease = pool.fall_back_to_http1(upstream, server, &http2_client).await?;
            send_http1(upstream_head.clone(), lease, timeouts).await
        }
        other => other,
    }
}

/// Sends the request over HTTP/1.1, with Upgrade or as CONNECT.
async fn send_http1(
    mut upstream_head: UpstreamHead,
    mut lease: Lease,
    timeouts: &Timeouts,
) -> Result<ServerResponse, ProxyError> {
    let mut generated_key = None;
    if let UpgradeKind::ExtendedConnect(_) = upstream_head.upgrade {
        let key = websocket_key::generate_key().ok_or(ProxyError::Upgrade("no random numbers"))?;
        upstream_head.fields.set(ProxyField::WebSocketKey, key.clone());
        generated_key = Some(key);
    }
    let request = head::into_http1_request(upstream_head, Content::tunnel(Upload::default()))?;
    let Some(connection) = lease.get() else { return Err(ProxyError::NoServer) };
    // How a server parses the bytes that follow is uncertain, even if it does not switch.
    connection.mark_last();
    let response = connection.send(request, timeouts.response_timeouts(&Upload::default())).await?;
    Ok(ServerResponse::Http1 { response, lease, generated_key })
}

/// Sends the request over HTTP/2, as extended CONNECT or CONNECT.
async fn send_http2(
    mut upstream_head: UpstreamHead,
    http2_client: &Http2Client,
    server: &UpstreamServer,
    timeouts: &Timeouts,
) -> Result<ServerResponse, ProxyError> {
    let key = upstream_head.fields.remove(&websocket_key::KEY);
    let (sender, body) = channel();
    let content = Content::tunnel(Upload::tunnel(body));
    let request = head::into_http2_request(upstream_head, &http2_client.scheme, content)?;
    let to_proxy_error = |error: smig::Error| match (error.is_user(), error.was_processed()) {
        (true, Processed::No) => ProxyError::NoExtendedConnect,
        (true, _) => ProxyError::Upgrade("the request was cancelled"),
        (false, _) => ProxyError::from_smig(error),
    };
    let response_future =
        http2_client.client.submit(&http2_client.origin, request).map_err(to_proxy_error)?;
    // The tunnel's other direction waits for this response, so it cannot stall.
    let response_timeouts = timeouts.response_timeouts(&Upload::default());
    let response =
        await_response(response_future, response_timeouts).await?.map_err(to_proxy_error)?;
    if response.version() < Version::HTTP_2 {
        // The HTTP/2 client fell back to HTTP/1.1, and its CONNECT opens no tunnel there.
        http2_client.record_fallback(server);
        return Err(ProxyError::Upgrade("the server no longer supports HTTP/2"));
    }
    Ok(ServerResponse::Http2 { response, sender, key })
}

/// A request to which a server has responded: what is needed to open the tunnel.
struct UpgradeCompletion<'a> {
    upstream: &'a Arc<Upstream>,
    switch_to: SwitchTo,
    upgrade: &'a UpgradeKind,
    downstream: Downstream,
    active_request: ActiveRequest,
    tunnels: &'a TunnelRegistry,
}

impl UpgradeCompletion<'_> {
    /// Starts the relay if the server switched on its HTTP/1.1 connection; otherwise forwards the
    /// response.
    async fn finish_http1(
        self,
        mut response: Response<Received>,
        lease: Lease,
        generated_key: Option<HeaderValue>,
    ) -> Result<Response<Body>, ProxyError> {
        let Self { upstream, switch_to, upgrade, downstream, active_request, tunnels } = self;
        let timeouts = *upstream.timeouts();
        let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let has_switched = match switch_to {
            // Not a final response to CONNECT, which has no Upgrade.
            SwitchTo::Tunnel if is_switching => {
                return Err(ProxyError::BadResponse("101 to CONNECT".to_owned()));
            }
            SwitchTo::Tunnel => response.status().is_success(),
            SwitchTo::WebSocket | SwitchTo::Other => is_switching,
        };
        let protocol = response.headers().get(UPGRADE).cloned();
        head::validate_switch_response(&mut response)?;
        if !has_switched {
            if matches!(upgrade, UpgradeKind::ExtendedConnect(_)) && response.status().is_success()
            {
                // The server answers the GET, as it may (RFC 9110 section 7.8); to the client, 2xx would mean that the
                // WebSocket is open (RFC 8441 section 5).
                return Err(ProxyError::Upgrade("the server did not switch protocols"));
            }
            let (parts, incoming) = response.into_parts();
            let idle_timeout = timeouts.stream_idle_of(&parts.headers);
            let body =
                Body::http1(incoming, lease, active_request, WeakUpload::default(), idle_timeout);
            return Ok(Response::from_parts(parts, body));
        }
        if switch_to != SwitchTo::Tunnel {
            if !protocol.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(b"websocket")) {
                return Err(ProxyError::Upgrade("the server switched to another protocol"));
            }
            let expected_accept = generated_key.as_ref().and_then(websocket_key::accept_value);
            if generated_key.is_some()
                && response.headers().get(websocket_key::ACCEPT) != expected_accept.as_ref()
            {
                return Err(ProxyError::Upgrade("sec-websocket-accept is wrong"));
            }
        }
        let connection = lease.into_inner().ok_or(ProxyError::Upgrade("no connection"))?;
        let UpgradedConn { io, read_buf: early_bytes, permit } =
            connection.switch(timeouts.connect).await?;
        let server_end = Socket::with_prefix(io, early_bytes);
        let name = upstream.name().to_owned();
        let (head, tunnel_body) = tunnel_response(upgrade, &downstream, response.headers());
        let guards = (active_request, permit);
        spawn_relay(
            begin_tunnel(tunnels, &downstream),
            downstream,
            server_end,
            tunnel_body.sender,
            timeouts.tunnel,
            name,
            guards,
        );
        Ok(head.map(|()| tunnel_body.body))
    }

    /// Starts the relay if the server accepted the CONNECT over HTTP/2; otherwise forwards the
    /// response.
    fn finish_http2(
        self,
        mut response: Response<Incoming>,
        mut sender: BodySender,
        key: Option<HeaderValue>,
    ) -> Result<Response<Body>, ProxyError> {
        let Self { upstream, upgrade, downstream, active_request, tunnels, .. } = self;
        let timeouts = *upstream.timeouts();
        let is_accepted = response.status().is_success();
        if is_accepted {
            // RFC 9110 section 9.3.6: Content-Length has no meaning there.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        head::validate_http2_response(&mut response)?;
        let (mut parts, incoming) = response.into_parts();
        parts.version = Version::default();
        if !is_accepted {
            // Nothing was sent, so nothing is truncated: the request ends regularly, and the response is read to its
            // end.
            sender.finish();
            let idle_timeout = timeouts.stream_idle_of(&parts.headers);
            let body = Body::http2(incoming, active_request, WeakUpload::default(), idle_timeout);
            return Ok(Response::from_parts(parts, body));
        }
        if let (UpgradeKind::Upgrade(_), Some(key)) = (upgrade, &key)
            && let Some(accept) = websocket_key::accept_value(key)
        {
            parts.headers.insert(websocket_key::ACCEPT, accept);
        }
        let server_end = Stream::new(incoming, sender);
        let (head, tunnel_body) = tunnel_response(upgrade, &downstream, &parts.headers);
        let name = upstream.name().to_owned();
        spawn_relay(
            begin_tunnel(tunnels, &downstream),
            downstream,
            server_end,
            tunnel_body.sender,
            timeouts.tunnel,
            name,
            active_request,
        );
        Ok(head.map(|()| tunnel_body.body))
    }
}

/// The body of the response that opens a tunnel, and its writer.
struct TunnelBody {
    body: Body,
    /// Over HTTP/2 only.
    sender: Option<BodySender>,
}

/// Returns that response in the client's protocol: its head, and its body.
fn tunnel_response(
    upgrade: &UpgradeKind,
    downstream: &Downstream,
    headers: &HeaderMap,
) -> (Response<()>, TunnelBody) {
    let mut head = Response::new(());
    *head.headers_mut() = headers.clone();
    head.headers_mut().remove(CONTENT_LENGTH);
    let tunnel_body = match downstream {
        Downstream::Stream(_) => {
            head.headers_mut().remove(websocket_key::ACCEPT);
            let (sender, body): (_, ChannelBody) = channel();
            TunnelBody { body: Body::new(body), sender: Some(sender) }
        }
        Downstream::Connection(_) => {
            if let UpgradeKind::Upgrade(protocol) = upgrade {
                *head.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                head::add_upgrade(head.headers_mut(), protocol);
            }
            TunnelBody { body: Body::empty(), sender: None }
        }
    };
    (head, tunnel_body)
}

/// Starts to count a tunnel.
fn begin_tunnel(tunnels: &TunnelRegistry, downstream: &Downstream) -> Tunnel {
    let stream = match downstream {
        Downstream::Stream(incoming) => incoming.stream_info(),
        Downstream::Connection(_) => None,
    };
    tunnels.begin(TunnelKind::Upstream, stream)
}

/// Starts a task that relays between client and server. It holds `guards` until its end.
fn spawn_relay<F: TunnelEndpoint + 'static, H: 'static>(
    tunnel: Tunnel,
    downstream: Downstream,
    server_end: F,
    sender: Option<BodySender>,
    idle_timeout: std::time::Duration,
    name: String,
    guards: H,
) {
    tokio::task::spawn_local(async move {
        let outcome = match (downstream, sender) {
            (Downstream::Stream(incoming), Some(sender)) => {
                tunnel.run(Stream::new(incoming, sender), server_end, Some(idle_timeout)).await
            }
            (Downstream::Connection(on_upgrade), _) => {
                let downstream =
                    on_upgrade.await.map_err(io::Error::other).and_then(Socket::of_client);
                match downstream {
                    Ok(downstream) => tunnel.run(downstream, server_end, Some(idle_timeout)).await,
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
        drop(guards);
    });
}
