//! The server's application: downloads, uploads, small objects. Uploads are checked on this side as well.

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

use crate::body::{DeferredBody, HASH_TRAILER, PoolBody};
use crate::census::LiveGuard;
use crate::content::{Checker, Content, Part, hex};
use crate::plan::Framing;
use crate::rng::Rng;

/// Counts of limits that were reached, by name.
#[derive(Debug, Default)]
pub(crate) struct LimitHits(Mutex<BTreeMap<&'static str, u64>>);

impl LimitHits {
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for LimitHits {
    fn on_event(&self, event: &ObserverEvent) {
        if let ObserverEvent::LimitHit(limit) = event {
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
    pub(crate) limit_hits: Arc<LimitHits>,
    pub(crate) live_services: Arc<AtomicU64>,
    pub(crate) live_handlers: Arc<AtomicU64>,
    /// Uploads that the server read completely and correctly.
    pub(crate) uploads_complete: AtomicU64,
}

impl HandlerContext {
    pub(crate) fn new(max_transfer_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            content: Content::new(max_transfer_bytes),
            violations: Violations::default(),
            limit_hits: Arc::default(),
            live_services: Arc::default(),
            live_handlers: Arc::default(),
            uploads_complete: AtomicU64::new(0),
        })
    }

    /// Records a violation.
    pub(crate) fn report_violation(&self, violation: String) {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(violation);
    }
}

type Body = UnsyncBoxBody<Bytes, BoxError>;
type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>>>>;

/// The application; each copy is counted.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    handler_context: Arc<HandlerContext>,
    _live_guard: LiveGuard,
}

impl Application {
    pub(crate) fn new(handler_context: &Arc<HandlerContext>) -> Self {
        Self {
            handler_context: Arc::clone(handler_context),
            _live_guard: LiveGuard::new(&handler_context.live_services),
        }
    }
}

impl Service<Request<Incoming>> for Application {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> ResponseFuture {
        let handler_context = Arc::clone(&self.handler_context);
        let live_guard = LiveGuard::new(&handler_context.live_handlers);
        Box::pin(async move { handle(handler_context, live_guard, request).await })
    }
}

async fn handle(
    handler_context: Arc<HandlerContext>,
    live_guard: LiveGuard,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let params = RequestParams::from_request(&request)?;
    match request.uri().path() {
        "/down" => download(&handler_context, live_guard, params, request).await,
        "/up" => upload(handler_context, live_guard, params, request).await,
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
    migrate_at: Vec<u64>,
    chunk_seed: u64,
    hint: MigrationHint,
    responds_early: bool,
}

impl RequestParams {
    /// Parses the query, which the client writes with [`query`].
    fn from_request(request: &Request<Incoming>) -> Result<Self, BoxError> {
        let mut params = Self {
            part: Part { offset_index: 0, len: 0 },
            framing: Framing::ContentLength,
            migrate_at: Vec::new(),
            chunk_seed: 0,
            hint: MigrationHint::default(),
            responds_early: false,
        };
        for field in request.uri().query().unwrap_or_default().split('&') {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            match name {
                "offset_index" => params.part.offset_index = value.parse()?,
                "len" => params.part.len = value.parse()?,
                "chunk_seed" => params.chunk_seed = value.parse()?,
                "end_stream" => params.framing = Framing::EndStream,
                "trailers" => params.framing = Framing::Trailers,
                "hint" => params.hint = MigrationHint::Migrate,
                "early" => params.responds_early = true,
                "migrate_at" => {
                    let offsets = value.split(',').filter(|at| !at.is_empty());
                    params.migrate_at = offsets.map(str::parse).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("unknown field {name:?} in the query").into()),
            }
        }
        Ok(params)
    }
}

/// Returns the query for [`RequestParams`].
pub(crate) fn query(transfer: &crate::plan::Transfer) -> String {
    let migrate_at: Vec<_> = transfer.server_migrate_at.iter().map(u64::to_string).collect();
    let mut query = format!(
        "offset_index={}&len={}&chunk_seed={}&migrate_at={}",
        transfer.part.offset_index,
        transfer.part.len,
        transfer.chunk_seed,
        migrate_at.join(",")
    );
    match transfer.framing {
        Framing::ContentLength => {}
        Framing::EndStream => query.push_str("&end_stream"),
        Framing::Trailers => query.push_str("&trailers"),
    }
    if transfer.request_kind == crate::plan::DownloadRequestKind::HintedGet {
        query.push_str("&hint");
    }
    if transfer.responds_early {
        query.push_str("&early");
    }
    query
}

/// Sends a part of the pool. The stream's handle is that of the request's body, which is read
/// first.
async fn download(
    handler_context: &HandlerContext,
    live_guard: LiveGuard,
    params: RequestParams,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let info = request.body().stream_info();
    request.into_body().collect().await?;
    let body = PoolBody {
        remaining: handler_context.content.bytes(params.part),
        framing: params.framing,
        hash: hex(&handler_context.content.hash(params.part)),
        rng: Rng::new(params.chunk_seed),
        sent_bytes: Arc::default(),
        migrate_at: params.migrate_at,
        info,
        was_pending: false,
        trailers_sent: false,
        _live_guard: live_guard,
    };
    let mut response = Response::new(body.boxed_unsync());
    response.extensions_mut().insert(params.hint);
    Ok(response)
}

/// Receives and checks a part of the pool, and responds with its hash.
async fn upload(
    handler_context: Arc<HandlerContext>,
    live_guard: LiveGuard,
    params: RequestParams,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let responds_early = params.responds_early;
    let receive_upload = async move {
        let _live_guard = live_guard;
        let result = read_upload(&handler_context, &params, request.into_body()).await;
        handler_context.uploads_complete.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        result
    };
    let body = if responds_early {
        DeferredBody::new(receive_upload).boxed_unsync()
    } else {
        Full::new(receive_upload.await?).map_err(|never| match never {}).boxed_unsync()
    };
    Ok(Response::new(body))
}

/// Reads an upload to its end and checks it; returns the hash of the part that was planned.
async fn read_upload(
    handler_context: &HandlerContext,
    params: &RequestParams,
    mut body: Incoming,
) -> Result<Bytes, BoxError> {
    let info = body.stream_info();
    let mut migrate_at = params.migrate_at.iter().copied().peekable();
    let mut checker = Checker::new(&handler_context.content, params.part);
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                if let Err(wrong) = checker.check_prefix() {
                    handler_context
                        .report_violation(format!("upload at the server: {wrong}; then {error}"));
                }
                return Err(error.into());
            }
        };
        match frame.into_data() {
            Ok(data) => checker.update(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        while migrate_at.next_if(|&at| at <= checker.received_bytes()).is_some() {
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
    }
    let hash = hex(&handler_context.content.hash(params.part));
    let sent_hash = trailers.as_ref().and_then(|trailers| trailers.get(HASH_TRAILER));
    if params.framing == Framing::Trailers && sent_hash.is_none_or(|sent| sent != hash.as_str()) {
        let wrong = "upload at the server: its trailers are missing or carry another hash";
        handler_context.report_violation(wrong.to_owned());
        return Err(wrong.into());
    }
    if let Err(wrong) = checker.check_complete() {
        handler_context.report_violation(format!("upload at the server: {wrong}"));
        return Err(wrong.into());
    }
    Ok(hash.into())
}
