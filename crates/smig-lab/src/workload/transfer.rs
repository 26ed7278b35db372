//! Transfers one object: requests, reads and verifies it, or cancels it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Interval, interval_at, sleep, sleep_until, timeout_at};

use super::client::{OpenResponse, RequestSpec, WorkloadClient};
use super::closing::close_connections_to;
use super::connections::ConnectionKey;
use super::content::Content;
use super::event::EventKind;
use super::received_bytes::ReceivedBytes;
use super::result::{
    CancelRecord, MigrationRecord, ObjectResult, Outcome, ProgressPoint, RequestPhases,
};
use super::run::{WorkloadRun, now_ns};
use crate::scenario::{CancelScope, SizeClass, Transfer, TransferDirection};

/// After a cancel: silence after which the traffic counts as finished.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// After a cancel: maximum duration of the measurement.
const TAIL_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// One object's request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectRequest<'a> {
    /// The transfer of which it is one.
    pub(super) transfer: &'a Transfer,
    /// The client that sends it.
    pub(super) client: &'a WorkloadClient,
    /// Gets the bytes of the body so far.
    pub(super) received: Option<&'a watch::Sender<u64>>,
}

/// How fetching an object ended.
enum FetchEnd {
    Ended(Outcome),
    /// It is to be cancelled; with its response, if that has begun.
    Cancel(Option<OpenResponse>),
}

/// Why reading the body ended.
enum ReadEnd {
    Complete,
    Cancel,
    Damaged,
    Failed(String),
}

impl WorkloadRun {
    /// Transfers one object; returns its result. `result` is from `new_result`.
    pub(super) async fn transfer_object(
        &self,
        mut result: ObjectResult,
        request: &ObjectRequest<'_>,
    ) -> ObjectResult {
        match timeout_at(self.deadline, self.fetch(&mut result, request)).await {
            Ok(Ok(FetchEnd::Ended(outcome))) => result.outcome = outcome,
            // What arrives late belongs to the record, even if the time limit is over by then.
            Ok(Ok(FetchEnd::Cancel(response))) => self.cancel(&mut result, response, request).await,
            Ok(Err(why)) => result.outcome = Outcome::Failed(why),
            Err(_) => {}
        }
        if result.ended_ns == 0 {
            result.ended_ns = self.since_began();
        }
        result
    }

    /// Returns the result of a request that starts now and has no response yet.
    pub(super) fn new_result(&self, name: &str, number: u32, transfer: &Transfer) -> ObjectResult {
        let size = transfer.size_of(number);
        ObjectResult {
            name: name.to_owned(),
            number,
            client: self.client_name(transfer).to_owned(),
            size_class: transfer.size_class_of(size),
            direction: transfer.direction,
            size,
            started_ns: self.since_began(),
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 0,
            bytes: 0,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome: Outcome::TimedOut,
            cancel: None,
            progress: Vec::new(),
        }
    }

    async fn fetch(
        &self,
        result: &mut ObjectResult,
        request: &ObjectRequest<'_>,
    ) -> Result<FetchEnd, String> {
        let transfer = request.transfer;
        let spec = RequestSpec {
            size: result.size,
            direction: result.direction,
            size_class: result.size_class,
            priority: transfer.priority.as_deref(),
        };
        let cancel = transfer.cancel.as_ref();
        let cancel_at_bytes = cancel.and_then(|cancel| cancel.at).map(|size| size.0);
        let cancel_deadline =
            cancel.and_then(|cancel| cancel.after).map(|after| Instant::now() + after.0);
        let response = request.client.timed_request(&spec);
        let response = match cancel_deadline {
            None => Some(response.await?),
            Some(by) => tokio::select! {
                answer = response => Some(answer?),
                () = sleep_until(by) => None,
            },
        };
        let Some((mut response, times)) = response else {
            return Ok(FetchEnd::Cancel(None));
        };
        let since_began = |at_ns: u64| at_ns.saturating_sub(self.start_monotonic_ns);
        result.phases.connect_ns = times.connect_ns.map(since_began);
        result.phases.sent_ns = times.sent_ns.map(since_began);
        result.head_ns = Some(self.since_began());
        let reader = BodyReader {
            run: self,
            connection: response.request_connection(),
            cancel_at_bytes,
            cancel_deadline,
            received: request.received,
        };
        let read_end = reader.read_to_end(&mut response, result).await;
        result.connections = response.bytes_by_connection(&self.connections, result.bytes);
        Ok(match read_end {
            ReadEnd::Cancel => FetchEnd::Cancel(Some(response)),
            ReadEnd::Complete => {
                result.ended_ns = self.since_began();
                FetchEnd::Ended(Outcome::Complete)
            }
            ReadEnd::Damaged => FetchEnd::Ended(Outcome::Damaged),
            ReadEnd::Failed(why) => FetchEnd::Ended(Outcome::Failed(why)),
        })
    }

    /// Cancels by dropping the response, after closing all connections to the server if the scenario says so, and counts what still arrives.
    async fn cancel(
        &self,
        result: &mut ObjectResult,
        response: Option<OpenResponse>,
        request: &ObjectRequest<'_>,
    ) {
        let transfer = request.transfer;
        let other_bytes_before = self.body_bytes.load(Ordering::Relaxed);
        let at_ns = self.since_began();
        let mut received_bytes = ReceivedBytes::start();
        let closes_connections =
            transfer.cancel.as_ref().is_some_and(|cancel| cancel.how == CancelScope::Close);
        if closes_connections {
            close_connections_to(request.client.server());
        }
        drop(response);
        result.ended_ns = at_ns;
        if transfer.max_objects() == 1 {
            // Transfers that run until the end of this one do not wait for late traffic.
            self.mark_ended(&result.name);
        }
        let deadline = Instant::now() + TAIL_TIMEOUT;
        while Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
            if u128::from(received_bytes.poll()) >= QUIET_PERIOD.as_nanos() {
                break;
            }
        }
        result.cancel = Some(CancelRecord {
            at_ns,
            wire_bytes: received_bytes.bytes(),
            other_bytes: self.body_bytes.load(Ordering::Relaxed) - other_bytes_before,
            last_ns: received_bytes.last_change_ns().saturating_sub(self.start_monotonic_ns),
        });
        result.outcome = Outcome::Cancelled;
    }
}

/// State of reading a response's body.
struct BodyReader<'a> {
    run: &'a WorkloadRun,
    connection: Option<ConnectionKey>,
    cancel_at_bytes: Option<u64>,
    cancel_deadline: Option<Instant>,
    received: Option<&'a watch::Sender<u64>>,
}

impl BodyReader<'_> {
    async fn read_to_end(
        mut self,
        response: &mut OpenResponse,
        result: &mut ObjectResult,
    ) -> ReadEnd {
        let mut content = Content::new();
        let mut clock = self.event_clock(result);
        let is_upload = result.direction == TransferDirection::Upload;
        loop {
            let by = self.cancel_deadline;
            let cancel = async {
                match by {
                    Some(by) => sleep_until(by).await,
                    None => std::future::pending().await,
                }
            };
            let piece = tokio::select! {
                piece = response.next() => piece,
                () = cancel => return ReadEnd::Cancel,
                () = next_tick(clock.as_mut()) => {
                    self.send_progress(response, result);
                    continue;
                }
            };
            let piece = match piece {
                Some(Ok(piece)) => piece,
                Some(Err(why)) => return ReadEnd::Failed(why),
                None => break,
            };
            self.record_migration(response, result);
            let read_at_ns = self.run.since_began();
            result.first_byte_ns.get_or_insert(read_at_ns);
            if is_upload {
                continue;
            }
            if !response.is_already_verified() && !content.verify_next(&piece) {
                return ReadEnd::Damaged;
            }
            result.bytes += piece.len() as u64;
            self.run.body_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if let Some(received) = self.received {
                received.send_replace(result.bytes);
            }
            self.record_progress(read_at_ns, result);
            if self.cancel_at_bytes.is_some_and(|at| result.bytes >= at) {
                return ReadEnd::Cancel;
            }
        }
        self.record_migration(response, result);
        if is_upload {
            // The server responds after it has read the complete body.
            result.bytes = result.size;
        }
        if result.bytes == result.size { ReadEnd::Complete } else { ReadEnd::Damaged }
    }

    fn record_migration(&mut self, response: &OpenResponse, result: &mut ObjectResult) {
        let current_connection = response.connection().or(self.connection);
        if let (Some(from_key), Some(to_key)) = (self.connection, current_connection)
            && from_key != to_key
        {
            let number = |key| self.run.connections.get_or_assign(key);
            let (from, to) = (number(from_key), number(to_key));
            let at_ns = self.run.since_began();
            let migration = MigrationRecord { at_ns, bytes: result.bytes, from, to };
            result.migrations.push(migration);
            self.run.events.send(result, || EventKind::Migrated(migration));
        }
        self.connection = current_connection;
    }

    /// Returns the clock of an object's progress events, if there are any.
    fn event_clock(&self, result: &ObjectResult) -> Option<Interval> {
        let interval = self.run.progress_interval;
        let has_progress = self.run.events.has_listener()
            && result.size_class == SizeClass::Large
            && result.direction == TransferDirection::Download;
        has_progress.then(|| interval_at(Instant::now() + interval, interval))
    }

    fn send_progress(&self, response: &OpenResponse, result: &ObjectResult) {
        self.run.events.send(result, || EventKind::Progress {
            at_ns: self.run.since_began(),
            connections: response.bytes_by_connection(&self.run.connections, result.bytes),
        });
    }

    fn record_progress(&self, at_ns: u64, result: &mut ObjectResult) {
        let since_ns = at_ns - result.progress.last().map_or(result.started_ns, |point| point.0);
        let is_due = u128::from(since_ns) >= self.run.progress_interval.as_nanos();
        if result.size_class == SizeClass::Large && (is_due || result.bytes == result.size) {
            result.progress.push(ProgressPoint(at_ns, result.bytes));
        }
    }
}

/// Waits for the clock's next tick; without a clock, forever.
async fn next_tick(clock: Option<&mut Interval>) {
    match clock {
        Some(clock) => drop(clock.tick().await),
        None => std::future::pending().await,
    }
}

impl WorkloadRun {
    /// Returns the nanoseconds since the start of the run.
    pub(super) fn since_began(&self) -> u64 {
        now_ns().saturating_sub(self.start_monotonic_ns)
    }
}
