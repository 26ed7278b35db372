//! HTTP/3 client: a program built from Go sources, which sends the lab's requests over one QUIC connection.
//!
//! Owns the program and the lines to and from it (`src/servers/http3/main.go` defines them). The
//! program itself compares bodies with the lab's content, and reports only how many bytes have arrived.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::Bytes;
use smig_testbed::netns::Child;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::client::RequestSpec;
use super::server_files::object_path;
use crate::scenario::TransferDirection;
use crate::servers::exec_child;

/// Maximum number of body bytes that one report announces: the size of the program's buffer.
const MAX_REPORTED_BYTES: usize = 64 << 10;

/// What the program prints first.
const READY_LINE: &str = "ready";

/// A running client. Dropping it kills the program.
#[derive(Debug)]
pub(super) struct Http3Client {
    requests: Arc<Requests>,
    next_id: AtomicU64,
    /// Whether the program reads requests.
    is_ready: watch::Receiver<bool>,
    _program: Child,
}

/// The program's input, and the requests that wait for its reports, by id.
#[derive(Debug)]
struct Requests {
    input: Mutex<ChildStdin>,
    waiting: Mutex<HashMap<u64, UnboundedSender<Report>>>,
}

/// A report about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Report {
    Head,
    Data(usize),
    End,
    /// What follows the data is not the lab's content.
    Damaged,
    Error(String),
}

/// A response whose body is being read. Dropping it before its end cancels the request.
#[derive(Debug)]
pub(super) struct Http3Response {
    id: u64,
    reports: UnboundedReceiver<Report>,
    requests: Arc<Requests>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Http3Client {
    /// Starts the program on the calling thread's host.
    pub(super) fn start(
        program: &Path,
        smig: &Path,
        server: SocketAddr,
        certificate: &Path,
    ) -> Result<Self, String> {
        let mut command = exec_child(smig);
        command.arg(program).arg("client").arg(format!("https://{server}")).arg(certificate);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Child::spawn_in_current_namespace(command, || ())
            .map_err(|error| format!("cannot start the HTTP/3 client: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the HTTP/3 client has no pipes".into());
        };
        let requests = Arc::new(Requests { input: Mutex::new(input), waiting: Mutex::default() });
        let reader = Arc::clone(&requests);
        let (ready, is_ready) = watch::channel(false);
        thread::spawn(move || reader.read_reports(output, &ready));
        Ok(Self { requests, next_id: AtomicU64::new(1), is_ready, _program: child })
    }

    /// Waits until the program reads requests, so that its start is not part of the first one's time.
    pub(super) async fn ready(&self) -> Result<(), String> {
        let ended = |_| unexpected(None);
        self.is_ready.clone().wait_for(|is_ready| *is_ready).await.map(drop).map_err(ended)
    }

    /// Sends a request and waits for the response's header section.
    pub(super) async fn request(&self, spec: &RequestSpec<'_>) -> Result<Http3Response, String> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reports) = unbounded_channel();
        lock(&self.requests.waiting).insert(id, sender);
        let requests = Arc::clone(&self.requests);
        let mut response = Http3Response { id, reports, requests };
        let method = match spec.direction {
            TransferDirection::Download => "get",
            TransferDirection::Upload => "post",
        };
        self.requests.write(&format!("{method} {id} {} {}", object_path(spec.size), spec.size))?;
        match response.reports.recv().await {
            Some(Report::Head) => Ok(response),
            Some(Report::Error(why)) => Err(why),
            other => Err(unexpected(other.as_ref())),
        }
    }
}

impl Requests {
    fn write(&self, line: &str) -> Result<(), String> {
        let mut input = lock(&self.input);
        writeln!(input, "{line}").map_err(|error| format!("the HTTP/3 client: {error}"))
    }

    /// Distributes the program's reports until it ends; then fails the requests that still wait.
    fn read_reports(&self, output: ChildStdout, ready: &watch::Sender<bool>) {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if line == READY_LINE {
                ready.send_replace(true);
                continue;
            }
            let Some((id, report)) = parse_report(&line) else { continue };
            let waiting = lock(&self.waiting);
            if let Some(sender) = waiting.get(&id) {
                // Fails if the response was dropped.
                let _ = sender.send(report);
            }
        }
        lock(&self.waiting).clear();
    }
}

fn parse_report(line: &str) -> Option<(u64, Report)> {
    let mut words = line.splitn(3, ' ');
    let (kind, id) = (words.next()?, words.next()?.parse().ok()?);
    let rest = words.next().unwrap_or_default();
    let report = match kind {
        "head" => Report::Head,
        "data" => Report::Data(rest.parse().ok().filter(|bytes| *bytes <= MAX_REPORTED_BYTES)?),
        "end" => Report::End,
        "damaged" => Report::Damaged,
        "error" => Report::Error(rest.to_owned()),
        _ => return None,
    };
    Some((id, report))
}

fn unexpected(report: Option<&Report>) -> String {
    report.map_or_else(
        || "the HTTP/3 client has ended".into(),
        |report| format!("the HTTP/3 client reported {report:?} too early"),
    )
}

impl Http3Response {
    /// Returns as many bytes, all of them zero, as have arrived. A damaged body ends where its damage begins, and is
    /// thus shorter than its size.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self.reports.recv().await {
            Some(Report::Data(bytes)) => Some(Ok(vec![0; bytes].into())),
            Some(Report::End | Report::Damaged) => None,
            Some(Report::Error(why)) => Some(Err(why)),
            other => Some(Err(unexpected(other.as_ref()))),
        }
    }
}

impl Drop for Http3Response {
    fn drop(&mut self) {
        lock(&self.requests.waiting).remove(&self.id);
        // After its end the program ignores it; if the program has ended, there is nothing to cancel.
        let _ = self.requests.write(&format!("cancel {}", self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_parsed() {
        assert_eq!(parse_report("head 7"), Some((7, Report::Head)));
        assert_eq!(parse_report("data 7 1200"), Some((7, Report::Data(1_200))));
        assert_eq!(parse_report("end 8"), Some((8, Report::End)));
        assert_eq!(parse_report("damaged 8"), Some((8, Report::Damaged)));
        let error = Report::Error("status 404 Not Found".into());
        assert_eq!(parse_report("error 9 status 404 Not Found"), Some((9, error)));
        for line in ["", "head", "head x", "data 7", "data 7 70000", "other 7"] {
            assert_eq!(parse_report(line), None, "{line}");
        }
    }
}
