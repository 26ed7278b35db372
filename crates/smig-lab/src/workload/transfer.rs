//! Transfers one object: requests, reads and verifies it, or cancels it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, Interval, interval_at, sleep, sleep_until, timeout_at};

use super::closing::close_all;
use super::connections::Key;
use super::content::Content;
use super::endpoint::{Answer, RequestSpec};
use super::event::EventKind;
use super::received_bytes::ReceivedBytes;
use super::result::{CancelRecord, MigrationRecord, ObjectResult, Outcome, ProgressPoint};
use super::run::{Run, now_ns};
use crate::scenario::{CancelHow, SizeClass, Transfer, TransferDirection};

/// After a cancel: silence after which the traffic counts as finished.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// After a cancel: maximum duration of the measurement.
const MAX_TAIL: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Why reading the body ended.
enum ReadEnd {
    Whole,
    Cancel,
    Damaged,
    Failed(String),
}

impl Run {
    /// Transfers one object; returns its result. `result` is that of a request that starts now.
    pub(super) async fn object(
        &self,
        mut result: ObjectResult,
        transfer: &Transfer,
    ) -> ObjectResult {
        let fetched = timeout_at(self.deadline, self.fetch(&mut result, transfer)).await;
        if result.ended_ns == 0 {
            result.ended_ns = self.since_began();
        }
        match fetched {
            Ok(Ok(outcome)) => result.outcome = outcome,
            Ok(Err(why)) => result.outcome = Outcome::Failed(why),
            Err(_) => {}
        }
        result
    }

    /// Returns the result of a request that starts now and has no response yet.
    pub(super) fn empty(&self, name: &str, number: u32, transfer: &Transfer) -> ObjectResult {
        let size = transfer.size_of(number);
        ObjectResult {
            name: name.to_owned(),
            number,
            client: self.client_name(transfer).to_owned(),
            role: transfer.role_of(size),
            direction: transfer.direction,
            size,
            started_ns: self.since_began(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: 0,
            bytes: 0,
            connections: Vec::new(),
            moves: Vec::new(),
            outcome: Outcome::TimedOut,
            cancel: None,
            progress: Vec::new(),
        }
    }

    async fn fetch(
        &self,
        result: &mut ObjectResult,
        transfer: &Transfer,
    ) -> Result<Outcome, String> {
        let spec = RequestSpec {
            size: result.size,
            direction: result.direction,
            role: result.role,
            priority: transfer.priority.as_deref(),
        };
        let cancel = transfer.cancel.as_ref();
        let cancel_at = cancel.and_then(|cancel| cancel.at).map(|size| size.0);
        let cancel_by =
            cancel.and_then(|cancel| cancel.after).map(|after| Instant::now() + after.0);
        let response = self.endpoint(transfer)?.request(&spec);
        let answer = match cancel_by {
            None => Some(response.await?),
            Some(by) => tokio::select! {
                answer = response => Some(answer?),
                () = sleep_until(by) => None,
            },
        };
        let Some(mut answer) = answer else {
            return Ok(self.cancelled(result, None, transfer).await);
        };
        result.head_ns = Some(self.since_began());
        let reading = Reading { run: self, at: answer.home(), cancel_at, cancel_by };
        let end = reading.whole(&mut answer, result).await;
        result.connections = answer.totals(&self.connections, result.bytes);
        Ok(match end {
            ReadEnd::Cancel => self.cancelled(result, Some(answer), transfer).await,
            ReadEnd::Whole => {
                result.ended_ns = self.since_began();
                Outcome::Complete
            }
            ReadEnd::Damaged => Outcome::Damaged,
            ReadEnd::Failed(why) => Outcome::Failed(why),
        })
    }

    /// Cancels by dropping the answer, and counts what still arrives.
    async fn cancelled(
        &self,
        result: &mut ObjectResult,
        answer: Option<Answer>,
        transfer: &Transfer,
    ) -> Outcome {
        let others = self.body_bytes.load(Ordering::Relaxed);
        let at_ns = self.since_began();
        let mut received = ReceivedBytes::start();
        let is_closed =
            transfer.cancel.as_ref().is_some_and(|cancel| cancel.how == CancelHow::Close);
        if is_closed && let Ok(endpoint) = self.endpoint(transfer) {
            close_all(endpoint.server());
        }
        drop(answer);
        result.ended_ns = at_ns;
        if transfer.most() == 1 {
            // Transfers that run until the end of this one do not wait for late traffic.
            self.mark_ended(&result.name);
        }
        let end = Instant::now() + MAX_TAIL;
        while Instant::now() < end {
            sleep(POLL_INTERVAL).await;
            if u128::from(received.poll()) >= QUIET_PERIOD.as_nanos() {
                break;
            }
        }
        result.cancel = Some(CancelRecord {
            at_ns,
            wire_bytes: received.bytes(),
            other_bytes: self.body_bytes.load(Ordering::Relaxed) - others,
            last_ns: received.last_ns().saturating_sub(self.began_ns),
        });
        Outcome::Cancelled
    }
}

/// State of reading an answer.
struct Reading<'a> {
    run: &'a Run,
    at: Option<Key>,
    cancel_at: Option<u64>,
    cancel_by: Option<Instant>,
}

impl Reading<'_> {
    async fn whole(mut self, answer: &mut Answer, result: &mut ObjectResult) -> ReadEnd {
        let mut content = Content::new();
        let mut clock = self.event_clock(result);
        let is_upload = result.direction == TransferDirection::Upload;
        loop {
            let by = self.cancel_by;
            let cancel = async {
                match by {
                    Some(by) => sleep_until(by).await,
                    None => std::future::pending().await,
                }
            };
            let piece = tokio::select! {
                piece = answer.next() => piece,
                () = cancel => return ReadEnd::Cancel,
                () = next_tick(clock.as_mut()) => {
                    self.send_progress(answer, result);
                    continue;
                }
            };
            let piece = match piece {
                Some(Ok(piece)) => piece,
                Some(Err(why)) => return ReadEnd::Failed(why),
                None => break,
            };
            self.record_migration(answer, result);
            let now = self.run.since_began();
            result.first_byte_ns.get_or_insert(now);
            if is_upload {
                continue;
            }
            if !content.matches(&piece) {
                return ReadEnd::Damaged;
            }
            result.bytes += piece.len() as u64;
            self.run.body_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.record_progress(now, result);
            if self.cancel_at.is_some_and(|at| result.bytes >= at) {
                return ReadEnd::Cancel;
            }
        }
        self.record_migration(answer, result);
        if is_upload {
            // The server responds after it has read the complete body.
            result.bytes = result.size;
        }
        if result.bytes == result.size { ReadEnd::Whole } else { ReadEnd::Damaged }
    }

    fn record_migration(&mut self, answer: &Answer, result: &mut ObjectResult) {
        let now = answer.connection().or(self.at);
        if let (Some(from), Some(to)) = (self.at, now)
            && from != to
        {
            let number = |key| self.run.connections.number(key);
            let (from, to) = (number(from), number(to));
            let at_ns = self.run.since_began();
            let migration = MigrationRecord { at_ns, bytes: result.bytes, from, to };
            result.moves.push(migration);
            self.run.events.send(result, || EventKind::Migrated(migration));
        }
        self.at = now;
    }

    /// Returns the clock of an object's progress events, if there are any.
    fn event_clock(&self, result: &ObjectResult) -> Option<Interval> {
        let every = self.run.progress_every;
        let has_progress = self.run.events.has_listener()
            && result.role == SizeClass::Big
            && result.direction == TransferDirection::Download;
        has_progress.then(|| interval_at(Instant::now() + every, every))
    }

    fn send_progress(&self, answer: &Answer, result: &ObjectResult) {
        self.run.events.send(result, || EventKind::Progress {
            at_ns: self.run.since_began(),
            connections: answer.totals(&self.run.connections, result.bytes),
        });
    }

    fn record_progress(&self, now: u64, result: &mut ObjectResult) {
        let since = now - result.progress.last().map_or(result.started_ns, |point| point.0);
        let is_due = u128::from(since) >= self.run.progress_every.as_nanos();
        if result.role == SizeClass::Big && (is_due || result.bytes == result.size) {
            result.progress.push(ProgressPoint(now, result.bytes));
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

impl Run {
    /// Returns the nanoseconds since the start of the run.
    pub(super) fn since_began(&self) -> u64 {
        now_ns().saturating_sub(self.began_ns)
    }
}
