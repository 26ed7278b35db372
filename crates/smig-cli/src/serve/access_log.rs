//! One line on standard output for each response, when its body has ended.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use smig::{ConnectionInfo, Incoming};
use smig_files::{FileBody, Files};
use tower_service::Service;

use crate::settings::AccessLog;

/// The files, with a log.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    files: Files,
    format: AccessLog,
}

impl Logged {
    pub(super) const fn new(files: Files, format: AccessLog) -> Self {
        Self { files, format }
    }
}

impl Service<Request<Incoming>> for Logged {
    type Response = Response<LoggedBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Incoming>>::poll_ready(&mut self.files, cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let mut entry = Entry::new(&request, self.format);
        let answer = self.files.call(request);
        Box::pin(async move {
            let response = answer.await?;
            entry.status = response.status();
            if entry.method == Method::HEAD || response.body().is_end_stream() {
                entry.outcome = Outcome::Whole;
            }
            Ok(response.map(|body| LoggedBody { body, entry }))
        })
    }
}

/// What is written of a request.
#[derive(Debug)]
struct Entry {
    format: AccessLog,
    peer: Option<SocketAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    status: StatusCode,
    sent: u64,
    outcome: Outcome,
    began: Instant,
}

/// How the response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Dropped before its end: the client went away or cancelled.
    Cut,
    Whole,
    /// The file failed: shrank, vanished, could not be read.
    Failed,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Whole => "whole",
            Self::Failed => "failed",
        }
    }
}

impl Entry {
    fn new(request: &Request<Incoming>, format: AccessLog) -> Self {
        let info = request.extensions().get::<Arc<ConnectionInfo>>();
        Self {
            format,
            peer: info.map(|info| info.peer_addr()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            status: StatusCode::OK,
            sent: 0,
            outcome: Outcome::Cut,
            began: Instant::now(),
        }
    }

    fn line(&self) -> String {
        let millis = self.began.elapsed().as_secs_f64() * 1e3;
        let path = self.uri.path_and_query().map_or("*", http::uri::PathAndQuery::as_str);
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        match self.format {
            AccessLog::Json => serde_json::json!({
                "time": httpdate::fmt_http_date(SystemTime::now()),
                "peer": peer,
                "method": self.method.as_str(),
                "path": path,
                "protocol": format!("{:?}", self.version),
                "status": self.status.as_u16(),
                "bytes": self.sent,
                "ms": (millis * 1e3).round() / 1e3,
                "body": self.outcome.as_str(),
            })
            .to_string(),
            AccessLog::Text | AccessLog::Off => format!(
                "{} {peer} \"{} {path} {:?}\" {} {} {millis:.1}ms {}",
                httpdate::fmt_http_date(SystemTime::now()),
                self.method,
                self.version,
                self.status.as_u16(),
                self.sent,
                self.outcome.as_str()
            ),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Nobody reads it any more: the server serves on.
        let _ = writeln!(io::stdout().lock(), "{}", self.line());
    }
}

/// A body that counts.
#[derive(Debug)]
pub(super) struct LoggedBody {
    body: FileBody,
    entry: Entry,
}

impl Body for LoggedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.entry.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Ready(Some(Err(_))) => self.entry.outcome = Outcome::Failed,
            Poll::Ready(None) => self.entry.outcome = Outcome::Whole,
            Poll::Pending => {}
        }
        if matches!(polled, Poll::Ready(Some(Ok(_)))) && self.body.is_end_stream() {
            self.entry.outcome = Outcome::Whole;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
