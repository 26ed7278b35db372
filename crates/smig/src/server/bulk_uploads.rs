//! Paces the bulk uploads of a client without SMig by the flow-control credit of their streams (RFC 9113 section 5.2).
//!
//! Such a client writes an upload into its only connection as fast as its window allows: its socket and the queue of the
//! path fill, and its small requests wait behind. With credit for what the path holds, most of the upload waits in the
//! client instead. Other streams keep their windows. [`ReceivePacer`] computes how much it is; a client with SMig paces
//! its uploads itself.

use std::time::Duration;

use smig_proto::{BulkHint, BulkInput, BulkPolicy, Instant, Priority};

use super::exchange::RequestKind;
use super::service::{HttpService, ResponseBody};
use super::session::ServerSession;
use crate::driver::{
    Pacing, PacingDemand, ReceivePacer, ReceivePath, ReceiveWindow, TurnCx, stream_credit,
};
use crate::mailbox::Slot;
use crate::stream::BodyRecvState;

/// How long after another stream was open uploads are still paced.
const OTHERS_TIME: Duration = Duration::from_secs(5);
/// A body of unknown length is not bulk while so many bytes of it take longer than the policy's quiet time.
const STEP_BYTES: u64 = 32 << 10;

/// Watches whether a request's body is bulk.
#[derive(Debug)]
pub(super) struct UploadWatch {
    length: Option<u64>,
    is_tunnel: bool,
    hint: BulkHint,
    /// Where the run without a pause began, and its last step.
    run_start: u64,
    step_start: u64,
    step_at: Instant,
    is_bulk: bool,
}

impl UploadWatch {
    pub(super) fn new(now: Instant, length: Option<u64>, kind: RequestKind) -> Self {
        Self {
            length,
            is_tunnel: kind == RequestKind::Connect,
            hint: BulkHint::None,
            run_start: 0,
            step_start: 0,
            step_at: now,
            is_bulk: false,
        }
    }

    /// Decides whether the body is bulk, when `received` bytes of it have arrived.
    fn evaluate(
        &mut self,
        now: Instant,
        received: u64,
        priority: Priority,
        policy: &BulkPolicy,
    ) -> bool {
        let is_step_complete = received - self.step_start >= STEP_BYTES;
        let is_slow = now.saturating_duration_since(self.step_at) >= policy.quiet_time;
        if is_slow {
            (self.run_start, self.is_bulk) = (received, false);
        }
        if is_slow || is_step_complete {
            (self.step_start, self.step_at) = (received, now);
        }
        let input = BulkInput {
            length: self.length,
            min_left: 0,
            bytes_without_pause: received - self.run_start,
            current: None,
            is_tunnel: self.is_tunnel,
            has_migrated: false,
            priority,
            hint: self.hint,
        };
        // One that is bulk stays so until it is slow.
        self.is_bulk = match self.hint {
            BulkHint::None => self.is_bulk || policy.decide(&input).is_some(),
            BulkHint::Bulk | BulkHint::Interactive => policy.decide(&input).is_some(),
        };
        self.is_bulk
    }
}

/// The bulk uploads of a session, and their pacing.
#[derive(Debug, Default)]
pub(super) struct BulkUploads {
    slots: Vec<Slot>,
    pacer: Option<Box<ReceivePacer>>,
    /// The window that they share, if there is one.
    window: Option<u64>,
    /// When another stream was last open.
    others_at: Option<Instant>,
}

impl BulkUploads {
    /// Records that a stream was opened.
    pub(super) fn on_open(&mut self, now: Instant, slot: Slot) {
        if !self.slots.contains(&slot) {
            self.others_at = Some(now);
        }
    }

    /// Records that a stream has ended.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.slots.retain(|&other| other != slot);
    }

    fn demand(&mut self, now: Instant, open_streams: usize) -> PacingDemand {
        if open_streams > self.slots.len() {
            self.others_at = Some(now);
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < OTHERS_TIME;
        if self.others_at.is_some_and(is_recent) {
            PacingDemand::Shared
        } else {
            PacingDemand::BulkAlone
        }
    }

    /// Returns the credit of each upload.
    fn credit(&self) -> Option<u32> {
        Some(stream_credit(self.window?, self.slots.len()))
    }
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Returns what watches a request's body of this length; `None`: uploads are not paced.
    pub(super) fn upload_watch(
        &self,
        now: Instant,
        length: Option<u64>,
        kind: RequestKind,
    ) -> Option<UploadWatch> {
        let is_paced = self.worker.shared.conn_options.receive_pacing == Pacing::On;
        is_paced.then(|| UploadWatch::new(now, length, kind))
    }

    /// Records that a stream was opened, whether it carries an upload or not.
    pub(super) fn on_stream_opened(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        self.watch_upload(turn, slot);
        self.bulk_uploads.on_open(turn.now, slot);
    }

    /// Evaluates whether a request's body is bulk.
    pub(super) fn watch_upload(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Self { worker, slots, bulk_uploads, app_id, .. } = self;
        let Some(policy) = worker.shared.engine_config.bulk.as_ref() else { return };
        let Some((exchange, _)) = slots.entry(slot) else { return };
        let Some(watch) = &mut exchange.upload_watch else { return };
        let Some(view) = turn.session.stream(exchange.key) else { return };
        let is_open = exchange.recv_state == BodyRecvState::Open;
        // The priority is that of the response (RFC 9218 section 1).
        let priority = Priority::default();
        let is_bulk = watch.evaluate(turn.now, view.received_bytes, priority, policy);
        let is_paced = bulk_uploads.slots.contains(&slot);
        match (is_bulk && is_open && app_id.is_none(), is_paced) {
            (true, false) => {
                bulk_uploads.slots.push(slot);
                turn.session.limit_receive_credit(exchange.key, bulk_uploads.credit());
            }
            (false, true) => {
                bulk_uploads.remove(slot);
                turn.session.limit_receive_credit(exchange.key, None);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Applies the application's instruction for a request's body.
    pub(super) fn set_upload_hint(&mut self, turn: &mut TurnCx<'_>, slot: Slot, hint: BulkHint) {
        if let Some((exchange, _)) = self.slots.entry(slot)
            && let Some(watch) = &mut exchange.upload_watch
        {
            watch.hint = hint;
            self.watch_upload(turn, slot);
        }
    }

    /// Grants credit to the bulk uploads for what the path holds, while other streams are active.
    pub(super) fn pace_uploads(&mut self, turn: &mut TurnCx<'_>) {
        let Self { slots, bulk_uploads, .. } = self;
        if bulk_uploads.slots.is_empty() {
            if bulk_uploads.pacer.is_some() {
                (bulk_uploads.pacer, bulk_uploads.window) = (None, None);
            }
            return;
        }
        let Some(conn) = turn.session.connections().next() else { return };
        let demand = bulk_uploads.demand(turn.now, slots.len());
        let paced = &bulk_uploads.slots;
        let path = || {
            let uploads = paced.iter().filter_map(|&slot| slots.get(slot));
            let windows = uploads.filter_map(|upload| turn.session.stream(upload.key));
            let granted = windows.map(|view| u64::try_from(view.recv_window).unwrap_or(0)).sum();
            let sample = turn.conns.sample(conn.id);
            ReceivePath { min_rtt: sample.min_rtt, out_of_order: sample.out_of_order, granted }
        };
        let pacer = bulk_uploads.pacer.get_or_insert_default();
        match pacer.on_progress(turn.now, conn.data_bytes_received, demand, path) {
            Some(ReceiveWindow::Bytes(bytes)) => bulk_uploads.window = Some(bytes),
            Some(ReceiveWindow::Unlimited) => bulk_uploads.window = None,
            None => return,
        }
        tracing::trace!(window = bulk_uploads.window, "window of the bulk uploads");
        let credit = bulk_uploads.credit();
        for &slot in &bulk_uploads.slots {
            if let Some(exchange) = slots.get(slot) {
                turn.session.limit_receive_credit(exchange.key, credit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Watched {
        watch: UploadWatch,
        now: Instant,
    }

    impl Watched {
        fn new(length: Option<u64>, kind: RequestKind) -> Self {
            let now = Instant::from_nanos(0);
            Self { watch: UploadWatch::new(now, length, kind), now }
        }

        /// Evaluates after some time, when `received` KiB have arrived.
        fn after(&mut self, time: Duration, received: u64) -> bool {
            self.now = self.now + time;
            let (priority, policy) = (Priority::default(), BulkPolicy::default());
            self.watch.evaluate(self.now, received << 10, priority, &policy)
        }
    }

    #[test]
    fn an_upload_of_known_length_is_bulk_by_its_length_at_any_speed() {
        assert!(!Watched::new(Some((256 << 10) - 1), RequestKind::Other).after(SECOND, 255));
        let mut upload = Watched::new(Some(256 << 10), RequestKind::Other);
        assert!(upload.after(Duration::ZERO, 0), "before its first byte");
        assert!(upload.after(SECOND * 10, 1));
        upload.watch.hint = BulkHint::Interactive;
        assert!(!upload.after(Duration::ZERO, 1));
        upload.watch.hint = BulkHint::None;
        assert!(upload.after(Duration::ZERO, 1));
    }

    #[test]
    fn an_upload_of_unknown_length_is_bulk_while_it_is_fast() {
        let mut upload = Watched::new(None, RequestKind::Other);
        let step = SECOND / 10;
        assert!(!upload.after(step, 32));
        assert!(!upload.after(step, 99));
        assert!(upload.after(step, 100));
        assert!(upload.after(step, 110));
        assert!(!upload.after(SECOND, 115), "a pause");
        assert!(!upload.after(step, 214));
        assert!(upload.after(step, 215));
        let mut messages = Watched::new(None, RequestKind::Other);
        for received in 1..500 {
            assert!(!messages.after(SECOND / 20, received), "20 KiB/s");
        }
        let mut tunnel = Watched::new(None, RequestKind::Connect);
        assert!(!tunnel.after(step, 255));
        assert!(tunnel.after(step, 256));
    }

    #[test]
    fn uploads_share_the_path_while_other_streams_are_open_and_for_some_time_after() {
        let mut uploads = BulkUploads::default();
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        uploads.slots = vec![Slot(0), Slot(1)];
        uploads.on_open(at(0), Slot(1));
        assert_eq!(uploads.demand(at(0), 2), PacingDemand::BulkAlone);
        // A request that is answered before the next turn.
        uploads.on_open(at(1), Slot(2));
        assert_eq!(uploads.demand(at(5), 2), PacingDemand::Shared);
        assert_eq!(uploads.demand(at(6), 2), PacingDemand::BulkAlone);
        // One that stays open.
        assert_eq!(uploads.demand(at(7), 3), PacingDemand::Shared);
        assert_eq!(uploads.demand(at(12), 2), PacingDemand::BulkAlone);
        uploads.window = Some(100_000);
        assert_eq!(uploads.credit(), Some(56_250 + (3 << 10)));
        uploads.remove(Slot(0));
        assert_eq!(uploads.credit(), Some(112_500 + (3 << 10)));
    }
}
