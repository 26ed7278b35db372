//! HTTP/1.1 connections: the same service, through hyper.
//!
//! Below hyper, [`io`] inserts informational responses and [`boundaries`] rejects ambiguous input;
//! handlers and I/O share [`conn_state`]. [`timeouts`] limits what the server waits for, [`body`]
//! tracks a response's body, [`pacing`] limits the rate of long ones, [`mod@linger`] closes, and
//! [`upgraded`] is a connection after hyper.

mod body;
mod boundaries;
mod conn_state;
mod io;
mod linger;
mod pacing;
mod timeouts;
mod upgraded;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use smig_proto::BulkHint;
use smig_proto::policy::MigrationHint;
use tokio::sync::Notify;
use tower_service::Service;

use super::exchange::RequestKind;
use super::heads;
use super::informational::InformationalSender;
use super::service::{HttpService, ResponseBody};
use super::shared::{ServerShared, ServerState};
use super::slow_uploads;
use super::worker::Worker;
use crate::clock;
use crate::connection::ConnectionInfo;
use crate::driver::Timer;
use crate::error::BoxError;
use crate::observer::ObserverEvent;
use crate::stream::{Http1RecvProgress, Incoming};
use crate::transport::Transport;

pub(super) use boundaries::MAX_EMPTY_LINES;
pub(super) use conn_state::Http1ConnState;
pub use upgraded::UpgradedIo;

use body::TrackedBody;
use io::Http1Io;
use linger::{LingerEnd, LingerSlot, linger};
use pacing::ResponsePacing;
use timeouts::{ExceededTimeout, Http1Timeouts, NextProtocol};

/// How long a draining server waits for the first request of a connection, which may be in flight.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one connection until it ends.
pub(super) async fn serve<S, B>(
    transport: Transport,
    info: Arc<ConnectionInfo>,
    worker: Rc<Worker<S>>,
) where
    S: HttpService<B>,
    B: ResponseBody,
{
    let conn_state = Arc::<Http1ConnState>::default();
    let timeouts = Arc::new(Http1Timeouts::new(worker.shared.time_limits, clock::now()));
    let token = worker.task_token();
    let linger_slot = Arc::<LingerSlot>::default();
    let parts = (Arc::clone(&conn_state), Arc::clone(&timeouts), Arc::clone(&linger_slot));
    let pacing = ResponsePacing::new(worker.shared.engine_config.bulk.clone());
    let io = Http1Io::new(transport, parts, pacing, token);
    let first_request = Rc::new(FirstRequest::default());
    let peer = info.peer_addr();
    let service = ServiceAdapter {
        worker: Rc::clone(&worker),
        info,
        conn_state,
        timeouts: Arc::clone(&timeouts),
        first_request: Rc::clone(&first_request),
    };
    // hyper's buffers are freed as soon as hyper has finished.
    let result = {
        let connection = hyper::server::conn::http1::Builder::new()
            // The I/O layer and the timeouts enforce all time limits.
            .header_read_timeout(None)
            // The limit on header blocks over HTTP/2; hyper's minimum is 8 KiB.
            .max_buf_size(worker.shared.engine_config.limits.max_header_block.max(8 << 10))
            .serve_connection(io, service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let draining = async {
            wait_for_drain(&worker).await;
            // hyper would close a connection that waits for a request at once, and the first one may be in flight.
            let _ = tokio::time::timeout(FIRST_REQUEST_TIMEOUT, first_request.arrival()).await;
        };
        let (mut draining, mut timer) = (std::pin::pin!(draining), Timer::default());
        let mut notified = false;
        poll_fn(|cx| {
            if !notified && draining.as_mut().poll(cx).is_ready() {
                notified = true;
                connection.as_mut().graceful_shutdown();
            }
            loop {
                if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                    return Poll::Ready(result);
                }
                let now = clock::now();
                if let Some(exceeded) = timeouts.check(now) {
                    timeouts.set_exceeded(exceeded);
                    return Poll::Ready(Ok(()));
                }
                ready!(timer.poll(cx, timeouts.next_check(now)));
            }
        })
        .await
    };
    if let Err(error) = result {
        tracing::debug!(%error, "HTTP/1.1 connection ended");
    }
    if let Some(connection) = linger_slot.take() {
        let min_progress = worker.shared.time_limits.send;
        match linger(connection, min_progress, wait_for_drain(&worker)).await {
            LingerEnd::ClosedByClient | LingerEnd::Silent => {}
            LingerEnd::LimitReached => timeouts.set_exceeded(ExceededTimeout::Linger),
            LingerEnd::Stalled => timeouts.set_exceeded(ExceededTimeout::Send),
        }
    }
    if let Some(exceeded) = timeouts.exceeded_timeout() {
        on_exceeded(exceeded, peer, &worker);
    }
}

/// Waits until the server drains.
async fn wait_for_drain<S>(worker: &Worker<S>) {
    // A dropped sender stops the whole worker.
    let _ = worker.state.clone().wait_for(|state| *state != ServerState::Running).await;
}

/// Reports the limit that ended the connection and, with it, the handler.
fn on_exceeded<S>(exceeded: ExceededTimeout, peer: SocketAddr, worker: &Worker<S>) {
    match exceeded.limit() {
        Some(limit) => worker.shared.on_limit_hit(limit, Some(peer)),
        None => tracing::debug!(%peer, "connection closed without a further request"),
    }
}

/// Whether a request has arrived.
#[derive(Debug, Default)]
struct FirstRequest {
    has_arrived: Cell<bool>,
    arrival_notify: Notify,
}

impl FirstRequest {
    fn on_request(&self) {
        if !self.has_arrived.replace(true) {
            self.arrival_notify.notify_one();
        }
    }

    async fn arrival(&self) {
        if !self.has_arrived.get() {
            self.arrival_notify.notified().await;
        }
    }
}

/// Adapts the tower service to hyper.
struct ServiceAdapter<S> {
    worker: Rc<Worker<S>>,
    info: Arc<ConnectionInfo>,
    conn_state: Arc<Http1ConnState>,
    timeouts: Arc<Http1Timeouts>,
    first_request: Rc<FirstRequest>,
}

impl<S> ServiceAdapter<S> {
    /// Converts a request for the service; its body is subject to its time limit.
    fn convert_request(
        &self,
        kind: RequestKind,
        request: Request<hyper::body::Incoming>,
    ) -> Request<Incoming> {
        let now = clock::now();
        let has_body = !request.body().is_end_stream();
        let progress = has_body.then(|| {
            let time_limits = &self.worker.shared.time_limits;
            let progress_clock = slow_uploads::upload_clock(
                time_limits,
                kind,
                request.version(),
                request.headers(),
                now,
            );
            Arc::new(Http1RecvProgress::new(progress_clock, now))
        });
        self.timeouts.on_request(progress.clone());
        request.map(|body| match progress {
            Some(progress) => Incoming::http1_with_progress(body, progress),
            None => Incoming::http1(body),
        })
    }
}

impl<S, B> hyper::service::Service<Request<hyper::body::Incoming>> for ServiceAdapter<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body + 'static,
{
    type Response = Response<TrackedBody<B>>;
    type Error = BoxError;
    type Future = Oneshot<S>;

    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        self.first_request.on_request();
        self.worker.shared.events.on_event(&ObserverEvent::StreamOpened { stream: None });
        let kind = heads::request_kind(request.method());
        let mut request = self.convert_request(kind, request);
        request.extensions_mut().insert(Arc::clone(&self.info));
        if request.version() >= Version::HTTP_11 {
            self.conn_state.on_request();
            request
                .extensions_mut()
                .insert(InformationalSender::http1(Arc::clone(&self.conn_state)));
        }
        // HTTP/1.0 has no chunked coding.
        let until_close = request.version() < Version::HTTP_11;
        let (conn_state, timeouts) = (Arc::clone(&self.conn_state), Arc::clone(&self.timeouts));
        let shared = Arc::clone(&self.worker.shared);
        let pending_response = PendingResponse { conn_state, timeouts, shared, kind, until_close };
        Oneshot::Waiting {
            service: self.worker.service.clone(),
            request: Some(request),
            pending_response,
        }
    }
}

/// State of a request that waits for its response.
#[derive(Clone)]
struct PendingResponse {
    conn_state: Arc<Http1ConnState>,
    timeouts: Arc<Http1Timeouts>,
    shared: Arc<ServerShared>,
    kind: RequestKind,
    /// The response's body may be delimited by close.
    until_close: bool,
}

impl PendingResponse {
    fn convert_response<B>(&self, mut response: Response<B>) -> Response<TrackedBody<B>>
    where
        B: Body + 'static,
    {
        if let Some(fields) = self.shared.shared_headers(response.body()).map(Arc::clone) {
            heads::add_shared_fields(&fields, response.headers_mut());
        }
        let status = response.status();
        let is_tunnel = match self.kind {
            RequestKind::Connect => status.is_success(),
            RequestKind::Other | RequestKind::Head => status == StatusCode::SWITCHING_PROTOCOLS,
        };
        let next = if is_tunnel { NextProtocol::Tunnel } else { NextProtocol::Http };
        let hint = response.extensions_mut().remove::<MigrationHint>().unwrap_or_default();
        let bulk_hint = response.extensions_mut().remove::<BulkHint>();
        let bulk_hint = bulk_hint.unwrap_or_else(|| hint.into());
        self.conn_state.on_response(next, response.body().size_hint().exact(), bulk_hint);
        self.timeouts.on_response(next);
        let conn_state = Some(&self.conn_state).filter(|_| self.until_close);
        response.map(|body| TrackedBody::new(body, conn_state, &self.timeouts))
    }
}

pin_project! {
    /// Waits until a service is ready, then calls it once.
    #[project = OneshotProjection]
    enum Oneshot<S> where S: Service<Request<Incoming>> {
        Waiting { service: S, request: Option<Request<Incoming>>, pending_response: PendingResponse },
        Called { #[pin] future: S::Future, pending_response: PendingResponse },
    }
}

impl<S, B> Future for Oneshot<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body + 'static,
{
    type Output = Result<Response<TrackedBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let (future, pending_response) = match self.as_mut().project() {
                OneshotProjection::Called { future, pending_response } => {
                    let result = ready!(future.poll(cx));
                    return Poll::Ready(
                        result
                            .map_err(Into::into)
                            .map(|response| pending_response.convert_response(response)),
                    );
                }
                OneshotProjection::Waiting { service, request, pending_response } => {
                    ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    (service.call(request), pending_response.clone())
                }
            };
            self.set(Self::Called { future, pending_response });
        }
    }
}
