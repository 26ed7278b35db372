//! `smig lab server`: `smig serve` for scenarios. Also answers as the servers of a recorded page did, accepts uploads by POST, and logs session events on
//! standard output with the clock of all measurements.
//!
//! Apart from that and from the default of one worker, it must do what `smig serve` does with this configuration file and no
//! access log: what is measured is to cost and to send the same.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full};
use rustix::time::{ClockId, clock_gettime};
use smig::{
    CleartextTrust, Incoming, Mover, Observer, ObserverEvent, RequestExtensions, Server, ServerTls,
};
use smig_files::{FileBody, Files};
use smig_lab::replay::{Replay, ReplayRequest, ReplayResponse, RequestKey};
use tower_service::Service;

use crate::exit::{CliError, Exit};
use crate::settings::{self, ListenAddresses, ListenSecurity, Settings};

/// Serve a scenario's files (started by `smig lab run`)
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Configuration file of `smig serve`; it must set root and listen
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Directory of a recorded page: requests for its hosts are answered as recorded; may be repeated
    #[arg(long, value_name = "DIR")]
    replay: Vec<PathBuf>,
}

pub(super) fn run(args: &ServerArgs) -> Result<ExitCode> {
    crate::logging::start(crate::logging::Level::Warnings);
    let mut settings = Settings::default();
    settings::load(&args.config, &mut settings).map_err(usage_error)?;
    let root = settings.root.clone().ok_or_else(|| usage_error("server.root is missing"))?;
    let files = Files::new(&root, settings.files.clone())?
        .with_clock(smig::turn_time)
        .with_shared_headers();
    let replay = Replay::read(&args.replay).context("cannot read the recorded page")?;
    let server = start(&settings, LabService { files, replay: Arc::new(replay) })?;
    // Runs until a signal kills the process: there is nothing to finish.
    loop {
        std::thread::park();
        let _ = &server;
    }
}

fn start(settings: &Settings, service: LabService) -> Result<Server> {
    let ListenAddresses::At(addresses) = &settings.listen else {
        return Err(usage_error("server.listen is missing"));
    };
    let mut builder = settings
        .builder()
        .observer(Arc::new(JsonEvents))
        .workers(settings.workers.and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN));
    for &address in addresses {
        builder = match settings.security {
            ListenSecurity::Tls => {
                let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
                    return Err(usage_error("server.cert or server.key is missing"));
                };
                builder.listen(address, ServerTls::from_files(certificate, key)?)
            }
            ListenSecurity::Cleartext => builder.listen_cleartext(address, CleartextTrust::None),
            ListenSecurity::TrustedCleartext => {
                builder.listen_cleartext(address, CleartextTrust::TrustedNetwork)
            }
        };
    }
    builder
        .shared_headers(|body: &LabBody| match body {
            Either::Left(file) => file.shared_headers(),
            Either::Right(_) => None,
        })
        .request_extensions(RequestExtensions::Protocol)
        .start(service)
        .context("cannot start the scenario's server")
}

fn usage_error(message: impl Into<String>) -> anyhow::Error {
    CliError::new(Exit::Usage, message).into()
}

/// File service that also answers for the hosts of recorded pages, and accepts the body of any other POST request.
#[derive(Clone, Debug)]
struct LabService {
    files: Files,
    replay: Arc<Replay>,
}

type LabBody = Either<FileBody, Full<Bytes>>;
type LabResponse = Response<LabBody>;

impl Service<Request<Incoming>> for LabService {
    type Response = LabResponse;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<LabResponse, Infallible>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.files, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if let Some(response) = self.replayed(&request) {
            return Box::pin(async move {
                // The body of a request counts for nothing, but its sender waits until it is read.
                let drained = drain_upload(request.into_body()).await;
                if !drained.status().is_success() {
                    return Ok(drained);
                }
                if !response.think.is_zero() {
                    tokio::time::sleep(response.think).await;
                }
                Ok(to_http(response))
            });
        }
        if request.method() == Method::POST {
            return Box::pin(async move { Ok(drain_upload(request.into_body()).await) });
        }
        let response = self.files.call(request);
        Box::pin(async move { Ok(response.await?.map(Either::Left)) })
    }
}

impl LabService {
    /// Returns the answer to a request for a host of a recorded page.
    fn replayed(&self, request: &Request<Incoming>) -> Option<ReplayResponse> {
        let field = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let authority = request.uri().authority().map(http::uri::Authority::as_str);
        let host = authority.or_else(|| field(header::HOST))?;
        let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        self.replay.has_host(host).then(|| {
            self.replay.respond(&ReplayRequest {
                key: RequestKey {
                    method: request.method().as_str(),
                    host,
                    target,
                    range: field(header::RANGE),
                },
                origin: field(header::ORIGIN),
                requested_headers: field(header::ACCESS_CONTROL_REQUEST_HEADERS),
                // Fetch Metadata: a frame's document has another value.
                is_navigation: request
                    .headers()
                    .get("sec-fetch-dest")
                    .is_some_and(|destination| destination == "document"),
            })
        })
    }
}

/// Returns a recorded response as HTTP.
fn to_http(recorded: ReplayResponse) -> LabResponse {
    let length = recorded.body.len();
    let mut response = Response::new(Either::Right(Full::new(recorded.body)));
    *response.status_mut() =
        StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    for (name, value) in recorded.fields {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value))
        {
            headers.append(name, value);
        }
    }
    if length > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// Reads a complete upload, then responds.
async fn drain_upload(mut body: Incoming) -> LabResponse {
    let mut response = Response::new(Either::Right(Full::default()));
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            break;
        }
    }
    response
}

/// Observer that writes events of connections, sessions, migrations, resets and limits, each as a JSON object on one line; no
/// others.
#[derive(Debug)]
struct JsonEvents;

impl Observer for JsonEvents {
    fn on_event(&self, event: &ObserverEvent) {
        let json = |event: &str| serde_json::json!({"event": event});
        let (mut line, addrs) = match event {
            ObserverEvent::ConnectionOpened { addrs } => (json("opened"), *addrs),
            ObserverEvent::ConnectionClosed { addrs } => (json("closed"), *addrs),
            ObserverEvent::SessionEstablished => (json("session"), None),
            ObserverEvent::Joined { addrs, .. } => (json("joined"), *addrs),
            ObserverEvent::JoinRefused { addrs } => (json("join-refused"), *addrs),
            ObserverEvent::StreamReset { addrs, .. } => (json("reset"), *addrs),
            ObserverEvent::Migrated { from, to, mover, addrs, why, .. } => {
                let by = if *mover == Mover::Local { "server" } else { "client" };
                let (from, to) = (from.to_string(), to.to_string());
                let why = why.to_string();
                let line = serde_json::json!({"event": "moved", "from": from, "to": to, "by": by, "why": why});
                (line, *addrs)
            }
            ObserverEvent::MigrationDeclined { addrs, .. } => (json("declined"), *addrs),
            ObserverEvent::LimitHit(limit) => {
                (serde_json::json!({"event": "limit", "limit": limit}), None)
            }
            _ => return,
        };
        if let Some(addrs) = addrs {
            line["peer"] = addrs.peer.to_string().into();
        }
        // A write error means that the reader has closed the pipe: the server is being stopped.
        let _ = writeln!(io::stdout().lock(), "{}", with_timestamp(line));
    }
}

/// Adds the time: nanoseconds of `CLOCK_MONOTONIC`.
fn with_timestamp(mut line: serde_json::Value) -> serde_json::Value {
    let time = clock_gettime(ClockId::Monotonic);
    line["at_ns"] = (time.tv_sec * 1_000_000_000 + time.tv_nsec).into();
    line
}
