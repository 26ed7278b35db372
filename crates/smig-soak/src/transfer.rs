//! The client's transfers and their outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Empty, Full};
use smig::{Client, Error, Incoming, StreamInfo};

use crate::body::{HASH_TRAILER, PoolBody};
use crate::census::LiveGuard;
use crate::content::{Checker, OFFSET_COUNT, Part, hex};
use crate::plan::{DownloadRequestKind, Framing, Transfer};
use crate::rng::Rng;
use crate::service::{HandlerContext, query};

/// Mean size of a small object in bytes.
const MEAN_SMALL_OBJECT_BYTES: u64 = 10 << 10;
/// Interval between small requests.
const SMALL_REQUEST_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of attempts of a small request.
const MAX_SMALL_REQUEST_ATTEMPTS: usize = 4;

/// How a transfer ended.
#[derive(Debug)]
pub(crate) enum TransferOutcome {
    Complete,
    /// The client cancelled it, as planned.
    Cancelled,
    /// It failed and returned an error.
    Failed(Error),
    /// Wrong content, an invalid response or a missing error: a bug of smig.
    Violation(String),
}

/// The progress of a transfer, for the detection of hangs.
#[derive(Debug, Default)]
pub(crate) struct TransferProgress {
    /// Bytes received of a download. Of an upload, bytes that the library has taken: the last of them may still be sent
    /// while this does not increase.
    pub(crate) position: Arc<AtomicU64>,
    info: std::sync::Mutex<Option<StreamInfo>>,
}

impl TransferProgress {
    fn set_info(&self, info: Option<StreamInfo>) {
        *self.info.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = info;
    }

    /// Returns the position of the transfer as text.
    pub(crate) fn describe(&self) -> String {
        let position = self.position.load(Ordering::Relaxed);
        let info = self.info.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*info {
            None => format!("at byte {position}, no response yet"),
            Some(info) => {
                let segments = info.segments();
                let segments: Vec<_> = segments
                    .iter()
                    .map(|segment| {
                        format!("{}..{} by {}", segment.start, segment.end, segment.connection)
                    })
                    .collect();
                let connection = info.connection().map(|conn| conn.to_string()).unwrap_or_default();
                format!("at byte {position}, on {connection}, received {}", segments.join(", "))
            }
        }
    }
}

/// State that all transfers of a run share.
#[derive(Clone, Debug)]
pub(crate) struct TransferClient {
    pub(crate) client: Client,
    pub(crate) handler_context: Arc<HandlerContext>,
    pub(crate) base_url: String,
}

/// Why reading a response's body stopped early.
enum EarlyEnd {
    Failed(Error),
    Cancelled,
}

impl TransferClient {
    /// Makes a download.
    pub(crate) async fn download(
        &self,
        transfer: &Transfer,
        progress: &TransferProgress,
    ) -> TransferOutcome {
        let (method, body) = match transfer.request_kind {
            DownloadRequestKind::Post => {
                (Method::POST, Either::Left(Full::new(Bytes::from_static(b"body"))))
            }
            DownloadRequestKind::Get | DownloadRequestKind::HintedGet => {
                (Method::GET, Either::Right(Empty::new()))
            }
        };
        let url = format!("{}/down?{}", self.base_url, query(transfer));
        let request = Request::builder().method(method).uri(url).body(body);
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                return TransferOutcome::Violation(format!("the request is not valid: {error}"));
            }
        };
        let response = match self.client.request(request).await {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => {
                return TransferOutcome::Violation(format!("status {}", response.status()));
            }
            Err(error) => return TransferOutcome::Failed(error),
        };
        let mut checker = Checker::new(&self.handler_context.content, transfer.part);
        let read = receive(response, transfer, &mut checker, progress).await;
        let sent_hash = match read {
            Ok(sent_hash) => sent_hash,
            Err(end) => {
                return match (checker.check_prefix(), end) {
                    (Err(wrong), _) => TransferOutcome::Violation(wrong),
                    (Ok(()), EarlyEnd::Cancelled) => TransferOutcome::Cancelled,
                    (Ok(()), EarlyEnd::Failed(error)) => TransferOutcome::Failed(error),
                };
            }
        };
        if let Err(wrong) = checker.check_complete() {
            return TransferOutcome::Violation(wrong);
        }
        let hash = hex(&self.handler_context.content.hash(transfer.part));
        if transfer.framing == Framing::Trailers && sent_hash.is_none_or(|sent| sent != hash) {
            return TransferOutcome::Violation(
                "its trailers are missing or carry another hash".into(),
            );
        }
        TransferOutcome::Complete
    }

    /// Makes a large upload; the server checks it and responds with its hash.
    pub(crate) async fn upload(
        &self,
        transfer: &Transfer,
        progress: &TransferProgress,
    ) -> TransferOutcome {
        let body = PoolBody {
            remaining: self.handler_context.content.bytes(transfer.part),
            framing: transfer.framing,
            hash: hex(&self.handler_context.content.hash(transfer.part)),
            rng: Rng::new(transfer.chunk_seed),
            sent_bytes: Arc::clone(&progress.position),
            migrate_at: Vec::new(),
            info: None,
            was_pending: false,
            trailers_sent: false,
            _live_guard: LiveGuard::new(&self.handler_context.live_handlers),
        };
        let url = format!("{}/up?{}", self.base_url, query(transfer));
        let request = match Request::post(url).body(body) {
            Ok(request) => request,
            Err(error) => {
                return TransferOutcome::Violation(format!("the request is not valid: {error}"));
            }
        };
        let exchange = async {
            let response = match self.client.request(request).await {
                Ok(response) if response.status().is_success() => response,
                Ok(response) => {
                    return TransferOutcome::Violation(format!("status {}", response.status()));
                }
                Err(error) => return TransferOutcome::Failed(error),
            };
            progress.set_info(response.body().stream_info());
            let received_hash = match response.into_body().collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(error) => return TransferOutcome::Failed(error),
            };
            let hash = hex(&self.handler_context.content.hash(transfer.part));
            if received_hash == hash.as_bytes() {
                TransferOutcome::Complete
            } else {
                TransferOutcome::Violation(format!(
                    "the response is {received_hash:?} instead of the upload's hash {hash}"
                ))
            }
        };
        tokio::select! {
            outcome = exchange => outcome,
            () = drive_upload(transfer, progress) => TransferOutcome::Cancelled,
        }
    }

    /// Makes small downloads one after another until a large one ends; returns their outcomes.
    pub(crate) async fn run_small_downloads(
        &self,
        large_done: &AtomicBool,
        mut rng: Rng,
    ) -> Vec<TransferOutcome> {
        let mut outcomes = Vec::new();
        let mut interval = tokio::time::interval(SMALL_REQUEST_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !large_done.load(Ordering::Relaxed) {
            interval.tick().await;
            let transfer = Transfer {
                part: Part {
                    offset_index: rng.within(0..OFFSET_COUNT),
                    len: rng.within(1..MEAN_SMALL_OBJECT_BYTES * 2),
                },
                framing: rng
                    .one_of(Framing::ContentLength, &[Framing::EndStream, Framing::Trailers]),
                request_kind: rng.one_of(
                    DownloadRequestKind::Get,
                    &[DownloadRequestKind::Post, DownloadRequestKind::HintedGet],
                ),
                responds_early: false,
                server_migrate_at: Vec::new(),
                client_migrate_at: if rng.chance(10) { vec![0] } else { Vec::new() },
                cancel_at: rng.chance(5).then_some(0),
                chunk_seed: rng.next(),
            };
            outcomes.push(self.small_download(&transfer).await);
        }
        outcomes
    }

    /// Makes a small download, repeated where that is safe.
    async fn small_download(&self, transfer: &Transfer) -> TransferOutcome {
        for _ in 1..MAX_SMALL_REQUEST_ATTEMPTS {
            match self.download(transfer, &TransferProgress::default()).await {
                TransferOutcome::Failed(error) if error.is_retryable() => {}
                outcome => return outcome,
            }
        }
        self.download(transfer, &TransferProgress::default()).await
    }
}

/// Reads a response to its end, migrates or cancels it as planned; returns the hash in its
/// trailers, if any.
async fn receive(
    response: Response<Incoming>,
    transfer: &Transfer,
    checker: &mut Checker,
    progress: &TransferProgress,
) -> Result<Option<String>, EarlyEnd> {
    let mut body = response.into_body();
    let info = body.stream_info();
    progress.set_info(info.clone());
    let mut migrate_at = transfer.client_migrate_at.iter().copied().peekable();
    let mut sent_hash = None;
    loop {
        while migrate_at.next_if(|&at| at <= checker.received_bytes()).is_some() {
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
        if transfer.cancel_at.is_some_and(|at| at <= checker.received_bytes()) {
            return Err(EarlyEnd::Cancelled);
        }
        let Some(frame) = body.frame().await else { return Ok(sent_hash) };
        match frame.map_err(EarlyEnd::Failed)?.into_data() {
            Ok(data) => {
                checker.update(&data);
                progress.position.store(checker.received_bytes(), Ordering::Relaxed);
            }
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                let value = trailers.as_ref().and_then(|trailers| trailers.get(HASH_TRAILER));
                sent_hash = value.and_then(|text| text.to_str().ok()).map(str::to_owned);
            }
        }
    }
}

/// Migrates an upload at the planned offsets, and returns when it is to be cancelled. Offsets reached before the response
/// begins have no effect: the stream is unknown until then.
async fn drive_upload(transfer: &Transfer, progress: &TransferProgress) {
    let mut migrate_at = transfer.client_migrate_at.iter().copied().peekable();
    let mut interval = tokio::time::interval(Duration::from_millis(2));
    loop {
        interval.tick().await;
        let sent = progress.position.load(Ordering::Relaxed);
        if transfer.cancel_at.is_some_and(|at| at <= sent) {
            return;
        }
        while migrate_at.next_if(|&at| at <= sent).is_some() {
            let info = progress.info.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
    }
}
