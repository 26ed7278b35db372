//! Paces the bulk uploads of a client without SMig by the flow-control credit of their streams (RFC 9113 section 5.2).
//!
//! Such a client writes an upload into its only connection as fast as its window allows: its socket and the queue of the
//! path fill, and its small requests wait behind. With credit for what the path holds, most of the upload waits in the
//! client instead. Other streams keep their windows. [`upload_watch`] says which bodies are bulk, [`upload_window`] how much all
//! of them may have outstanding, [`shares`] each one's part. A client with SMig paces its uploads itself.

mod credit_watch;
mod round_stats;
mod shares;
#[cfg(test)]
mod tests;
mod upload_watch;
mod upload_window;

use smig_proto::{BulkHint, Instant, StreamKey};

use self::credit_watch::UploadProgress;
pub(super) use self::shares::BulkUploads;
pub(super) use self::upload_watch::UploadWatch;
use super::service::{HttpService, ResponseBody};
use super::session::ServerSession;
use crate::driver::{Pacing, ReceivePath, TurnCx};
use crate::mailbox::Slot;
use crate::stream::BodyRecvState;

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Returns what watches a request's body of this length; `None`: uploads are not paced.
    pub(super) fn upload_watch(&self, now: Instant, length: Option<u64>) -> Option<UploadWatch> {
        let is_paced = self.worker.shared.conn_options.receive_pacing == Pacing::On
            && self.worker.shared.engine_config.bulk.is_some();
        is_paced.then(|| UploadWatch::new(now, length))
    }

    /// Records that a stream was opened, whether it carries an upload or not.
    pub(super) fn on_stream_opened(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        self.watch_upload(turn, slot);
        if !self.bulk_uploads.contains(slot) {
            let watch = self.slots.get(slot).and_then(|exchange| exchange.upload_watch.as_ref());
            let may_become_bulk = watch.is_some_and(UploadWatch::may_become_bulk);
            self.bulk_uploads.on_other_opened(turn.now, slot, may_become_bulk);
        }
    }

    /// Evaluates whether a request's body is bulk.
    pub(super) fn watch_upload(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Self { slots, bulk_uploads, app_id, .. } = self;
        let Some((exchange, _)) = slots.entry(slot) else { return };
        let Some(watch) = &mut exchange.upload_watch else { return };
        let Some(progress) = progress(turn, exchange.key) else { return };
        let is_open = exchange.recv_state == BodyRecvState::Open;
        let is_bulk = watch.evaluate(turn.now, progress.received);
        let is_paced = bulk_uploads.contains(slot);
        match (is_bulk && is_open && app_id.is_none(), is_paced) {
            (true, false) => bulk_uploads.add(slot, progress),
            (false, true) => {
                bulk_uploads.remove(turn.now, slot);
                if is_open {
                    bulk_uploads.on_other_opened(turn.now, slot, watch.may_become_bulk());
                }
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
            watch.set_hint(hint);
            self.watch_upload(turn, slot);
        }
    }

    /// Grants credit to the bulk uploads for what the path holds, while other streams are active.
    pub(super) fn pace_uploads(&mut self, turn: &mut TurnCx<'_>) {
        let Self { slots, bulk_uploads, .. } = self;
        if bulk_uploads.is_empty() {
            return bulk_uploads.reset();
        }
        let Some(conn) = turn.session.connections().next() else { return };
        let received = conn.data_bytes_received;
        let key = |slot| slots.get(slot).map(|exchange| exchange.key);
        bulk_uploads.observe(turn.now, |slot| progress(turn, key(slot)?));
        if !bulk_uploads.is_round_over(turn.now, received) {
            return;
        }
        let is_candidate = |slot| {
            let watch = slots.get(slot).and_then(|exchange| exchange.upload_watch.as_ref());
            watch.is_some_and(|watch| watch.is_candidate(turn.now))
        };
        let has_others = slots.len() > bulk_uploads.count_with_candidates(is_candidate);
        let sample = turn.conns.sample(conn.id);
        let path = ReceivePath { min_rtt: sample.min_rtt, out_of_order: sample.out_of_order };
        if !bulk_uploads.end_round(turn.now, received, has_others, path) {
            return;
        }
        for (slot, credit) in bulk_uploads.credits() {
            if let Some(key) = key(slot) {
                turn.session.limit_receive_credit(key, credit);
            }
        }
    }
}

fn progress(turn: &TurnCx<'_>, key: StreamKey) -> Option<UploadProgress> {
    let view = turn.session.stream(key)?;
    let window = u64::try_from(view.recv_window).unwrap_or(0);
    Some(UploadProgress { received: view.received_bytes, window })
}
