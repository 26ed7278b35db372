//! Whether a request's body is bulk: it is larger than the window that every stream has from its beginning.
//!
//! Less than that is never held back, so a stream of messages or requests of half a megabyte is not bulk, however fast each
//! of them arrives; it is what uploads have to leave room for.

use std::time::Duration;

use smig_proto::{BulkHint, Instant};

/// A body of this length is bulk, and one of unknown length after so many bytes without a pause.
const MIN_BULK_BYTES: u64 = 1 << 20;
/// The pause after which a body of unknown length begins again.
const PAUSE: Duration = Duration::from_millis(150);
/// A body of unknown length that has just begun may become bulk...
const BEGINNING: Duration = Duration::from_secs(1);
/// ...and one of which so many bytes have arrived without a pause.
const MIN_CANDIDATE_BYTES: u64 = 64 << 10;

/// Watches whether a request's body is bulk.
#[derive(Debug)]
pub(in crate::server) struct UploadWatch {
    length: Option<u64>,
    hint: BulkHint,
    began_at: Instant,
    /// Where the run without a pause began, what has arrived, and when.
    run_start: u64,
    received: u64,
    received_at: Instant,
}

impl UploadWatch {
    pub(super) fn new(now: Instant, length: Option<u64>) -> Self {
        let hint = BulkHint::None;
        Self { length, hint, began_at: now, run_start: 0, received: 0, received_at: now }
    }

    /// Sets the application's instruction.
    pub(super) const fn set_hint(&mut self, hint: BulkHint) {
        self.hint = hint;
    }

    /// Decides whether the body is bulk, when `received` bytes of it have arrived.
    pub(super) fn evaluate(&mut self, now: Instant, received: u64) -> bool {
        if received > self.received {
            if self.is_paused(now) {
                self.run_start = self.received;
            }
            (self.received, self.received_at) = (received, now);
        }
        match (self.hint, self.length) {
            (BulkHint::Bulk, _) => true,
            (BulkHint::Interactive, _) => false,
            (BulkHint::None, Some(length)) => length >= MIN_BULK_BYTES,
            (BulkHint::None, None) => self.received - self.run_start >= MIN_BULK_BYTES,
        }
    }

    /// Returns whether the body may become bulk.
    pub(super) fn may_become_bulk(&self) -> bool {
        self.hint == BulkHint::None && self.length.is_none()
    }

    /// Returns whether the body, if it is not bulk, looks as if it were about to become so: it does not count as another
    /// stream, beside which uploads are paced, nor does it limit itself.
    pub(super) fn is_candidate(&self, now: Instant) -> bool {
        let is_running =
            self.received - self.run_start >= MIN_CANDIDATE_BYTES && !self.is_paused(now);
        let has_just_begun = now.saturating_duration_since(self.began_at) < BEGINNING;
        self.may_become_bulk() && (has_just_begun || is_running)
    }

    fn is_paused(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.received_at) >= PAUSE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(25);
    const MIB: u64 = 1 << 20;

    struct Watched {
        watch: UploadWatch,
        now: Instant,
        received: u64,
    }

    impl Watched {
        fn new(length: Option<u64>) -> Self {
            let now = Instant::from_nanos(0);
            Self { watch: UploadWatch::new(now, length), now, received: 0 }
        }

        /// Evaluates after some time in which `bytes` bytes have arrived.
        fn after(&mut self, time: Duration, bytes: u64) -> bool {
            self.now = self.now + time;
            self.received += bytes;
            self.watch.evaluate(self.now, self.received)
        }
    }

    #[test]
    fn an_upload_of_known_length_is_bulk_by_its_length_at_any_speed() {
        assert!(!Watched::new(Some(MIB - 1)).after(STEP, MIB - 1));
        let mut upload = Watched::new(Some(MIB));
        assert!(upload.after(Duration::ZERO, 0), "before its first byte");
        assert!(upload.after(STEP * 100, 1));
        upload.watch.set_hint(BulkHint::Interactive);
        assert!(!upload.after(Duration::ZERO, 0));
        upload.watch.set_hint(BulkHint::Bulk);
        assert!(upload.after(Duration::ZERO, 0));
    }

    #[test]
    fn an_upload_of_unknown_length_is_bulk_while_it_does_not_pause() {
        let mut upload = Watched::new(None);
        for _ in 1..100 {
            assert!(!upload.after(STEP, MIB / 100));
        }
        assert!(upload.after(STEP, MIB / 50));
        assert!(upload.after(STEP, 1));
        assert!(!upload.after(PAUSE, MIB - 1), "a pause");
        assert!(upload.after(STEP, 1));
    }

    #[test]
    fn messages_of_half_a_megabyte_are_not_bulk() {
        // At 100 Mbit/s and at 16 Mbit/s: each takes 50 or 250 ms.
        for steps in [2, 10] {
            let mut messages = Watched::new(None);
            for _ in 0..100 {
                assert!(!messages.after(STEP * (20 - steps), (512 << 10) / u64::from(steps)));
                for _ in 1..steps {
                    assert!(!messages.after(STEP, (512 << 10) / u64::from(steps)));
                }
            }
        }
    }

    #[test]
    fn a_body_that_does_not_look_like_bulk_counts_as_another_stream() {
        let mut upload = Watched::new(None);
        assert!(upload.watch.is_candidate(upload.now), "it has just begun");
        for _ in 0..40 {
            upload.after(STEP, MIB / 100);
            assert!(upload.watch.is_candidate(upload.now));
        }
        assert!(!upload.watch.is_candidate(upload.now + PAUSE));
        let silent = Watched::new(None);
        assert!(!silent.watch.is_candidate(silent.now + BEGINNING));
        assert!(!Watched::new(Some(1000)).watch.may_become_bulk());
    }
}
