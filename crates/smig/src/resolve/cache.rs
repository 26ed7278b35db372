//! A bounded cache of resolved names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::Instant;

/// Maximum number of names in the cache.
pub(super) const MAX_CACHED_NAMES: usize = 4096;

/// A cached answer.
#[derive(Clone)]
pub(super) struct CachedAnswer {
    /// When the lookup was requested.
    pub(super) requested_at: Instant,
    pub(super) addresses: Arc<[IpAddr]>,
}

/// Answers by name. Clients may choose the names, so the map's hash is keyed against collisions.
#[derive(Default)]
pub(super) struct AddressCache(HashMap<Arc<str>, CachedAnswer>);

impl AddressCache {
    /// Returns the answer for a name. Evicts nothing.
    pub(super) fn get(&self, host: &str) -> Option<&CachedAnswer> {
        self.0.get(host)
    }

    /// Caches an answer. A full cache evicts its older half, an amortized cost of two entries per new name. An answer
    /// to a later lookup is kept: clients that share a resolver may look up the same name concurrently.
    pub(super) fn insert(&mut self, host: Arc<str>, answer: CachedAnswer) {
        if self.0.get(&host).is_some_and(|cached| cached.requested_at > answer.requested_at) {
            return;
        }
        if self.0.len() >= MAX_CACHED_NAMES && !self.0.contains_key(&host) {
            let mut entries: Vec<_> = self
                .0
                .iter()
                .map(|(host, answer)| (answer.requested_at, Arc::clone(host)))
                .collect();
            let (older, ..) =
                entries.select_nth_unstable_by_key(MAX_CACHED_NAMES / 2, |(since, _)| *since);
            for (_, host) in older {
                self.0.remove(host);
            }
        }
        self.0.insert(host, answer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_to_an_earlier_lookup_does_not_replace_a_later_one() {
        let (begin, mut cache) = (Instant::now(), AddressCache::default());
        let answer = |seconds, last| CachedAnswer {
            requested_at: begin + Duration::from_secs(seconds),
            addresses: Arc::from([IpAddr::from([192, 0, 2, last])]),
        };
        cache.insert("a".into(), answer(1, 1));
        cache.insert("a".into(), answer(0, 2));
        assert_eq!(*cache.get("a").unwrap().addresses, [IpAddr::from([192, 0, 2, 1])]);
        cache.insert("a".into(), answer(2, 3));
        assert_eq!(*cache.get("a").unwrap().addresses, [IpAddr::from([192, 0, 2, 3])]);
    }

    #[test]
    fn only_new_names_evict_and_one_eviction_serves_many() {
        let (begin, mut cache) = (Instant::now(), AddressCache::default());
        let mut evictions = 0;
        for n in 0..MAX_CACHED_NAMES * 4 {
            let since = begin + Duration::from_millis(u64::try_from(n).unwrap());
            let before = cache.0.len();
            cache.insert(
                n.to_string().into(),
                CachedAnswer { requested_at: since, addresses: Arc::from([]) },
            );
            evictions += usize::from(cache.0.len() <= before);
            assert!(cache.0.len() <= MAX_CACHED_NAMES, "{n}");
            // The newer half is present; this reference cannot modify the cache.
            let unchanged: &AddressCache = &cache;
            assert!(
                unchanged.get(&n.saturating_sub(MAX_CACHED_NAMES / 2 - 1).to_string()).is_some()
            );
        }
        assert_eq!(evictions, 6, "each time half of them are new");
        let len_before = cache.0.len();
        let newest = (MAX_CACHED_NAMES * 4 - 1).to_string();
        cache.insert(newest.into(), CachedAnswer { requested_at: begin, addresses: Arc::from([]) });
        assert_eq!(cache.0.len(), len_before);
    }
}
