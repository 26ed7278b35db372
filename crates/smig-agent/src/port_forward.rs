//! Forwarded local ports, each with one destination.
//!
//! If the gateway speaks SMig, each request of a client that starts with HTTP/2 becomes a stream of its own, so that a
//! large response can migrate away from the others. Any other connection becomes a tunnel.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use smig::{NegotiatedProtocol, throttled};
use smig_admin::spans::RequestSpan;
use smig_proxy::grpc;
use smig_proxy::tunnel::{Socket, TunnelKind};
use tokio::net::TcpStream;

use crate::error::LocalError;
use crate::http_proxy::{prepare_request, text_response};
use crate::local_socket::{LocalBody, LocalSocket, ResponseState};
use crate::options::{PortForward, PortProtocol};
use crate::shared::{SharedState, ShutdownReceiver, wait_for_shutdown};
use smig_proxy::ORIGIN_PROTOCOL;

/// The client connection preface of HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a client may take for the preface before it is assumed to wait for the server's first bytes.
const DETECT_TIMEOUT: Duration = Duration::from_millis(300);

/// Serves a local connection to its end.
pub(crate) async fn serve(
    tcp: TcpStream,
    forward: Arc<PortForward>,
    shared: Arc<SharedState>,
    shutdown: ShutdownReceiver,
) {
    let mut socket = LocalSocket::new(tcp);
    let state = socket.state();
    // Until the tunnel or HTTP/2 starts, every exit resets the connection.
    state.begin();
    let is_http2 = match forward.protocol {
        PortProtocol::Tcp => false,
        PortProtocol::H2c => true,
        PortProtocol::Detect => socket.detect_preface(PREFACE, DETECT_TIMEOUT).await,
    };
    // Without migration there is no benefit, and the gateway may not know the field `ORIGIN_PROTOCOL`.
    if is_http2
        && shared
            .uplink
            .wait_until_ready()
            .await
            .is_ok_and(|protocol| protocol == NegotiatedProtocol::Smig)
    {
        state.end();
        return serve_http2(socket, forward, shared, shutdown).await;
    }
    let span = RequestSpan::for_local_tunnel("TCP", &forward.target, shared.tracer.as_ref());
    match shared.uplink.open_tunnel(&forward.target, &span).await {
        Ok(stream) => {
            state.end();
            shared.relay_tunnel(TunnelKind::PortForward, Socket::new(socket), stream, span).await;
        }
        // A reset is the only way to signal the failure.
        Err(failure) => {
            span.set_status(failure.status());
            let why = failure.text();
            throttled!(warn, "no tunnel", target = %forward.target, why, "no tunnel was opened");
        }
    }
}

async fn serve_http2(
    socket: LocalSocket,
    forward: Arc<PortForward>,
    shared: Arc<SharedState>,
    shutdown: ShutdownReceiver,
) {
    let service = service_fn(move |request| {
        let (forward, shared) = (Arc::clone(&forward), Arc::clone(&shared));
        async move {
            let is_grpc = grpc::is_grpc(request.headers());
            let result = handle(request, &forward, &shared).await;
            Ok::<_, Infallible>(result.unwrap_or_else(|failure| {
                tracing::debug!(why = failure.text(), "local request failed");
                let mut response = text_response(failure.status(), failure.text());
                if is_grpc && grpc::translate(&mut response, failure.text()) {
                    *response.body_mut() = LocalBody::text(Bytes::new());
                }
                response
            }))
        }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .adaptive_window(true)
            .serve_connection(TokioIo::new(socket), service)
    );
    let result = tokio::select! {
        ended = connection.as_mut() => ended,
        () = wait_for_shutdown(shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "local connection failed");
    }
}

async fn handle(
    mut request: Request<hyper::body::Incoming>,
    forward: &PortForward,
    shared: &SharedState,
) -> Result<Response<LocalBody>, LocalError> {
    let path = request.uri().path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(forward.target.clone())
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()
        .map_err(|error| LocalError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    *request.uri_mut() = uri;
    let span =
        RequestSpan::for_local_request(&request, Some(&forward.target), shared.tracer.as_ref());
    let mut request = prepare_request(request)?;
    span.inject(request.headers_mut());
    request.headers_mut().insert(ORIGIN_PROTOCOL, HeaderValue::from_static("h2c"));
    let uplink = Arc::clone(&shared.uplink);
    let response = uplink.send(request).await;
    span.set_status(response.as_ref().map_or_else(LocalError::status, Response::status));
    // A failed stream is reset alone: the connection and its other streams continue.
    let state = ResponseState::default();
    let mut response = response?.map(|body| LocalBody::session(body, state, uplink, span));
    *response.version_mut() = Version::HTTP_2;
    Ok(response)
}
