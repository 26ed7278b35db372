//! Peers that speak HTTP/1.1: the same service, by hyper.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use smig_proto::policy::Hint;
use tokio::sync::Notify;
use tower_service::Service;

use super::interim::Interim;
use super::line::{Asides, Line};
use super::watched::WatchedBody;
use super::worker::{Active, Phase, Worker};
use crate::connection::ConnectionInfo;
use crate::driver::FAREWELL;
use crate::error::BoxError;
use crate::observe::Observed;
use crate::stream::Incoming;
use crate::transport::Transport;

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
    let asides = Arc::<Asides>::default();
    let line = Line::new(transport, Arc::clone(&asides), Active::new(&worker));
    let asked = Rc::new(Asked::default());
    let service = Adapter { worker: Rc::clone(&worker), info, asides, asked: Rc::clone(&asked) };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(Timer)
        .header_read_timeout(worker.shared.engine.limits.headers_timeout)
        .serve_connection(line, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let mut phase = worker.phase.clone();
    let draining = async move {
        // A sender that is gone stops the whole worker.
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
        // hyper closes a connection at once that waits for a request, and the first one is on its way.
        let _ = tokio::time::timeout(FAREWELL, asked.once()).await;
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP/1.1 connection ended");
    }
}

/// Whether a request has come.
#[derive(Debug, Default)]
struct Asked {
    once: Cell<bool>,
    told: Notify,
}

impl Asked {
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

/// The tower service as hyper's.
struct Adapter<S> {
    worker: Rc<Worker<S>>,
    info: Arc<ConnectionInfo>,
    asides: Arc<Asides>,
    asked: Rc<Asked>,
}

impl<S, B> hyper::service::Service<Request<hyper::body::Incoming>> for Adapter<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body,
{
    type Response = Response<WatchedBody<B>>;
    type Error = BoxError;
    type Future = Oneshot<S>;

    fn call(&self, request: Request<hyper::body::Incoming>) -> Self::Future {
        self.asked.tell();
        self.worker.shared.counters.on(&Observed::StreamOpened { stream: None });
        let mut request = request.map(Incoming::http1);
        request.extensions_mut().insert(Arc::clone(&self.info));
        if request.version() >= Version::HTTP_11 {
            self.asides.open();
            request.extensions_mut().insert(Interim::http1(Arc::clone(&self.asides)));
        }
        // HTTP/1.0 knows no chunks.
        let until_close = request.version() < Version::HTTP_11;
        let call = Call { asides: Arc::clone(&self.asides), until_close };
        Oneshot::Waiting { service: self.worker.service.clone(), request: Some(request), call }
    }
}

/// A request whose response is awaited.
#[derive(Clone)]
struct Call {
    asides: Arc<Asides>,
    /// The response's body may go on until the connection's end.
    until_close: bool,
}

impl Call {
    fn answered<B: Body>(&self, mut response: Response<B>) -> Response<WatchedBody<B>> {
        self.asides.close();
        response.extensions_mut().remove::<Hint>();
        let line = Some(&self.asides).filter(|_| self.until_close);
        response.map(|body| WatchedBody::new(body, line))
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
    type Output = Result<Response<WatchedBody<B>>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let (future, call) = match self.as_mut().project() {
                OneshotProjection::Called { future, call } => {
                    let answered = std::task::ready!(future.poll(cx));
                    return Poll::Ready(
                        answered.map_err(Into::into).map(|response| call.answered(response)),
                    );
                }
                OneshotProjection::Waiting { service, request, call } => {
                    std::task::ready!(service.poll_ready(cx)).map_err(Into::into)?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    (service.call(request), call.clone())
                }
            };
            self.set(Self::Called { future, call });
        }
    }
}

/// tokio's clock for hyper.
#[derive(Clone, Copy, Debug)]
struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: std::time::Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}

struct Sleep(Pin<Box<tokio::time::Sleep>>);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for Sleep {}
