//! The client's transfers and their outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Either, Empty, Full};
use smig::{Client, Error, Incoming, StreamInfo};

use crate::body::{HASH, Pieces};
use crate::census::LiveGuard;
use crate::content::{Checker, Part, hex};
use crate::dice::Rng;
use crate::plan::{Asking, Framing, Transfer};
use crate::service::{HandlerContext, query};

/// Mean size of a small object in bytes.
const SMALL: u64 = 10 << 10;
/// Interval between small requests.
const PERIOD: Duration = Duration::from_millis(10);
/// Maximum number of attempts of a small request.
const SMALL_ATTEMPTS: usize = 4;

/// How a transfer ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Complete,
    /// The client cancelled it, as planned.
    Cancelled,
    /// It failed and returned an error.
    Failed(Error),
    /// A violation.
    Wrong(String),
}

/// The state of a transfer for its watcher.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Increases with any progress.
    pub(crate) position: Arc<AtomicU64>,
    info: std::sync::Mutex<Option<StreamInfo>>,
}

impl Watched {
    fn put(&self, info: Option<StreamInfo>) {
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
                let now = info.connection().map(|conn| conn.to_string()).unwrap_or_default();
                format!("at byte {position}, on {now}, received {}", segments.join(", "))
            }
        }
    }
}

/// State that all transfers of a run share.
#[derive(Clone, Debug)]
pub(crate) struct TransferClient {
    pub(crate) client: Client,
    pub(crate) stage: Arc<HandlerContext>,
    pub(crate) base: String,
}

/// Why reading a response's body stopped early.
enum Cut {
    Failed(Error),
    Cancelled,
}

impl TransferClient {
    /// Makes a big download.
    pub(crate) async fn download(&self, transfer: &Transfer, watched: &Watched) -> Outcome {
        let (method, body) = match transfer.asking {
            Asking::Post => (Method::POST, Either::Left(Full::new(Bytes::from_static(b"please")))),
            Asking::Get | Asking::Hinted => (Method::GET, Either::Right(Empty::new())),
        };
        let url = format!("{}/down?{}", self.base, query(transfer));
        let request = Request::builder().method(method).uri(url).body(body);
        let request = match request {
            Ok(request) => request,
            Err(error) => return Outcome::Wrong(format!("the request is not valid: {error}")),
        };
        let response = match self.client.request(request).await {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => return Outcome::Wrong(format!("status {}", response.status())),
            Err(error) => return Outcome::Failed(error),
        };
        let mut checker = Checker::new(&self.stage.content, transfer.part);
        let read = receive(response, transfer, &mut checker, watched).await;
        let trailers = match read {
            Ok(trailers) => trailers,
            Err(cut) => {
                return match (checker.prefix(), cut) {
                    (Err(wrong), _) => Outcome::Wrong(wrong),
                    (Ok(()), Cut::Cancelled) => Outcome::Cancelled,
                    (Ok(()), Cut::Failed(error)) => Outcome::Failed(error),
                };
            }
        };
        if let Err(wrong) = checker.whole() {
            return Outcome::Wrong(wrong);
        }
        let hash = hex(&self.stage.content.hash(transfer.part));
        if transfer.framing == Framing::Trailers && trailers.is_none_or(|said| said != hash) {
            return Outcome::Wrong("ended without its trailers".into());
        }
        Outcome::Complete
    }

    /// Makes a big upload; the server responds with the hash of what it received.
    pub(crate) async fn upload(&self, transfer: &Transfer, watched: &Watched) -> Outcome {
        let body = Pieces {
            left: self.stage.content.bytes(transfer.part),
            framing: transfer.framing,
            hash: hex(&self.stage.content.hash(transfer.part)),
            dice: Rng::new(transfer.pieces),
            sent: Arc::clone(&watched.position),
            moves: Vec::new(),
            info: None,
            rested: false,
            trailers_sent: false,
            _alive: LiveGuard::new(&self.stage.handlers),
        };
        let url = format!("{}/up?{}", self.base, query(transfer));
        let request = match Request::post(url).body(body) {
            Ok(request) => request,
            Err(error) => return Outcome::Wrong(format!("the request is not valid: {error}")),
        };
        let exchange = async {
            let response = match self.client.request(request).await {
                Ok(response) if response.status().is_success() => response,
                Ok(response) => return Outcome::Wrong(format!("status {}", response.status())),
                Err(error) => return Outcome::Failed(error),
            };
            watched.put(response.body().stream_info());
            let said = match response.into_body().collect().await {
                Ok(said) => said.to_bytes(),
                Err(error) => return Outcome::Failed(error),
            };
            let hash = hex(&self.stage.content.hash(transfer.part));
            if said == hash.as_bytes() {
                Outcome::Complete
            } else {
                Outcome::Wrong(format!("the server's verdict is {said:?} instead of {hash}"))
            }
        };
        tokio::select! {
            outcome = exchange => outcome,
            () = follow(transfer, watched) => Outcome::Cancelled,
        }
    }

    /// Makes small downloads one after another until the big ones are over; returns their outcomes.
    pub(crate) async fn smalls(&self, over: &AtomicBool, mut dice: Rng) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut pace = tokio::time::interval(PERIOD);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !over.load(Ordering::Relaxed) {
            pace.tick().await;
            let transfer = Transfer {
                part: Part { place: dice.within(0..16), len: dice.within(1..SMALL * 2) },
                framing: dice.one_of(Framing::Announced, &[Framing::Open, Framing::Trailers]),
                asking: dice.one_of(Asking::Get, &[Asking::Post, Asking::Hinted]),
                early_head: false,
                server_moves: Vec::new(),
                client_moves: if dice.percent(10) { vec![0] } else { Vec::new() },
                cancel_at: dice.percent(5).then_some(0),
                pieces: dice.next(),
            };
            outcomes.push(self.small(&transfer).await);
        }
        outcomes
    }

    /// Makes a small download, repeated where that is safe.
    async fn small(&self, transfer: &Transfer) -> Outcome {
        for _ in 1..SMALL_ATTEMPTS {
            match self.download(transfer, &Watched::default()).await {
                Outcome::Failed(error) if error.is_retryable() => {}
                outcome => return outcome,
            }
        }
        self.download(transfer, &Watched::default()).await
    }
}

/// Reads a response to its end, migrates or cancels it as planned; returns the hash in its trailers, if any.
async fn receive(
    response: Response<Incoming>,
    transfer: &Transfer,
    checker: &mut Checker,
    watched: &Watched,
) -> Result<Option<String>, Cut> {
    let mut body = response.into_body();
    let info = body.stream_info();
    watched.put(info.clone());
    let mut moves = transfer.client_moves.iter().copied().peekable();
    let mut trailer = None;
    loop {
        while moves.next_if(|&at| at <= checker.taken()).is_some() {
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
        if transfer.cancel_at.is_some_and(|at| at <= checker.taken()) {
            return Err(Cut::Cancelled);
        }
        let Some(frame) = body.frame().await else { return Ok(trailer) };
        match frame.map_err(Cut::Failed)?.into_data() {
            Ok(data) => {
                checker.take(&data);
                watched.position.store(checker.taken(), Ordering::Relaxed);
            }
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                let said = trailers.as_ref().and_then(|trailers| trailers.get(HASH));
                trailer = said.and_then(|said| said.to_str().ok()).map(str::to_owned);
            }
        }
    }
}

/// Watches an upload, migrates it as planned, and returns when it is to be cancelled.
async fn follow(transfer: &Transfer, watched: &Watched) {
    let mut moves = transfer.client_moves.iter().copied().peekable();
    let mut look = tokio::time::interval(Duration::from_millis(2));
    loop {
        look.tick().await;
        let sent = watched.position.load(Ordering::Relaxed);
        if transfer.cancel_at.is_some_and(|at| at <= sent) {
            return;
        }
        while moves.next_if(|&at| at <= sent).is_some() {
            let info = watched.info.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            info.as_ref().map(StreamInfo::migrate).unwrap_or_default();
        }
    }
}
