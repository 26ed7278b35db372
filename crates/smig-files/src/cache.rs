//! A thread's cache of paths.
//!
//! Owns expiry and eviction. Bounded by its share of the [`Budget`]; eviction is the clock approximation
//! of LRU: the first entry without a lookup since the hand's last pass is evicted. Only paths that
//! lead to a file are cached, also those of directories with an index file: requests for nonexistent files cannot displace
//! existing ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::{Budget, CacheCost, Reservation};
use crate::resource::Resource;

/// The cache of one thread.
#[derive(Debug)]
pub(crate) struct Cache {
    index: HashMap<Arc<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
    ttl: Duration,
    usage: CacheCost,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Slot {
    key: Arc<[u8]>,
    resource: Arc<Resource>,
    /// The time of its last comparison with the file system.
    checked_at: Instant,
    /// Reference bit: whether it was looked up since the hand's last pass.
    is_referenced: bool,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    Fresh(&'a Resource),
    /// It must be compared with the file system before use.
    Stale(&'a Arc<Resource>),
    /// The path is not cached.
    Unknown,
}

impl Cache {
    pub(crate) fn new(budget: Arc<Budget>, ttl: Duration) -> Self {
        budget.add_cache();
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            hand: 0,
            ttl,
            usage: CacheCost::default(),
            budget,
        }
    }

    pub(crate) fn lookup(&mut self, key: &[u8], now: Instant) -> Lookup<'_> {
        let slot = self.index.get(key).and_then(|index| self.slots.get_mut(*index));
        let Some(slot) = slot else { return Lookup::Unknown };
        slot.is_referenced = true;
        if now.saturating_duration_since(slot.checked_at) < self.ttl {
            Lookup::Fresh(&slot.resource)
        } else {
            Lookup::Stale(&slot.resource)
        }
    }

    /// Replaces a path's entry. The new resource is cached only if there is room for it.
    pub(crate) fn insert(&mut self, key: &[u8], resource: Arc<Resource>, checked_at: Instant) {
        // Keep the old entry's reference bit; replace the rest.
        let is_referenced = self.remove_path(key);
        let cost = resource.cost();
        if !self.budget.allows(cost) {
            return;
        }
        while !self.budget.allows(self.usage + cost) {
            if !self.evict() {
                return;
            }
        }
        while self.budget.try_reserve(cost) == Reservation::Refused {
            if !self.evict() {
                return;
            }
        }
        self.usage = self.usage + cost;
        let key: Arc<[u8]> = key.into();
        self.index.insert(Arc::clone(&key), self.slots.len());
        self.slots.push(Slot { key, resource, checked_at, is_referenced });
    }

    /// Removes a path. Returns whether it was looked up recently.
    pub(crate) fn remove_path(&mut self, key: &[u8]) -> bool {
        self.index.get(key).copied().is_some_and(|index| self.remove_slot(index))
    }

    /// Removes all entries that hold an open file: these descriptors can be released when the
    /// process has run out of them.
    pub(crate) fn close_files(&mut self) {
        let mut index = 0;
        while let Some(slot) = self.slots.get(index) {
            if slot.resource.cost().files > 0 {
                self.remove_slot(index);
            } else {
                index += 1;
            }
        }
    }

    /// Evicts one entry; returns false if there is none.
    fn evict(&mut self) -> bool {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let Some(slot) = self.slots.get_mut(self.hand) else { return false };
            if !std::mem::take(&mut slot.is_referenced) {
                self.remove_slot(self.hand);
                return true;
            }
            self.hand += 1;
        }
    }

    fn remove_slot(&mut self, index: usize) -> bool {
        let slot = self.slots.swap_remove(index);
        self.index.remove(&slot.key);
        if let Some(swapped) = self.slots.get(index) {
            self.index.insert(Arc::clone(&swapped.key), index);
        }
        let cost = slot.resource.cost();
        self.usage = self.usage - cost;
        self.budget.release(cost);
        slot.is_referenced
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.budget.remove_cache(self.usage);
    }
}
