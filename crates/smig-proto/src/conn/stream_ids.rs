//! Used stream IDs of one side of one connection (RFC 9113 section 5.1.1, SMIG-5.26/skipped-ids).
//!
//! Owns the highest used ID, and two bounded sets: skipped IDs (a MIGRATE that is still in flight
//! on another connection may name one as its carrier), and IDs whose late frames are ignored.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::ids::StreamId;
use crate::invariant::DebugExpect;

/// Maximum number of stored ranges of skipped IDs, each with at least one ID. Lower ranges count
/// as closed.
const MAX_SKIPPED_RANGES: usize = 256;
/// Maximum number of stored IDs whose late frames are ignored. Older ones count as closed.
const MAX_IGNORED_IDS: usize = 1024;

/// State of an ID that has no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdState {
    /// Idle, above every used ID.
    Idle,
    /// Idle, below a used ID.
    Skipped,
    /// Reset by this side or left by a migration: late frames are dropped.
    Ignored,
    /// Closed.
    Closed,
}

#[derive(Debug, Default)]
pub(crate) struct StreamIdSpace {
    highest_used: u32,
    /// Of the peer's IDs: the highest that a request or a promise opened; carriers do not count. 0 for this side's.
    highest_opened: u32,
    skipped_ranges: SkippedRanges,
    ignored_ids: RecentIds,
}

/// Skipped IDs: one range for each gap, whatever its length, in ascending order.
#[derive(Debug, Default)]
struct SkippedRanges {
    /// The first and the last ID of each range.
    ranges: VecDeque<(u32, u32)>,
}

impl SkippedRanges {
    /// Returns the index of the range that contains `id`.
    fn find(&self, id: u32) -> Option<usize> {
        let index = self.ranges.partition_point(|&(_, last)| last < id);
        self.ranges.get(index).is_some_and(|&(first, _)| first <= id).then_some(index)
    }

    fn contains(&self, id: u32) -> bool {
        self.find(id).is_some()
    }

    /// Appends a range above all others.
    fn push(&mut self, first: u32, last: u32) {
        self.ranges.push_back((first, last));
        self.evict_lowest();
    }

    /// Removes one ID, which may split a range in two.
    fn remove(&mut self, id: u32) {
        let Some(index) = self.find(id) else { return };
        let range = self.ranges.get_mut(index);
        let Some(range) = range.debug_expect("find returns an index of a range") else { return };
        let (first, last) = *range;
        match (first == id, last == id) {
            (true, true) => drop(self.ranges.remove(index)),
            (true, false) => range.0 = id + 2,
            (false, true) => range.1 = id - 2,
            (false, false) => {
                range.1 = id - 2;
                self.ranges.insert(index + 1, (id + 2, last));
                self.evict_lowest();
            }
        }
    }

    fn evict_lowest(&mut self) {
        if self.ranges.len() > MAX_SKIPPED_RANGES {
            self.ranges.pop_front();
        }
    }
}

/// The newest [`MAX_IGNORED_IDS`] IDs that were added, with a constant-time membership test.
#[derive(Debug, Default)]
struct RecentIds {
    ids: FxHashSet<u32>,
    /// The same IDs in the order of insertion.
    order: VecDeque<u32>,
}

impl RecentIds {
    fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    fn add(&mut self, id: u32) {
        if !self.ids.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_IGNORED_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    fn remove(&mut self, id: u32) {
        if self.ids.remove(&id) {
            self.order.retain(|&other| other != id);
        }
    }
}

impl StreamIdSpace {
    pub(crate) fn highest_used(&self) -> StreamId {
        StreamId::new(self.highest_used)
    }

    /// Returns the highest ID that a request or a promise opened.
    pub(crate) fn highest_opened(&self) -> StreamId {
        StreamId::new(self.highest_opened)
    }

    pub(crate) fn state(&self, id: StreamId) -> IdState {
        let id = id.value();
        if id > self.highest_used {
            IdState::Idle
        } else if self.ignored_ids.contains(id) {
            IdState::Ignored
        } else if self.skipped_ranges.contains(id) {
            IdState::Skipped
        } else {
            IdState::Closed
        }
    }

    /// Returns whether a request or a promise may open `id`. Requests and promises on one
    /// connection have ascending IDs, but a MIGRATE on another connection may already have named a
    /// higher ID as its carrier.
    pub(crate) fn may_open(&self, id: StreamId) -> bool {
        match self.state(id) {
            IdState::Idle => true,
            IdState::Skipped => id.value() > self.highest_opened,
            IdState::Ignored | IdState::Closed => false,
        }
    }

    /// Records that a request or a promise opened `id`.
    pub(crate) fn mark_opened(&mut self, id: StreamId) {
        self.mark_used(id);
        self.highest_opened = self.highest_opened.max(id.value());
    }

    /// Records that `id` was used.
    pub(crate) fn mark_used(&mut self, id: StreamId) {
        let id = id.value();
        if id <= self.highest_used {
            return self.skipped_ranges.remove(id);
        }
        let first = if self.highest_used == 0 { 2 - id % 2 } else { self.highest_used + 2 };
        // Only the highest IDs of a large gap matter: an endpoint has fewer migrations in flight.
        let lowest_stored = id.saturating_sub(2 * MAX_SKIPPED_RANGES as u32);
        let first = first.max(lowest_stored);
        if first < id {
            self.skipped_ranges.push(first, id - 2);
        }
        self.highest_used = id;
    }

    /// Allocates the next ID of this side; `first` is 1 for a client, 2 for a server. `None`:
    /// exhausted.
    pub(crate) fn allocate(&mut self, first: u32) -> Option<StreamId> {
        let next = if self.highest_used == 0 { first } else { self.highest_used.checked_add(2)? };
        if next > StreamId::MAX.value() {
            return None;
        }
        self.highest_used = next;
        Some(StreamId::new(next))
    }

    /// Stops ignoring `id`: the peer sent its last frame there, so no late frames can follow.
    pub(crate) fn stop_ignoring(&mut self, id: StreamId) {
        self.ignored_ids.remove(id.value());
    }

    /// Marks `id` so that late frames on it are dropped.
    pub(crate) fn ignore(&mut self, id: StreamId) {
        self.mark_used(id);
        self.ignored_ids.add(id.value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_ids_stay_usable_for_a_carrier() {
        // SMIG-5.26/skipped-ids: a higher ID does not close one that its owner skipped.
        let mut ids = StreamIdSpace::default();
        ids.mark_used(StreamId::new(1));
        ids.mark_used(StreamId::new(7));
        assert_eq!(ids.state(StreamId::new(3)), IdState::Skipped);
        assert_eq!(ids.state(StreamId::new(5)), IdState::Skipped);
        assert_eq!(ids.state(StreamId::new(1)), IdState::Closed);
        assert_eq!(ids.state(StreamId::new(9)), IdState::Idle);
        ids.mark_used(StreamId::new(5));
        assert_eq!(ids.state(StreamId::new(5)), IdState::Closed);
    }

    #[test]
    fn a_request_below_a_carrier_that_overtook_it_may_open_its_id() {
        let mut ids = StreamIdSpace::default();
        ids.mark_used(StreamId::new(5));
        assert!(ids.may_open(StreamId::new(3)));
        ids.mark_opened(StreamId::new(3));
        assert!(!ids.may_open(StreamId::new(1)), "request IDs ascend");
        assert!(!ids.may_open(StreamId::new(5)), "a carrier uses it");
        assert!(ids.may_open(StreamId::new(7)));
    }

    #[test]
    fn a_gap_costs_one_range_whatever_its_length() {
        // SMIG-5.26/skipped-ids: RST_STREAM on distant IDs of a joined connection opens and closes
        // carriers.
        let mut ids = StreamIdSpace::default();
        for jump in 1..=100 {
            ids.ignore(StreamId::new(jump * 100_000));
            assert_eq!(ids.skipped_ranges.ranges.len(), jump as usize);
        }
        assert_eq!(ids.state(StreamId::new(100_000)), IdState::Ignored);
        assert_eq!(ids.state(StreamId::new(99_998)), IdState::Skipped);
        assert_eq!(ids.state(StreamId::new(2)), IdState::Closed);
    }

    #[test]
    fn memory_of_skipped_ids_is_bounded() {
        let mut ids = StreamIdSpace::default();
        // Every other client ID, many more than there are ranges.
        for id in (1..4_000).step_by(4) {
            ids.mark_used(StreamId::new(id));
        }
        assert_eq!(ids.skipped_ranges.ranges.len(), MAX_SKIPPED_RANGES);
        assert_eq!(ids.state(StreamId::new(3_995)), IdState::Skipped);
        assert_eq!(ids.state(StreamId::new(3)), IdState::Closed);
        // One range per gap, split into half as many ranges as it has IDs.
        let mut ids = StreamIdSpace::default();
        for id in [1_001, 2_001, 3_001, 4_001] {
            ids.mark_used(StreamId::new(id));
        }
        for id in (3..4_000).step_by(4) {
            ids.mark_used(StreamId::new(id));
        }
        assert_eq!(ids.skipped_ranges.ranges.len(), MAX_SKIPPED_RANGES);
        assert_eq!(ids.state(StreamId::new(3_997)), IdState::Skipped);
        assert_eq!(ids.state(StreamId::new(3_999)), IdState::Closed);
    }

    #[test]
    fn memory_of_ignored_ids_is_bounded_and_keeps_the_newest() {
        let mut ids = StreamIdSpace::default();
        ids.mark_used(StreamId::new(9_999));
        for id in (1..6_001).step_by(2) {
            ids.ignore(StreamId::new(id));
        }
        assert_eq!(
            (ids.ignored_ids.ids.len(), ids.ignored_ids.order.len()),
            (MAX_IGNORED_IDS, MAX_IGNORED_IDS)
        );
        assert_eq!(ids.state(StreamId::new(5_999)), IdState::Ignored);
        assert_eq!(ids.state(StreamId::new(3_953)), IdState::Ignored);
        assert_eq!(ids.state(StreamId::new(3_951)), IdState::Closed);
        ids.stop_ignoring(StreamId::new(5_999));
        assert_eq!(ids.state(StreamId::new(5_999)), IdState::Closed);
    }

    #[test]
    fn ids_that_are_no_longer_ignored_evict_no_others() {
        // SMIG-5.27/abandoned-dropped: IDs that were added and removed since do not evict others.
        let mut ids = StreamIdSpace::default();
        let ignored_id = StreamId::new(1);
        ids.ignore(ignored_id);
        for id in (3..6_001).step_by(2) {
            ids.ignore(StreamId::new(id));
            ids.stop_ignoring(StreamId::new(id));
        }
        assert_eq!(ids.state(ignored_id), IdState::Ignored);
    }

    #[test]
    fn memory_of_abandoned_ids_is_bounded() {
        // SMIG-5.27/abandoned-dropped: the oldest counts as closed.
        let mut ids = StreamIdSpace::default();
        let abandoned_ids: Vec<StreamId> =
            (1..=MAX_IGNORED_IDS as u32 + 1).map(|n| StreamId::new(2 * n)).collect();
        abandoned_ids.iter().for_each(|&id| ids.ignore(id));
        assert_eq!(ids.state(abandoned_ids[0]), IdState::Closed);
        assert!(abandoned_ids[1..].iter().all(|&id| ids.state(id) == IdState::Ignored));
    }

    #[test]
    fn allocated_ids_ascend_by_two_until_exhausted() {
        let mut ids = StreamIdSpace::default();
        assert_eq!(ids.allocate(1), Some(StreamId::new(1)));
        assert_eq!(ids.allocate(1), Some(StreamId::new(3)));
        ids.highest_used = StreamId::MAX.value();
        assert_eq!(ids.allocate(1), None);
    }
}
