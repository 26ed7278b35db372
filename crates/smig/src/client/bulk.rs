//! Which streams are bulk, towards a server that does not support SMig: nothing can migrate there, so other requests
//! must avoid their connection.
//!
//! The thresholds are those of the migration policy. The rate is that at which the body arrived or was sent: TCP
//! reports a delivery rate for what this side sends only.

use std::sync::Arc;
use std::time::Duration;

use smig_proto::policy::{
    Decision, Interference, MigrationHint, MigrationPolicy, PolicyInput, Transfer,
};
use smig_proto::{Instant, Priority};

use super::session_load::{BulkGuard, SessionLoad};

/// Bytes of body between two evaluations of a stream.
const EVALUATION_STEP_BYTES: u64 = 32 << 10;
/// A second connection costs a handshake of several round trips: with less left than this, it is not opened.
const MIN_TIME_FOR_CONNECTION: Duration = Duration::from_millis(250);

/// A stream of unknown length is not bulk while [`EVALUATION_STEP_BYTES`] of it take longer than this: a stream of
/// events, or a tunnel that carries a terminal.
const MAX_STEP_TIME: Duration = Duration::from_secs(1);

/// Watches whether a stream is bulk.
#[derive(Debug)]
pub(super) struct BulkWatch {
    transfer: Transfer,
    hint: MigrationHint,
    started_at: Instant,
    evaluated_at: Instant,
    next_evaluation_offset: u64,
    /// Set while the stream is bulk.
    bulk: Option<BulkGuard>,
}

/// Progress of a bulk stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BulkProgress {
    /// Its rate so far; 0 if that is not known.
    pub(super) bytes_per_s: u64,
    /// Time to its end at that rate; [`Duration::MAX`] if that is not known.
    pub(super) remaining_time: Duration,
}

impl BulkProgress {
    /// Returns whether the rest takes so long that another connection is worth its handshake.
    pub(super) fn is_worth_connection(self) -> bool {
        self.remaining_time >= MIN_TIME_FOR_CONNECTION
    }
}

impl BulkWatch {
    pub(super) fn new(transfer: Transfer, hint: MigrationHint, now: Instant) -> Self {
        // `Stay` is about the stream's own migration, not about requests that would wait for it.
        let hint = if hint == MigrationHint::Migrate { hint } else { MigrationHint::None };
        Self {
            transfer,
            hint,
            started_at: now,
            evaluated_at: now,
            next_evaluation_offset: EVALUATION_STEP_BYTES,
            bulk: None,
        }
    }

    /// Records that the response's head arrived and announces `length` bytes.
    pub(super) fn on_response(&mut self, now: Instant, length: Option<u64>) {
        let announced = length.map_or(Transfer::Unsized, Transfer::Sized);
        let is_upload =
            matches!(self.transfer, Transfer::Sized(sent) if sent > length.unwrap_or(0));
        if self.transfer != Transfer::Tunnel && !is_upload {
            self.transfer = announced;
            self.started_at = now;
            self.evaluated_at = now;
        }
    }

    /// Evaluates the stream if enough of it was transferred since the last time. Returns its progress if it is bulk.
    pub(super) fn evaluate(
        &mut self,
        now: Instant,
        (transferred_bytes, priority): (u64, Priority),
        policy: &MigrationPolicy,
        load: &Arc<SessionLoad>,
    ) -> Option<BulkProgress> {
        if transferred_bytes < self.next_evaluation_offset {
            return None;
        }
        self.next_evaluation_offset = transferred_bytes + EVALUATION_STEP_BYTES;
        let step_time = now.saturating_duration_since(self.evaluated_at);
        self.evaluated_at = now;
        let age = now.saturating_duration_since(self.started_at);
        let rate = bytes_per_s(transferred_bytes, age);
        let decision = policy.decide(&PolicyInput {
            transfer: self.transfer,
            transferred_bytes,
            age,
            priority,
            // The request that comes next is the other stream.
            other_streams: usize::MAX,
            delivery_bytes_per_s: rate,
            interference: Interference::Queue,
            hint: self.hint,
        });
        let is_slow = step_time > MAX_STEP_TIME && !matches!(self.transfer, Transfer::Sized(_));
        match decision {
            Decision::Migrate(_) if is_slow => {
                self.bulk = None;
                None
            }
            Decision::Stay(_) => {
                self.bulk = None;
                None
            }
            Decision::Migrate(_) => {
                self.bulk.get_or_insert_with(|| BulkGuard::new(load));
                Some(self.progress(transferred_bytes, rate))
            }
        }
    }

    /// Returns whether the application requests that the stream leaves its connection.
    pub(super) fn must_leave(&self) -> bool {
        self.hint == MigrationHint::Migrate
    }

    /// Returns whether the stream was bulk when it was last evaluated.
    pub(super) const fn is_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    fn progress(&self, transferred_bytes: u64, rate: Option<u64>) -> BulkProgress {
        let (Transfer::Sized(size), Some(rate)) = (self.transfer, rate) else {
            return BulkProgress { bytes_per_s: rate.unwrap_or(0), remaining_time: Duration::MAX };
        };
        let remaining_bytes = size.saturating_sub(transferred_bytes);
        let millis = u128::from(remaining_bytes) * 1000 / u128::from(rate.max(1));
        let remaining_time = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        BulkProgress { bytes_per_s: rate, remaining_time }
    }
}

/// Returns the rate, unless the time is too short to tell.
fn bytes_per_s(bytes: u64, time: Duration) -> Option<u64> {
    let nanos = time.as_nanos();
    (nanos > 0)
        .then(|| u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
        .filter(|&rate| rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of an evaluation: whether the stream is bulk, and if so whether it is worth another connection.
    #[derive(Debug, PartialEq, Eq)]
    enum Bulk {
        No,
        Short,
        Long,
    }

    const STEP: u64 = EVALUATION_STEP_BYTES;

    /// A watch, its clock and its session's load.
    struct Watched {
        watch: BulkWatch,
        now: Instant,
        load: Arc<SessionLoad>,
    }

    impl Watched {
        fn download(length: Option<u64>) -> Self {
            let now = Instant::from_nanos(0);
            let mut watch = BulkWatch::new(Transfer::Sized(0), MigrationHint::None, now);
            watch.on_response(now, length);
            Self { watch, now, load: Arc::default() }
        }

        /// Evaluates after some time, when `bytes` bytes have been transferred.
        fn after(&mut self, time: Duration, bytes: u64) -> (Bulk, usize) {
            self.now = self.now + time;
            let (policy, priority) = (MigrationPolicy::default(), Priority::default());
            let progress = self.watch.evaluate(self.now, (bytes, priority), &policy, &self.load);
            let bulk = match progress {
                None => Bulk::No,
                Some(progress) if progress.is_worth_connection() => Bulk::Long,
                Some(_) => Bulk::Short,
            };
            (bulk, self.load.bulk_streams())
        }
    }

    #[test]
    fn a_long_response_is_bulk_until_little_is_left() {
        const LENGTH: u64 = 10 << 20;
        let time = Duration::from_millis(30);
        let mut watched = Watched::download(Some(LENGTH));
        assert_eq!(watched.after(time, STEP - 1), (Bulk::No, 0), "too early to tell");
        assert_eq!(watched.after(time, STEP), (Bulk::Long, 1));
        assert_eq!(watched.after(time, STEP + 1), (Bulk::No, 1), "not evaluated again so soon");
        assert_eq!(watched.after(time, LENGTH - STEP), (Bulk::No, 0));
        let mut fast = Watched::download(Some(LENGTH));
        assert_eq!(fast.after(time, LENGTH / 2), (Bulk::Short, 1));
        drop(fast.watch);
        assert_eq!(fast.load.bulk_streams(), 0);
        let mut small = Watched::download(Some(2 * STEP));
        assert_eq!(small.after(time, STEP), (Bulk::No, 0));
    }

    #[test]
    fn a_stream_of_unknown_length_is_bulk_while_it_is_fast() {
        let mut watched = Watched::download(None);
        let fast = Duration::from_millis(100);
        assert_eq!(watched.after(fast, STEP), (Bulk::No, 0));
        assert_eq!(watched.after(fast, 4 * STEP), (Bulk::Long, 1));
        assert_eq!(watched.after(2 * MAX_STEP_TIME, 5 * STEP), (Bulk::No, 0), "slow");
        assert_eq!(watched.after(fast, 6 * STEP), (Bulk::Long, 1));
    }

    #[test]
    fn an_upload_stays_one_when_its_response_arrives() {
        let now = Instant::from_nanos(0);
        let watch = BulkWatch::new(Transfer::Sized(10 << 20), MigrationHint::Stay, now);
        let mut watched = Watched { watch, now, load: Arc::default() };
        watched.watch.on_response(now, Some(5));
        assert_eq!(watched.after(Duration::from_millis(30), STEP), (Bulk::Long, 1));
    }
}
