//! Local ports that lead to one destination each.
//!
//! A client that begins with HTTP/2 has each of its requests travel as a stream of its own, so that a
//! big response can move out of the way of the others. All else is a tunnel.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use smig::Speaks;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::accepted::{Accepted, BrokenFlag, LocalBody};
use super::failure::Failure;
use super::listen::{Stop, stopped};
use super::proxy::{outward, page};
use super::spec::{PortForward, PortProtocol};
use crate::admin::span::RequestSpan;
use crate::forward::NEXT_PROTOCOL;
use crate::proxy::grpc;
use crate::tunnel::{Kind, Socket};

/// The client's first octets in HTTP/2 (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a client may be silent until it is taken for one that waits for the server to speak.
const SILENCE: Duration = Duration::from_millis(300);

/// Serves a local connection to its end.
pub(super) async fn serve(
    mut tcp: TcpStream,
    forward: Arc<PortForward>,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let (first, is_http2) = match forward.protocol {
        PortProtocol::Tcp => (Bytes::new(), false),
        PortProtocol::H2c => (Bytes::new(), true),
        PortProtocol::Detect => look(&mut tcp).await,
    };
    // A gateway without migration gains nothing from it, and may not know what is asked of it.
    if is_http2 && shared.gateway.ready().await.is_ok_and(|speaks| speaks == Speaks::Smig) {
        return serve_http2(Accepted::new(tcp, first), forward, shared, stop).await;
    }
    let span = RequestSpan::tunnel("TCP", &forward.target, shared.tracer.as_ref());
    match shared.gateway.tunnel(&forward.target, &span).await {
        Ok(stream) => {
            shared.carry(Kind::Port, Socket::with_first(tcp, first), stream, span).await;
        }
        Err(failure) => {
            span.answered(failure.status());
            tracing::warn!(target = %forward.target, why = failure.text(), "no tunnel");
            // There is no other way to say it.
            drop(Socket::new(tcp));
        }
    }
}

/// Reads as much as is needed to see whether it is HTTP/2.
async fn look(tcp: &mut TcpStream) -> (Bytes, bool) {
    let mut first = BytesMut::with_capacity(PREFACE.len());
    let until = Instant::now() + SILENCE;
    while PREFACE.starts_with(&first) && first.len() < PREFACE.len() {
        match timeout_at(until, tcp.read_buf(&mut first)).await {
            Ok(Ok(1..)) => {}
            // Silence, an end or an error: a tunnel shows it to the other side.
            _ => break,
        }
    }
    let is_http2 = first.starts_with(PREFACE);
    (first.freeze(), is_http2)
}

async fn serve_http2(
    accepted: Accepted,
    forward: Arc<PortForward>,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let answering = service_fn(move |request| {
        let (forward, shared, broken) =
            (Arc::clone(&forward), Arc::clone(&shared), BrokenFlag::default());
        async move {
            let is_grpc = grpc::is_grpc(request.headers());
            let answered = answer(request, &forward, &shared, broken).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|failure| {
                tracing::debug!(why = failure.text(), "a local request failed");
                let mut response = page(failure.status(), failure.text());
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
            .serve_connection(TokioIo::new(accepted), answering)
    );
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a local connection ended");
    }
}

async fn answer(
    mut request: Request<hyper::body::Incoming>,
    forward: &PortForward,
    shared: &Shared,
    broken: BrokenFlag,
) -> Result<Response<LocalBody>, Failure> {
    let path = request.uri().path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(forward.target.clone())
        .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
        .build()
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    *request.uri_mut() = uri;
    let span = RequestSpan::local(&request, Some(&forward.target), shared.tracer.as_ref());
    let mut request = outward(request)?;
    span.tell(request.headers_mut());
    request.headers_mut().insert(NEXT_PROTOCOL, HeaderValue::from_static("h2c"));
    let gateway = Arc::clone(&shared.gateway);
    let response = gateway.send(request).await;
    span.answered(response.as_ref().map_or_else(Failure::status, Response::status));
    // A stream that breaks is reset by itself: the connection and its other streams go on.
    let mut response = response?.map(|body| LocalBody::session(body, broken, gateway, span));
    *response.version_mut() = Version::HTTP_2;
    Ok(response)
}
