//! The bulk uploads of a session: whether others share their path, and each upload's part of the window.

use std::time::Duration;

use smig_proto::Instant;

use super::credit_watch::{CreditWatch, UploadProgress};
use super::upload_window::UploadWindow;
use crate::driver::{PacingDemand, ReceivePath, ReceiveWindow};
use crate::mailbox::Slot;

/// How long after another stream was open uploads are still paced.
const OTHERS_TIME: Duration = Duration::from_secs(5);
/// The engine grants no stream less.
const MIN_SHARE_BYTES: u64 = 8 << 10;
/// The credit of an upload is its share of the window, an eighth, which waits for the next update, and two packets: updates
/// wait in the other direction and for the programs at both ends.
const CREDIT_BESIDE_SHARE_BYTES: u64 = 3 << 10;

/// The bulk uploads of a session, and their pacing.
#[derive(Debug, Default)]
pub(in crate::server) struct BulkUploads {
    uploads: Vec<BulkUpload>,
    /// Streams with bodies of unknown length that are not bulk now.
    undecided: Vec<Slot>,
    pacer: Option<Box<UploadWindow>>,
    /// The window that the uploads share, if there is one.
    window: Option<u64>,
    /// When another stream was last open.
    others_at: Option<Instant>,
}

#[derive(Debug)]
struct BulkUpload {
    slot: Slot,
    credit: CreditWatch,
}

impl BulkUploads {
    pub(super) const fn is_empty(&self) -> bool {
        self.uploads.is_empty()
    }

    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.uploads.iter().any(|upload| upload.slot == slot)
    }

    /// Forgets the path: there is no bulk upload.
    pub(super) fn reset(&mut self) {
        if self.pacer.is_some() {
            (self.pacer, self.window) = (None, None);
        }
    }

    /// Returns the number of bulk uploads and of streams that may become so.
    pub(super) fn count_with_candidates(&self, is_candidate: impl Fn(Slot) -> bool) -> usize {
        let candidates = self.undecided.iter().filter(|&&slot| is_candidate(slot));
        self.uploads.len() + candidates.count()
    }

    /// Records that a stream was opened that is not bulk. Whether one is another stream, beside which uploads are paced, is
    /// unknown as long as it may become bulk.
    pub(super) fn on_other_opened(&mut self, now: Instant, slot: Slot, may_become_bulk: bool) {
        if may_become_bulk {
            self.undecided.push(slot);
        } else {
            self.others_at = Some(now);
        }
    }

    pub(super) fn add(&mut self, slot: Slot, progress: UploadProgress) {
        self.undecided.retain(|&other| other != slot);
        self.uploads.push(BulkUpload { slot, credit: CreditWatch::new(progress) });
    }

    /// Records that a stream has ended.
    pub(in crate::server) fn remove(&mut self, now: Instant, slot: Slot) {
        self.uploads.retain(|upload| upload.slot != slot);
        if let Some(index) = self.undecided.iter().position(|&other| other == slot) {
            self.undecided.swap_remove(index);
            self.others_at = Some(now);
        }
    }

    fn demand(&mut self, now: Instant, has_others: bool) -> PacingDemand {
        if has_others {
            self.others_at = Some(now);
        }
        let is_recent = |at: Instant| now.saturating_duration_since(at) < OTHERS_TIME;
        if self.others_at.is_some_and(is_recent) {
            PacingDemand::Shared
        } else {
            PacingDemand::BulkAlone
        }
    }

    /// Takes into account what has arrived of each upload.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        progress: impl Fn(Slot) -> Option<UploadProgress>,
    ) {
        for upload in &mut self.uploads {
            if let Some(progress) = progress(upload.slot) {
                upload.credit.update(now, progress);
            }
        }
    }

    /// Returns whether [`Self::end_round`] is due, when `received` bytes have arrived in all.
    pub(super) fn is_round_over(&mut self, now: Instant, received: u64) -> bool {
        self.pacer.get_or_insert_default().is_round_over(now, received)
    }

    /// Computes the window from what has happened in a round. Returns whether [`Self::credits`] are to be set.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        received: u64,
        has_others: bool,
        path: ReceivePath,
    ) -> bool {
        let demand = self.demand(now, has_others);
        let credit_rtt = self.uploads.iter().filter_map(|upload| upload.credit.rtt()).min();
        let Some(pacer) = &mut self.pacer else { return false };
        let Some(window) = pacer.on_progress(now, received, credit_rtt, demand, path) else {
            return false;
        };
        for upload in &mut self.uploads {
            upload.credit.end_round();
        }
        let window = match window {
            ReceiveWindow::Bytes(bytes) => Some(bytes),
            ReceiveWindow::Unlimited => None,
        };
        tracing::trace!(window, "window of the bulk uploads");
        let before = core::mem::replace(&mut self.window, window);
        if before.is_none() && window.is_some() {
            for upload in &mut self.uploads {
                upload.credit.forget_updates();
            }
        }
        before.is_some() || window.is_some()
    }

    /// Returns the credit of each upload; `None`: it is not limited.
    ///
    /// Uploads that wait for credit share the window equally. The others have what they use and half of it beside, so that
    /// the window of an idle one is not missing to the rest.
    pub(super) fn credits(&self) -> impl Iterator<Item = (Slot, Option<u32>)> {
        let uploads = self.uploads.len().max(1) as u64;
        let all_bytes = self.uploads.iter().map(|upload| upload.credit.round_bytes()).sum::<u64>();
        let used = move |upload: &BulkUpload, window: u64| {
            let bytes = u128::from(upload.credit.round_bytes()) * u128::from(window);
            u64::try_from(bytes / u128::from(all_bytes.max(1))).unwrap_or(u64::MAX)
        };
        let (mut hungry, mut used_by_others) = (0, 0);
        for upload in &self.uploads {
            if upload.credit.is_hungry() {
                hungry += 1;
            } else {
                used_by_others += used(upload, self.window.unwrap_or(0));
            }
        }
        let hungry_share = move |window: u64| {
            let rest = window.saturating_sub(used_by_others).checked_div(hungry);
            rest.unwrap_or(0).max(window / uploads)
        };
        self.uploads.iter().map(move |upload| {
            let credit = self.window.map(|window| {
                let is_equal = upload.credit.is_hungry() || hungry == 0;
                let max = hungry_share(window).max(MIN_SHARE_BYTES);
                let share = if is_equal { max } else { used(upload, window) * 3 / 2 };
                credit_of_share(share.clamp(MIN_SHARE_BYTES, max))
            });
            (upload.slot, credit)
        })
    }
}

/// Returns the flow-control credit of an upload that may have `share` bytes outstanding.
fn credit_of_share(share: u64) -> u32 {
    u32::try_from(share + share / 8 + CREDIT_BESIDE_SHARE_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRESS: UploadProgress = UploadProgress { received: 0, window: 1 << 20 };

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn uploads_share_the_path_while_other_streams_are_open_and_for_some_time_after() {
        let mut uploads = BulkUploads::default();
        uploads.add(Slot(0), PROGRESS);
        assert_eq!(uploads.demand(at(0), false), PacingDemand::BulkAlone);
        // A request that is answered before the next turn.
        uploads.on_other_opened(at(1), Slot(2), false);
        assert_eq!(uploads.demand(at(5), false), PacingDemand::Shared);
        assert_eq!(uploads.demand(at(6), false), PacingDemand::BulkAlone);
        // One that stays open.
        assert_eq!(uploads.demand(at(7), true), PacingDemand::Shared);
        assert_eq!(uploads.demand(at(12), false), PacingDemand::BulkAlone);
    }

    #[test]
    fn an_upload_of_unknown_length_is_alone_from_its_beginning() {
        let mut uploads = BulkUploads::default();
        uploads.on_other_opened(at(0), Slot(0), true);
        assert_eq!(uploads.count_with_candidates(|_| true), 1);
        uploads.add(Slot(0), PROGRESS);
        assert_eq!(uploads.demand(at(0), false), PacingDemand::BulkAlone);
        // One that ends before it is bulk was another stream.
        uploads.on_other_opened(at(1), Slot(1), true);
        assert_eq!(uploads.demand(at(1), false), PacingDemand::BulkAlone);
        uploads.remove(at(2), Slot(1));
        assert_eq!(uploads.demand(at(2), false), PacingDemand::Shared);
    }

    #[test]
    fn uploads_that_wait_for_credit_share_what_the_others_do_not_use() {
        let mut uploads = BulkUploads::default();
        (0..3).for_each(|slot| uploads.add(Slot(slot), PROGRESS));
        uploads.window = Some(90_000);
        let shares: Vec<u32> = uploads.credits().map(|(_, it)| it.unwrap()).collect();
        assert_eq!(shares, [credit_of_share(30_000); 3]);
        // The first one uses up its credit, the second one some, the third one none.
        let progress = |received, window| UploadProgress { received, window };
        uploads.observe(at(1), |_| Some(progress(0, (1 << 20) + 1)));
        uploads.observe(at(2), |slot| match slot {
            Slot(0) => Some(progress((1 << 20) + 1, 0)),
            Slot(1) => Some(progress((1 << 20) / 8, 0)),
            _ => None,
        });
        uploads.uploads.iter_mut().for_each(|upload| upload.credit.end_round());
        let shares: Vec<u32> = uploads.credits().map(|(_, it)| it.unwrap()).collect();
        let expected = [80_000, 15_000, MIN_SHARE_BYTES].map(credit_of_share);
        assert_eq!(shares[2], expected[2]);
        assert!(shares[0].abs_diff(expected[0]) < 10 && shares[1].abs_diff(expected[1]) < 10);
    }
}
