//! The memory and file limits of all caches of one service together.
//!
//! Each thread has its own cache, so a hit needs no lock; this is the state that they share. It is
//! accessed only on insertion and eviction.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::options::FileOptions;

/// A cost or a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheCost {
    pub(crate) entries: usize,
    pub(crate) files: usize,
    pub(crate) bytes: usize,
}

impl CacheCost {
    fn fits(self, limit: Self) -> bool {
        self.entries <= limit.entries && self.files <= limit.files && self.bytes <= limit.bytes
    }
}

impl Add for CacheCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl Sub for CacheCost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(other.entries),
            files: self.files.saturating_sub(other.files),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The limits of a service and the current usage of its caches.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: CacheCost,
    entries: AtomicUsize,
    files: AtomicUsize,
    bytes: AtomicUsize,
    /// The number of caches. Each may use an equal share.
    cache_count: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(options: &FileOptions) -> Self {
        let limit = CacheCost {
            entries: options.cache_entries,
            files: options.cache_open_files.min(open_file_limit() / 4),
            bytes: options.cache_memory_bytes,
        };
        Self::with_limit(limit)
    }

    pub(crate) fn with_limit(limit: CacheCost) -> Self {
        Self {
            limit,
            entries: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            cache_count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn add_cache(&self) {
        self.cache_count.fetch_add(1, Relaxed);
    }

    pub(crate) fn remove_cache(&self, usage: CacheCost) {
        self.release(usage);
        self.cache_count.fetch_sub(1, Relaxed);
    }

    /// Returns whether a cache that would use `cost` stays within its share.
    pub(crate) fn allows(&self, cost: CacheCost) -> bool {
        let cache_count = self.cache_count.load(Relaxed).max(1);
        cost.fits(CacheCost {
            entries: self.limit.entries / cache_count,
            files: self.limit.files / cache_count,
            bytes: self.limit.bytes / cache_count,
        })
    }

    /// Reserves `cost` if all caches together stay within the limits. Concurrent threads can exceed
    /// them by one entry each.
    pub(crate) fn try_reserve(&self, cost: CacheCost) -> Reservation {
        if !(self.usage() + cost).fits(self.limit) {
            return Reservation::Refused;
        }
        self.entries.fetch_add(cost.entries, Relaxed);
        self.files.fetch_add(cost.files, Relaxed);
        self.bytes.fetch_add(cost.bytes, Relaxed);
        Reservation::Granted
    }

    pub(crate) fn release(&self, cost: CacheCost) {
        self.entries.fetch_sub(cost.entries, Relaxed);
        self.files.fetch_sub(cost.files, Relaxed);
        self.bytes.fetch_sub(cost.bytes, Relaxed);
    }

    pub(crate) fn usage(&self) -> CacheCost {
        CacheCost {
            entries: self.entries.load(Relaxed),
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reservation {
    Granted,
    Refused,
}

fn open_file_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_as_caches_are_added() {
        let limit = CacheCost { entries: 4, files: 2, bytes: 100 };
        let budget = Budget::with_limit(limit);
        budget.add_cache();
        assert!(budget.allows(limit));
        budget.add_cache();
        assert!(!budget.allows(limit));
        assert!(budget.allows(CacheCost { entries: 2, files: 1, bytes: 50 }));
        budget.remove_cache(CacheCost::default());
        assert!(budget.allows(limit));
    }

    #[test]
    fn the_sum_is_limited_in_each_dimension() {
        let budget = Budget::with_limit(CacheCost { entries: 4, files: 2, bytes: 100 });
        let big_cost = CacheCost { entries: 1, files: 0, bytes: 80 };
        assert_eq!(budget.try_reserve(big_cost), Reservation::Granted);
        assert_eq!(budget.try_reserve(big_cost), Reservation::Refused);
        let file_cost = CacheCost { entries: 1, files: 1, bytes: 5 };
        assert_eq!(budget.try_reserve(file_cost), Reservation::Granted);
        assert_eq!(budget.try_reserve(file_cost), Reservation::Granted);
        assert_eq!(budget.try_reserve(file_cost), Reservation::Refused);
        budget.release(file_cost);
        assert_eq!(budget.try_reserve(file_cost), Reservation::Granted);
        assert_eq!(budget.usage(), CacheCost { entries: 3, files: 2, bytes: 90 });
    }
}
