//! A thread's cache of paths.
//!
//! Owns expiry and eviction. Bounded by its share of the [`Budget`]; eviction is the clock approximation
//! of LRU: the first entry without a lookup since the hand's last pass is evicted. Only paths that
//! name a file are cached: requests for nonexistent files cannot displace existing ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::{Budget, CacheCost, Taken};
use crate::resource::Resource;

/// The cache of one thread.
#[derive(Debug)]
pub(crate) struct Cache {
    index: HashMap<Arc<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
    validity: Duration,
    used: CacheCost,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Slot {
    key: Arc<[u8]>,
    resource: Arc<Resource>,
    /// When it was last compared with the file system.
    seen: Instant,
    /// Reference bit: whether it was looked up since the hand's last pass.
    asked: bool,
}

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    Fresh(&'a Resource),
    /// It must be compared with the file system before use.
    Stale(&'a Arc<Resource>),
    Unknown,
}

impl Cache {
    pub(crate) fn new(budget: Arc<Budget>, validity: Duration) -> Self {
        budget.join();
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            hand: 0,
            validity,
            used: CacheCost::default(),
            budget,
        }
    }

    pub(crate) fn lookup(&mut self, key: &[u8], now: Instant) -> Lookup<'_> {
        let slot = self.index.get(key).and_then(|place| self.slots.get_mut(*place));
        let Some(slot) = slot else { return Lookup::Unknown };
        slot.asked = true;
        if now.saturating_duration_since(slot.seen) < self.validity {
            Lookup::Fresh(&slot.resource)
        } else {
            Lookup::Stale(&slot.resource)
        }
    }

    /// Replaces a path's entry. The new resource is cached only if there is room for it.
    pub(crate) fn insert(&mut self, key: &[u8], resource: Arc<Resource>, seen: Instant) {
        // Keep the old entry's reference bit; replace the rest.
        let asked = self.forget(key);
        let weight = resource.weight();
        if !self.budget.allows(weight) {
            return;
        }
        while !self.budget.allows(self.used + weight) {
            if !self.evict() {
                return;
            }
        }
        while self.budget.take(weight) == Taken::No {
            if !self.evict() {
                return;
            }
        }
        self.used = self.used + weight;
        let key: Arc<[u8]> = key.into();
        self.index.insert(Arc::clone(&key), self.slots.len());
        self.slots.push(Slot { key, resource, seen, asked });
    }

    /// Removes a path. Returns whether it was looked up recently.
    pub(crate) fn forget(&mut self, key: &[u8]) -> bool {
        self.index.get(key).copied().is_some_and(|place| self.remove(place))
    }

    /// Removes all entries that hold an open file: these descriptors can be released when the
    /// process has run out of them.
    pub(crate) fn close_files(&mut self) {
        let mut place = 0;
        while let Some(slot) = self.slots.get(place) {
            if slot.resource.weight().files > 0 {
                self.remove(place);
            } else {
                place += 1;
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
            if !std::mem::take(&mut slot.asked) {
                self.remove(self.hand);
                return true;
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, place: usize) -> bool {
        let slot = self.slots.swap_remove(place);
        self.index.remove(&slot.key);
        if let Some(moved) = self.slots.get(place) {
            self.index.insert(Arc::clone(&moved.key), place);
        }
        let weight = slot.resource.weight();
        self.used = self.used - weight;
        self.budget.release(weight);
        slot.asked
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.budget.leave(self.used);
    }
}
