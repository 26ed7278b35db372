//! The local HTTP proxy: CONNECT, requests in absolute form, and the PAC file.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPECT, HOST};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use smig_admin::spans::RequestSpan;
use smig_proxy::framing::Content;
use smig_proxy::head::{self, UpgradeHandling};
use smig_proxy::tunnel::{Socket, Stream, TunnelKind};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::LocalError;
use crate::local_socket::{LocalBody, LocalSocket, ResponseState};
use crate::pac;
use crate::shared::{SharedState, ShutdownReceiver, wait_for_shutdown};

/// At shutdown: timeout of the first request of a connection that has sent none.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// One local connection.
struct Connection {
    shared: Arc<SharedState>,
    local_addr: SocketAddr,
    state: ResponseState,
    /// Whether a request has arrived.
    request_seen: watch::Sender<bool>,
    /// A tunnel that starts once the connection has finished HTTP.
    tunnel: Mutex<Option<(OnUpgrade, Stream, RequestSpan)>>,
}

/// Serves a local connection to its end.
pub(crate) async fn serve(tcp: TcpStream, shared: Arc<SharedState>, shutdown: ShutdownReceiver) {
    let Ok(local_addr) = tcp.local_addr() else { return };
    let local_socket = LocalSocket::new(tcp);
    let state = local_socket.state();
    let (request_seen, request_seen_rx) = watch::channel(false);
    let tunnel = Mutex::default();
    let connection = Arc::new(Connection { shared, local_addr, state, request_seen, tunnel });
    let service = {
        let connection = Arc::clone(&connection);
        service_fn(move |request| {
            let connection = Arc::clone(&connection);
            async move { Ok::<_, Infallible>(connection.handle(request).await) }
        })
    };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(local_socket), service)
        .with_upgrades();
    if let Err(error) = drive(http, shutdown, request_seen_rx).await {
        tracing::debug!(%error, "local connection failed");
    }
    let tunnel = connection.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((upgrade, stream, span)) = tunnel else { return };
    let Ok(Ok(parts)) = upgrade.await.map(|io| io.downcast::<TokioIo<LocalSocket>>()) else {
        return;
    };
    connection.state.end();
    let socket = Socket::with_prefix(parts.io.into_inner(), parts.read_buf);
    connection.shared.relay_tunnel(TunnelKind::Connect, socket, stream, span).await;
}

/// Drives a connection to its end. A separate function: its state is freed before a tunnel starts.
async fn drive<I, S>(
    http: http1::UpgradeableConnection<I, S>,
    shutdown: ShutdownReceiver,
    mut request_seen_rx: watch::Receiver<bool>,
) -> hyper::Result<()>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = LocalBody>,
    S::Error: Into<smig::BoxError>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut http = Box::pin(http);
    let stop_requested = async move {
        wait_for_shutdown(shutdown).await;
        // hyper would immediately close a connection without a request, although its first one may
        // be in flight.
        let _ = timeout(FIRST_REQUEST_TIMEOUT, request_seen_rx.wait_for(|&seen| seen)).await;
    };
    tokio::select! {
        result = http.as_mut() => result,
        () = stop_requested => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    }
}

impl Connection {
    async fn handle(&self, request: Request<hyper::body::Incoming>) -> Response<LocalBody> {
        self.request_seen.send_replace(true);
        let method = request.method().clone();
        let result = if method == Method::CONNECT {
            self.handle_connect(request).await
        } else if request.uri().authority().is_some() {
            self.forward_request(request).await
        } else {
            Ok(self.handle_own_request(&method, request.uri().path()))
        };
        result.unwrap_or_else(|failure| {
            tracing::debug!(why = failure.text(), "local request failed");
            text_response(failure.status(), failure.text())
        })
    }

    async fn handle_connect(
        &self,
        mut request: Request<hyper::body::Incoming>,
    ) -> Result<Response<LocalBody>, LocalError> {
        let target = request.uri().authority().cloned();
        let Some(target) = target.filter(|target| target.port_u16().is_some()) else {
            let text = "a CONNECT request needs host:port".to_owned();
            return Err(LocalError::new(StatusCode::BAD_REQUEST, text));
        };
        let span =
            RequestSpan::for_local_request(&request, Some(&target), self.shared.tracer.as_ref());
        let stream = self.shared.uplink.open_tunnel(&target, &span).await;
        span.set_status(stream.as_ref().map_or_else(LocalError::status, |_| StatusCode::OK));
        let stream = stream?;
        let upgrade = hyper::upgrade::on(&mut request);
        // Until the relay starts: a connection that ends before that is reset.
        self.state.begin();
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, stream, span));
        Ok(Response::new(LocalBody::text(Bytes::new())))
    }

    async fn forward_request(
        &self,
        request: Request<hyper::body::Incoming>,
    ) -> Result<Response<LocalBody>, LocalError> {
        if request.uri().scheme_str() != Some("http") {
            let text =
                "only http:// is supported in absolute form; use CONNECT for https://".to_owned();
            return Err(LocalError::new(StatusCode::BAD_REQUEST, text));
        }
        let tracer = self.shared.tracer.as_ref();
        let span = RequestSpan::for_local_request(&request, request.uri().authority(), tracer);
        let mut request = prepare_request(request)?;
        span.inject(request.headers_mut());
        let uplink = Arc::clone(&self.shared.uplink);
        let response = uplink.send(request).await;
        span.set_status(response.as_ref().map_or_else(LocalError::status, Response::status));
        let state = self.state.clone();
        let mut response = response?.map(|body| LocalBody::session(body, state, uplink, span));
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    /// Handles a request for the agent's own pages.
    fn handle_own_request(&self, method: &Method, path: &str) -> Response<LocalBody> {
        if *method != Method::GET && *method != Method::HEAD {
            return text_response(
                StatusCode::METHOD_NOT_ALLOWED,
                "this is a proxy; use GET or HEAD",
            );
        }
        match path {
            pac::PATH => {
                let mut response = Response::new(LocalBody::text(pac::script(
                    self.local_addr,
                    self.shared.socks_addr,
                )));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(pac::MEDIA_TYPE));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                response
            }
            "/" => {
                let local = self.local_addr;
                let text = format!(
                    "This is a smig agent, an HTTP proxy. Set http://{local} as the proxy of \
                     programs, or http://{local}{} as the proxy configuration URL of browsers",
                    pac::PATH
                );
                text_response(StatusCode::OK, &text)
            }
            _ => text_response(
                StatusCode::NOT_FOUND,
                "this is a proxy; it serves only / and /proxy.pac",
            ),
        }
    }
}

/// Converts a local request to the form that is sent to the gateway.
pub(crate) fn prepare_request(
    mut request: Request<hyper::body::Incoming>,
) -> Result<Request<Content<hyper::body::Incoming>>, LocalError> {
    let to_local_error =
        |failure: smig_proxy::ProxyError| LocalError::new(failure.status(), failure.to_string());
    // The target's authority takes precedence over Host (RFC 9112 section 3.2.2).
    let host = request.uri().authority().map(|target| HeaderValue::from_str(target.as_str()));
    if let Some(Ok(host)) = host
        && request.headers().get_all(HOST).iter().count() <= 1
    {
        request.headers_mut().insert(HOST, host);
    }
    let (parts, body) = request.into_parts();
    let (mut upstream_head, content, _) =
        head::validate_request(parts, body, None, UpgradeHandling::Ignored)
            .map_err(to_local_error)?;
    // hyper sends 100 (Continue) when the body is read.
    upstream_head.fields.remove(&EXPECT);
    head::into_http2_request(upstream_head, &Scheme::HTTP, content).map_err(to_local_error)
}

/// Creates a plain-text response.
pub(crate) fn text_response(status: StatusCode, text: &str) -> Response<LocalBody> {
    let mut response = Response::new(LocalBody::text(format!("{text}\n")));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
