//! Which stream ids of one side of one connection were used (RFC 9113 section 5.1.1,
//! SMIG-5.26/skipped-ids).
//!
//! Owns a high-water mark, a bounded memory of ids that were skipped (a carrier picked by a MIGRATE
//! that is still in flight on another connection) and of ids whose late frames are ignored.

use std::collections::VecDeque;

use crate::wire::StreamId;

/// Skipped ids that are remembered; older ones count as closed.
const SKIPPED: usize = 256;
/// Ids whose late frames are ignored; older ones count as closed.
const IGNORED: usize = 1024;

/// What a frame on an id without a stream meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Never used, above every used one.
    Fresh,
    /// Never used, below a used one.
    Skipped,
    /// Reset by us or left by a migration: late frames are dropped.
    Ignored,
    /// Closed.
    Closed,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    highest: u32,
    /// The highest that a request or a promise opened; carriers open none.
    opened: u32,
    skipped: VecDeque<u32>,
    ignored: VecDeque<u32>,
}

impl Ledger {
    pub(crate) fn highest(&self) -> StreamId {
        StreamId::new(self.highest)
    }

    pub(crate) fn standing(&self, id: StreamId) -> Standing {
        let id = id.value();
        if id > self.highest {
            Standing::Fresh
        } else if self.ignored.contains(&id) {
            Standing::Ignored
        } else if self.skipped.contains(&id) {
            Standing::Skipped
        } else {
            Standing::Closed
        }
    }

    /// Whether a request or a promise may open `id`. Those that a connection carries count up among
    /// themselves, but a carrier above them may have been named before, on another connection.
    pub(crate) fn may_open(&self, id: StreamId) -> bool {
        match self.standing(id) {
            Standing::Fresh => true,
            Standing::Skipped => id.value() > self.opened,
            Standing::Ignored | Standing::Closed => false,
        }
    }

    /// A request or a promise opened `id`.
    pub(crate) fn mark_opened(&mut self, id: StreamId) {
        self.mark_used(id);
        self.opened = self.opened.max(id.value());
    }

    /// The peer used `id`.
    pub(crate) fn mark_used(&mut self, id: StreamId) {
        let id = id.value();
        if id <= self.highest {
            self.skipped.retain(|&other| other != id);
            return;
        }
        let first = if self.highest == 0 { 2 - id % 2 } else { self.highest + 2 };
        // Only the newest can matter: nobody has that many migrations in flight.
        let oldest = id.saturating_sub(2 * SKIPPED as u32).max(first);
        let mut skipped = if oldest % 2 == id % 2 { oldest } else { oldest + 1 };
        while skipped < id {
            self.skipped.push_back(skipped);
            skipped += 2;
        }
        while self.skipped.len() > SKIPPED {
            self.skipped.pop_front();
        }
        self.highest = id;
    }

    /// Picks the next id of this side; `parity` is 1 for a client, 2 for a server. `None`: used up.
    pub(crate) fn next(&mut self, parity: u32) -> Option<StreamId> {
        let next = if self.highest == 0 { parity } else { self.highest.checked_add(2)? };
        if next > StreamId::MAX.value() {
            return None;
        }
        self.highest = next;
        Some(StreamId::new(next))
    }

    /// The peer's last frame on `id` came: there are no late ones any more.
    pub(crate) fn close_ignored(&mut self, id: StreamId) {
        self.ignored.retain(|&other| other != id.value());
    }

    /// Late frames on `id` are dropped from now on.
    pub(crate) fn ignore(&mut self, id: StreamId) {
        self.mark_used(id);
        let id = id.value();
        if self.ignored.contains(&id) {
            return;
        }
        if self.ignored.len() == IGNORED {
            self.ignored.pop_front();
        }
        self.ignored.push_back(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_below_the_highest_stay_usable_for_a_carrier() {
        // SMIG-5.26/skipped-ids: an id that its owner skipped is not closed by a higher one.
        let mut ledger = Ledger::default();
        ledger.mark_used(StreamId::new(1));
        ledger.mark_used(StreamId::new(7));
        assert_eq!(ledger.standing(StreamId::new(3)), Standing::Skipped);
        assert_eq!(ledger.standing(StreamId::new(5)), Standing::Skipped);
        assert_eq!(ledger.standing(StreamId::new(1)), Standing::Closed);
        assert_eq!(ledger.standing(StreamId::new(9)), Standing::Fresh);
        ledger.mark_used(StreamId::new(5));
        assert_eq!(ledger.standing(StreamId::new(5)), Standing::Closed);
    }

    #[test]
    fn a_request_below_a_carrier_that_overtook_it_may_open_its_id() {
        let mut ledger = Ledger::default();
        ledger.mark_used(StreamId::new(5));
        assert!(ledger.may_open(StreamId::new(3)));
        ledger.mark_opened(StreamId::new(3));
        assert!(!ledger.may_open(StreamId::new(1)), "requests count up");
        assert!(!ledger.may_open(StreamId::new(5)), "a carrier has it");
        assert!(ledger.may_open(StreamId::new(7)));
    }

    #[test]
    fn memory_of_skipped_ids_is_bounded() {
        let mut ledger = Ledger::default();
        ledger.mark_used(StreamId::new(2));
        ledger.mark_used(StreamId::new(2_000_000));
        assert!(ledger.skipped.len() <= SKIPPED);
        assert_eq!(ledger.standing(StreamId::new(1_999_998)), Standing::Skipped);
        assert_eq!(ledger.standing(StreamId::new(4)), Standing::Closed);
    }

    #[test]
    fn own_ids_count_up_by_two_and_end() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.next(1), Some(StreamId::new(1)));
        assert_eq!(ledger.next(1), Some(StreamId::new(3)));
        ledger.highest = StreamId::MAX.value();
        assert_eq!(ledger.next(1), None);
    }
}
