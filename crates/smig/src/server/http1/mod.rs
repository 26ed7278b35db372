//! HTTP/1.1 connections: the same service, through hyper.

mod body;
mod boundaries;
mod io;
mod linger;
mod timeouts;
mod upgraded;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use smig_proto::policy::MigrationHint;
use tokio::sync::Notify;
use tower_service::Service;

use super::exchange::RequestKind;
use super::heads;
use super::informational::InformationalSender;
use super::slow_uploads;
use super::worker::{ServerState, TaskToken, Worker};
use crate::clock;
use crate::connection::ConnectionInfo;
use crate::driver::{CLOSE_TIMEOUT, Timer};
use crate::error::BoxError;
use crate::observer::ObserverEvent;
use crate::stream::{Incoming, Intake};
use crate::transport::Transport;

pub(super) use boundaries::MAX_EMPTY;
pub(super) use io::Http1Informational;
pub use upgraded::UpgradedIo;

use body::TrackedBody;
use io::Http1Io;
use linger::{End, Leaving, linger};
use timeouts::{Becomes, Late, Vigil};

/// Serves one connection until it ends.
pub(super) async fn serve<S, B>(
    transport: Transport,
    info: Arc<ConnectionInfo>,
    worker: Rc<Worker<S>>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let asides = Arc::<Http1Informational>::default();
    let vigil = Arc::new(Vigil::new(worker.shared.deadlines, clock::now()));
    let active = TaskToken::new(&worker);
    let leaving = Arc::<Leaving>::default();
    let of_line = (Arc::clone(&asides), Arc::clone(&vigil), Arc::clone(&leaving));
    let line = Http1Io::new(transport, of_line, active);
    let asked = Rc::new(FirstRequest::default());
    let peer = info.peer_addr();
    let service = Adapter {
        worker: Rc::clone(&worker),
        info,
        asides,
        vigil: Arc::clone(&vigil),
        asked: Rc::clone(&asked),
    };
    // hyper's buffers are freed as soon as hyper has finished.
    let ended = {
        let connection = hyper::server::conn::http1::Builder::new()
            // The line and its vigil enforce all time limits.
            .header_read_timeout(None)
            // The limit on header blocks over HTTP/2; hyper's minimum is 8 KiB.
            .max_buf_size(worker.shared.engine.limits.max_header_block.max(8 << 10))
            .serve_connection(line, service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let draining = async {
            is_draining(&worker).await;
            // hyper would close a connection that waits for a request at once, and the first one may be in flight.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, asked.once()).await;
        };
        let (mut draining, mut timer) = (std::pin::pin!(draining), Timer::default());
        let mut told = false;
        poll_fn(|cx| {
            if !told && draining.as_mut().poll(cx).is_ready() {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            loop {
                if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                    return Poll::Ready(ended);
                }
                let now = clock::now();
                if let Some(late) = vigil.look(now) {
                    vigil.give_up(late);
                    return Poll::Ready(Ok(()));
                }
                ready!(timer.poll(cx, vigil.next_look(now)));
            }
        })
        .await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP/1.1 connection ended");
    }
    if let Some(left) = leaving.take() {
        let send = worker.shared.deadlines.send;
        match linger(left, send, is_draining(&worker)).await {
            End::Clients | End::Quiet => {}
            End::Limit => vigil.give_up(Late::Leave),
            End::Stalled => vigil.give_up(Late::Send),
        }
    }
    if let Some(late) = vigil.late() {
        on_late(late, peer, &worker);
    }
}

/// Waits until the server drains.
async fn is_draining<S>(worker: &Worker<S>) {
    // A dropped sender stops the whole worker.
    let _ = worker.phase.clone().wait_for(|phase| *phase != ServerState::Running).await;
}

/// Reports the limit that ended the connection and with it the handler.
fn on_late<S>(late: Late, peer: SocketAddr, worker: &Worker<S>) {
    match late.limit() {
        Some(limit) => worker.shared.on_limit(limit, Some(peer)),
        None => tracing::debug!(%peer, "connection closed without a further request"),
    }
}

/// Whether a request has arrived.
#[derive(Debug, Default)]
struct FirstRequest {
    once: Cell<bool>,
    told: Notify,
}

impl FirstRequest {
    fn tell(&self) {
        if !self.once.replace(true) {
            self.told.notify_one();
        }
    }

    async fn once(&self) {
        if !self.once.get() {
            self.told.notified().await;
        }
    }
}

/// Adapts the tower service to hyper.
struct Adapter<S> {
    worker: Rc<Worker<S>>,
    info: Arc<ConnectionInfo>,
    asides: Arc<Http1Informational>,
    vigil: Arc<Vigil>,
    asked: Rc<FirstRequest>,
}

impl<S> Adapter<S> {
    /// Converts a request for the service; its body is subject to its time limit.
    fn take_in(
        &self,
        kind: RequestKind,
        request: Request<hyper::body::Incoming>,
    ) -> Request<Incoming> {
        let now = clock::now();
        let has_body = !request.body().is_end_stream();
        let intake = has_body.then(|| {
            let deadlines = &self.worker.shared.deadlines;
            let pace =
                slow_uploads::pace(deadlines, kind, request.version(), request.headers(), now);
            Arc::new(Intake::new(pace, now))
        });
        self.vigil.on_request(intake.clone());
        request.map(|body| match intake {
            Some(intake) => Incoming::taken_in(body, intake),
            None => Incoming::http1(body),
        })
    }
}

impl<S, B> hyper::service::Service<Request<hyper::body::Incoming>> for Adapter<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Response = Response<TrackedBody<B>>;
    type Error = BoxError;
    type Future = Oneshot<S>;

    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        self.asked.tell();
        self.worker.shared.counters.on_event(&ObserverEvent::StreamOpened { stream: None });
        let kind = heads::kind(request.method());
        let mut request = self.take_in(kind, request);
        request.extensions_mut().insert(Arc::clone(&self.info));
        if request.version() >= Version::HTTP_11 {
            self.asides.open();
            request.extensions_mut().insert(InformationalSender::http1(Arc::clone(&self.asides)));
        }
        // HTTP/1.0 has no chunked coding.
        let until_close = request.version() < Version::HTTP_11;
        let (asides, vigil) = (Arc::clone(&self.asides), Arc::clone(&self.vigil));
        let call = Call { asides, vigil, kind, until_close };
        Oneshot::Waiting { service: self.worker.service.clone(), request: Some(request), call }
    }
}

/// State of a request that waits for its response.
#[derive(Clone)]
struct Call {
    asides: Arc<Http1Informational>,
    vigil: Arc<Vigil>,
    kind: RequestKind,
    /// The response's body may be delimited by close.
    until_close: bool,
}

impl Call {
    fn answered<B: Body>(&self, mut response: Response<B>) -> Response<TrackedBody<B>> {
        let status = response.status();
        let is_tunnel = match self.kind {
            RequestKind::Connect => status.is_success(),
            RequestKind::Usual | RequestKind::Head => status == StatusCode::SWITCHING_PROTOCOLS,
        };
        let becomes = if is_tunnel { Becomes::Tunnel } else { Becomes::Http };
        self.asides.close(becomes);
        self.vigil.on_response(becomes);
        response.extensions_mut().remove::<MigrationHint>();
        let line = Some(&self.asides).filter(|_| self.until_close);
        response.map(|body| TrackedBody::new(body, line, &self.vigil))
    }
}

pin_project! {
    /// Waits until a service is ready, then calls it once.
    #[project = OneshotProjection]
    enum Oneshot<S> where S: Service<Request<Incoming>> {
        Waiting { service: S, request: Option<Request<Incoming>>, call: Call },
        Called { #[pin] future: S::Future, call: Call },
    }
}

impl<S, B> Future for Oneshot<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Output = Result<Response<TrackedBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let (future, call) = match self.as_mut().project() {
                OneshotProjection::Called { future, call } => {
                    let answered = ready!(future.poll(cx));
                    return Poll::Ready(
                        answered.map_err(Into::into).map(|response| call.answered(response)),
                    );
                }
                OneshotProjection::Waiting { service, request, call } => {
                    ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    (service.call(request), call.clone())
                }
            };
            self.set(Self::Called { future, call });
        }
    }
}
