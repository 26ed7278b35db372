//! The server's application: downloads, uploads, small objects, each checked on this side as well.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use smig::{BoxError, Incoming, MigrationHint, Observer, ObserverEvent, StreamInfo};
use tower::Service;

use crate::body::{DeferredBody, HASH, Pieces};
use crate::census::LiveGuard;
use crate::content::{Checker, Content, Part, hex};
use crate::dice::Rng;
use crate::plan::Framing;

/// Counts of limits that were reached, by name.
#[derive(Debug, Default)]
pub(crate) struct LimitHits(Mutex<BTreeMap<&'static str, u64>>);

impl LimitHits {
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for LimitHits {
    fn on_event(&self, what: &ObserverEvent) {
        if let ObserverEvent::LimitHit(limit) = what {
            let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(limit).or_default() += 1;
        }
    }
}

/// Observed violations of the library's guarantees.
pub(crate) type Violations = Arc<Mutex<Vec<String>>>;

/// State shared by all handlers.
#[derive(Debug)]
pub(crate) struct HandlerContext {
    pub(crate) content: Content,
    pub(crate) violations: Violations,
    pub(crate) fired: Arc<LimitHits>,
    pub(crate) services: Arc<AtomicU64>,
    pub(crate) handlers: Arc<AtomicU64>,
    /// Uploads that the server read completely and correctly.
    pub(crate) uploads_whole: AtomicU64,
}

impl HandlerContext {
    pub(crate) fn new(longest: u64) -> Arc<Self> {
        Arc::new(Self {
            content: Content::new(longest),
            violations: Violations::default(),
            fired: Arc::default(),
            services: Arc::default(),
            handlers: Arc::default(),
            uploads_whole: AtomicU64::new(0),
        })
    }

    /// Records a violation.
    pub(crate) fn report_violation(&self, what: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

type Body = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>>>>;

/// The application; each copy is counted.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    stage: Arc<HandlerContext>,
    _alive: LiveGuard,
}

impl Application {
    pub(crate) fn new(stage: &Arc<HandlerContext>) -> Self {
        Self { stage: Arc::clone(stage), _alive: LiveGuard::new(&stage.services) }
    }
}

impl Service<Request<Incoming>> for Application {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer {
        let stage = Arc::clone(&self.stage);
        let alive = LiveGuard::new(&stage.handlers);
        Box::pin(async move { answer(stage, alive, request).await })
    }
}

async fn answer(
    stage: Arc<HandlerContext>,
    alive: LiveGuard,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let asked = RequestParams::of(&request)?;
    match request.uri().path() {
        "/down" => down(&stage, alive, asked, request).await,
        "/up" => up(stage, alive, asked, request).await,
        _ => {
            let mut response =
                Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok(response)
        }
    }
}

/// The parameters of a request.
#[derive(Debug)]
struct RequestParams {
    part: Part,
    framing: Framing,
    moves: Vec<u64>,
    pieces: u64,
    hint: MigrationHint,
    early_head: bool,
}

impl RequestParams {
    /// Parses the query, which the client writes with [`query`].
    fn of(request: &Request<Incoming>) -> Result<Self, BoxError> {
        let mut asked = Self {
            part: Part { place: 0, len: 0 },
            framing: Framing::Announced,
            moves: Vec::new(),
            pieces: 0,
            hint: MigrationHint::default(),
            early_head: false,
        };
        for field in request.uri().query().unwrap_or_default().split('&') {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            match name {
                "place" => asked.part.place = value.parse()?,
                "len" => asked.part.len = value.parse()?,
                "pieces" => asked.pieces = value.parse()?,
                "open" => asked.framing = Framing::Open,
                "trailers" => asked.framing = Framing::Trailers,
                "hint" => asked.hint = MigrationHint::Migrate,
                "early" => asked.early_head = true,
                "moves" => {
                    let offsets = value.split(',').filter(|at| !at.is_empty());
                    asked.moves = offsets.map(str::parse).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("unknown field {name:?} in the query").into()),
            }
        }
        Ok(asked)
    }
}

/// Returns the query for [`RequestParams`].
pub(crate) fn query(transfer: &crate::plan::Transfer) -> String {
    let moves: Vec<_> = transfer.server_moves.iter().map(u64::to_string).collect();
    let mut query = format!(
        "place={}&len={}&pieces={}&moves={}",
        transfer.part.place,
        transfer.part.len,
        transfer.pieces,
        moves.join(",")
    );
    match transfer.framing {
        Framing::Announced => {}
        Framing::Open => query.push_str("&open"),
        Framing::Trailers => query.push_str("&trailers"),
    }
    if transfer.asking == crate::plan::Asking::Hinted {
        query.push_str("&hint");
    }
    if transfer.early_head {
        query.push_str("&early");
    }
    query
}

/// Sends a part of the pool. The request's body is read first, so that the stream has a handle.
async fn down(
    stage: &HandlerContext,
    alive: LiveGuard,
    asked: RequestParams,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let info = request.body().stream_info();
    request.into_body().collect().await?;
    let body = Pieces {
        left: stage.content.bytes(asked.part),
        framing: asked.framing,
        hash: hex(&stage.content.hash(asked.part)),
        dice: Rng::new(asked.pieces),
        sent: Arc::default(),
        moves: asked.moves,
        info,
        rested: false,
        trailers_sent: false,
        _alive: alive,
    };
    let mut response = Response::new(body.boxed_unsync());
    response.extensions_mut().insert(asked.hint);
    Ok(response)
}

/// Receives a part of the pool and responds with the verdict.
async fn up(
    stage: Arc<HandlerContext>,
    alive: LiveGuard,
    asked: RequestParams,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let early_head = asked.early_head;
    let verdict = async move {
        let _alive = alive;
        let read = read(&stage, &asked, request.into_body()).await;
        stage.uploads_whole.fetch_add(u64::from(read.is_ok()), Ordering::Relaxed);
        read
    };
    let body = if early_head {
        DeferredBody::new(verdict).boxed_unsync()
    } else {
        Full::new(verdict.await?).map_err(|never| match never {}).boxed_unsync()
    };
    Ok(Response::new(body))
}

/// Reads an upload to its end and returns its hash.
async fn read(
    stage: &HandlerContext,
    asked: &RequestParams,
    mut body: Incoming,
) -> Result<Bytes, BoxError> {
    let info = body.stream_info();
    let mut moves = asked.moves.iter().copied().peekable();
    let mut checker = Checker::new(&stage.content, asked.part);
    let mut trailer = None;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                if let Err(wrong) = checker.prefix() {
                    stage.report_violation(format!("upload at the server: {wrong}; then {error}"));
                }
                return Err(error.into());
            }
        };
        match frame.into_data() {
            Ok(data) => checker.take(&data),
            Err(frame) => trailer = frame.into_trailers().ok(),
        }
        while moves.next_if(|&at| at <= checker.taken()).is_some() {
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
    }
    let hash = hex(&stage.content.hash(asked.part));
    let said = trailer.as_ref().and_then(|trailers| trailers.get(HASH));
    if asked.framing == Framing::Trailers && said.is_none_or(|said| said != hash.as_str()) {
        stage.report_violation("upload at the server: ended without its trailers".to_owned());
    }
    if let Err(wrong) = checker.whole() {
        stage.report_violation(format!("upload at the server: {wrong}"));
        return Err(wrong.into());
    }
    Ok(hash.into())
}
