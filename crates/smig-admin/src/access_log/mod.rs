//! The access log: one line per request, written when the body of its response has ended.

mod writer;

use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use serde::Deserialize;
use smig::ConnectionInfo;

use writer::{LogStats, LogWriter, Sink};

/// The format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// No log.
    #[default]
    Off,
    /// Short lines, for humans.
    Text,
    /// The combined format of Apache and nginx.
    Combined,
    /// One JSON object per line.
    Json,
}

/// An access log. Writing to it never blocks.
#[derive(Debug)]
pub struct AccessLog {
    format: AccessLogFormat,
    /// `None`: logging is off.
    writer: Option<LogWriter>,
    stats: Arc<LogStats>,
}

impl AccessLog {
    /// Opens a log to a file, or to standard output.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn new(format: AccessLogFormat, file: Option<&Path>) -> io::Result<Arc<Self>> {
        Self::open(format, file, Arc::default())
    }

    /// Returns a log that replaces this one and continues its count of dropped lines.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn open_replacement(
        &self,
        format: AccessLogFormat,
        file: Option<&Path>,
    ) -> io::Result<Arc<Self>> {
        Self::open(format, file, Arc::clone(&self.stats))
    }

    fn open(
        format: AccessLogFormat,
        file: Option<&Path>,
        stats: Arc<LogStats>,
    ) -> io::Result<Arc<Self>> {
        if format == AccessLogFormat::Off {
            return Ok(Arc::new(Self { format, writer: None, stats }));
        }
        let sink = match file {
            None => Sink::Stdout,
            Some(path) => {
                // Opening a FIFO only for writing blocks until it has a reader.
                let is_pipe = std::fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo());
                Sink::File(OpenOptions::new().create(true).append(true).read(is_pipe).open(path)?)
            }
        };
        let writer = LogWriter::start(sink, Arc::clone(&stats))?;
        Ok(Arc::new(Self { format, writer: Some(writer), stats }))
    }

    /// Returns whether lines are written.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.writer.is_some()
    }

    /// Returns the number of lines dropped since the start: the buffer was full, or writing failed.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.stats.dropped_lines()
    }

    /// Waits until the lines so far are written, including those of replaced logs: for at most
    /// `timeout`, and only as long as writes make progress.
    pub async fn flush(&self, timeout: Duration) {
        self.stats.wait_until_written(timeout).await;
    }

    /// Starts a line; `None` if logging is off.
    #[must_use]
    pub fn start_entry<B>(self: &Arc<Self>, request: &Request<B>) -> Option<Box<AccessLogEntry>> {
        (self.format != AccessLogFormat::Off)
            .then(|| Box::new(AccessLogEntry::new(Arc::clone(self), request)))
    }

    fn write(&self, line: String) {
        if let Some(writer) = &self.writer {
            writer.write(line);
        }
    }
}

/// A line in progress. Dropping it writes the line.
#[derive(Debug)]
pub struct AccessLogEntry {
    log: Arc<AccessLog>,
    peer: Option<SocketAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    upstream: Option<Arc<str>>,
    /// `None`: the request was cancelled before its response began.
    status: Option<StatusCode>,
    bytes_sent: u64,
    outcome: BodyOutcome,
    started_at: Instant,
}

/// How the response's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyOutcome {
    /// Dropped before its end: the client disconnected or cancelled.
    Aborted,
    Complete,
    /// Its source failed.
    Failed,
}

impl BodyOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Complete => "complete",
            Self::Failed => "failed",
        }
    }
}

impl AccessLogEntry {
    fn new<B>(log: Arc<AccessLog>, request: &Request<B>) -> Self {
        let field = |name: HeaderName| request.headers().get(name).cloned();
        let info = request.extensions().get::<Arc<ConnectionInfo>>();
        Self {
            log,
            peer: info.map(|info| info.peer_addr()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: field(HOST),
            referer: field(REFERER),
            user_agent: field(USER_AGENT),
            upstream: None,
            status: None,
            bytes_sent: 0,
            outcome: BodyOutcome::Aborted,
            started_at: Instant::now(),
        }
    }

    /// Sets the upstream of the request's route. The gateway itself may have responded.
    pub fn set_upstream(&mut self, upstream: &Arc<str>) {
        self.upstream = Some(Arc::clone(upstream));
    }

    fn line(&self) -> String {
        self.format_line(self.log.format)
    }

    fn format_line(&self, format: AccessLogFormat) -> String {
        let duration_ms = self.started_at.elapsed().as_secs_f64() * 1e3;
        let path = self.uri.path_and_query().map_or("*", http::uri::PathAndQuery::as_str);
        // A CONNECT request has no path.
        let target = match self.uri.authority() {
            Some(authority) if self.uri.scheme().is_none() => authority.as_str(),
            _ => path,
        };
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let date = httpdate::fmt_http_date(SystemTime::now());
        let (method, bytes_sent) = (&self.method, self.bytes_sent);
        let status = self.status.as_ref().map_or("-", StatusCode::as_str);
        let (version, outcome) = (self.version, self.outcome.as_str());
        match format {
            AccessLogFormat::Json => {
                let host = match (self.uri.authority(), &self.host) {
                    (Some(authority), _) => Some(authority.as_str().into()),
                    (None, Some(host)) => Some(lossy_str(host)),
                    (None, None) => None,
                };
                serde_json::json!({
                    "time": date,
                    "peer": peer,
                    "method": method.as_str(),
                    "host": host,
                    "path": target,
                    "protocol": format!("{version:?}"),
                    "status": self.status.map(|status| status.as_u16()),
                    "bytes_sent": bytes_sent,
                    "duration_ms": (duration_ms * 1e3).round() / 1e3,
                    "outcome": outcome,
                    "upstream": self.upstream.as_deref(),
                    "user_agent": self.user_agent.as_ref().map(lossy_str),
                })
                .to_string()
            }
            AccessLogFormat::Combined => {
                let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.ip().to_string());
                let (referer, agent) =
                    (escape_or_dash(&self.referer), escape_or_dash(&self.user_agent));
                let date = to_common_log_date(&date);
                let target = escape(target.as_bytes());
                format!(
                    "{peer} - - [{date}] \"{method} {target} {version:?}\" {status} {bytes_sent} \
                     \"{referer}\" \"{agent}\""
                )
            }
            AccessLogFormat::Text | AccessLogFormat::Off => {
                let target = escape(target.as_bytes());
                format!(
                    "{date} {peer} \"{method} {target} {version:?}\" {status} {bytes_sent} \
                     {duration_ms:.1}ms {outcome}"
                )
            }
        }
    }
}

fn lossy_str(value: &HeaderValue) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

fn escape_or_dash(value: &Option<HeaderValue>) -> String {
    value.as_ref().map_or_else(|| "-".to_owned(), |value| escape(value.as_bytes()))
}

/// Escapes text from a client, so that it cannot end its field of the line.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b' '..=b'~' if byte != b'"' && byte != b'\\' => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02X}")),
        }
    }
    text
}

/// Converts `Sun, 06 Nov 1994 08:49:37 GMT` to `06/Nov/1994:08:49:37 +0000`.
fn to_common_log_date(date: &str) -> String {
    let mut words = date.split_ascii_whitespace().skip(1);
    let mut next = || words.next().unwrap_or_default();
    let (day, month, year, time) = (next(), next(), next(), next());
    format!("{day}/{month}/{year}:{time} +0000")
}

impl Drop for AccessLogEntry {
    fn drop(&mut self) {
        let mut line = self.line();
        line.push('\n');
        self.log.write(line);
    }
}

/// Counts the bytes of a response's body, if there is an entry for it. The line is written when the body is dropped.
#[must_use]
pub fn log_response<B: Body>(
    response: Response<B>,
    entry: Option<Box<AccessLogEntry>>,
) -> Response<LoggedBody<B>> {
    let Some(mut entry) = entry else {
        return response.map(|body| LoggedBody { body, entry: None });
    };
    entry.status = Some(response.status());
    if entry.method == Method::HEAD || response.body().is_end_stream() {
        entry.outcome = BodyOutcome::Complete;
    }
    response.map(|body| LoggedBody { body, entry: Some(entry) })
}

pin_project_lite::pin_project! {
    /// A body whose bytes are counted.
    #[derive(Debug)]
    pub struct LoggedBody<B> {
        #[pin]
        body: B,
        entry: Option<Box<AccessLogEntry>>,
    }
}

impl<B: Body<Data = Bytes>> Body for LoggedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let poll_result = this.body.as_mut().poll_frame(cx);
        let Some(entry) = this.entry else { return poll_result };
        match &poll_result {
            Poll::Ready(Some(Ok(frame))) => {
                entry.bytes_sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                if this.body.is_end_stream() {
                    entry.outcome = BodyOutcome::Complete;
                }
            }
            Poll::Ready(Some(Err(_))) => entry.outcome = BodyOutcome::Failed,
            Poll::Ready(None) => entry.outcome = BodyOutcome::Complete,
            Poll::Pending => {}
        }
        poll_result
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AccessLogEntry {
        let log = AccessLog::new(AccessLogFormat::Off, None).unwrap();
        let request = Request::get("https://a.example/x\"\u{9b}31m?y=1")
            .header(USER_AGENT, "bad\"agent\\")
            .body(())
            .unwrap();
        AccessLogEntry::new(log, &request)
    }

    fn line(format: AccessLogFormat) -> String {
        let mut entry = entry();
        entry.status = Some(StatusCode::OK);
        entry.bytes_sent = 5;
        entry.outcome = BodyOutcome::Complete;
        entry.format_line(format)
    }

    #[test]
    fn a_client_cannot_end_its_field() {
        assert_eq!(escape(b"a\"b\\c\x1b\xff"), "a\\x22b\\x5Cc\\x1B\\xFF");
        assert_eq!(
            to_common_log_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            "06/Nov/1994:08:49:37 +0000"
        );
        let combined = line(AccessLogFormat::Combined);
        assert_eq!(combined.matches('"').count(), 6, "{combined}");
        let text = line(AccessLogFormat::Text);
        assert!(text.contains(" \"GET /x\\x22\\xC2\\x9B31m?y=1 HTTP/1.1\" 200 5 "), "{text}");
        assert!(combined.ends_with("\"bad\\x22agent\\x5C\""), "{combined}");
        let json: serde_json::Value = serde_json::from_str(&line(AccessLogFormat::Json)).unwrap();
        assert_eq!(json["bytes_sent"], 5);
        assert_eq!(json["outcome"], "complete");
        assert_eq!(json["status"], 200);
    }

    #[test]
    fn a_request_without_a_response_has_no_status() {
        let text = entry().format_line(AccessLogFormat::Text);
        assert!(text.contains(" HTTP/1.1\" - 0 "), "{text}");
        let combined = entry().format_line(AccessLogFormat::Combined);
        assert!(combined.contains(" HTTP/1.1\" - 0 "), "{combined}");
        let json = entry().format_line(AccessLogFormat::Json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json["status"].is_null() && json["outcome"] == "aborted", "{json}");
    }
}
