//! Origins that users send requests to, and how long they are cached.
//!
//! Each user has separate origins, with separate connections and limits: many or slow origins of one user do not
//! affect another. A scan for unused origins runs at most once per second, and covers only the user whose request is
//! being served and users without recent requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::dial::HostPort;
use super::failure::ForwardError;
use crate::upstream::Upstream;

/// How long an unused origin is cached, and how long its idle connections remain open.
pub(super) const UNUSED_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of origins per user, in use or cached. When it is reached, the least recently used half of the
/// unused ones is evicted.
pub(super) const MAX_ORIGINS_PER_USER: usize = 1024;

/// Minimum interval between scans of a user's origins.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between evictions if nearly all origins are in use, so that little can be evicted.
const MIN_CROWDED_EVICTION_INTERVAL: Duration = Duration::from_millis(100);

/// The protocol of requests to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OriginProtocol {
    Http1,
    H2c,
}

pub(super) type OriginKey = (HostPort, OriginProtocol);

/// Origins by user.
#[derive(Debug, Default)]
pub(super) struct Origins {
    by_user: HashMap<String, UserOrigins>,
    scanned_at: Option<Instant>,
}

/// The origins of one user.
#[derive(Debug)]
struct UserOrigins {
    by_key: HashMap<OriginKey, OriginEntry>,
    scanned_at: Instant,
    /// No further eviction before this time: at the last one, nearly all origins were in use.
    crowded_until: Instant,
}

#[derive(Debug)]
struct OriginEntry {
    upstream: Arc<Upstream>,
    last_used_at: Instant,
}

impl OriginEntry {
    fn is_in_use(&self) -> bool {
        self.upstream.load() > 0
    }
}

impl Origins {
    /// Returns the user's origin, creating it if necessary.
    ///
    /// # Errors
    /// The origin cannot be created, or too many of the user's origins are in use.
    pub(super) fn find_or_create(
        &mut self,
        user: &str,
        key: OriginKey,
        make: impl FnOnce(&OriginKey) -> Result<Arc<Upstream>, ForwardError>,
    ) -> Result<Arc<Upstream>, ForwardError> {
        let now = Instant::now();
        self.evict_users(now);
        let origins = match self.by_user.get_mut(user) {
            Some(origins) => origins,
            None => self.by_user.entry(user.to_owned()).or_insert_with(|| UserOrigins::new(now)),
        };
        let existing = origins.by_key.get_mut(&key).map(|origin| {
            origin.last_used_at = now;
            Arc::clone(&origin.upstream)
        });
        origins.evict_unused(now, MIN_SCAN_INTERVAL);
        if let Some(upstream) = existing {
            return Ok(upstream);
        }
        if !origins.make_room(now) {
            return Err(ForwardError::too_many_origins(MAX_ORIGINS_PER_USER));
        }
        let upstream = make(&key)?;
        origins
            .by_key
            .insert(key, OriginEntry { upstream: Arc::clone(&upstream), last_used_at: now });
        Ok(upstream)
    }

    /// Evicts the origins of users without recent requests.
    fn evict_users(&mut self, now: Instant) {
        if self.scanned_at.is_some_and(|at| now < at + MIN_SCAN_INTERVAL) {
            return;
        }
        self.scanned_at = Some(now);
        self.by_user.retain(|_, origins| {
            // A user's own requests scan that user's origins more often: this is for users without recent ones.
            origins.evict_unused(now, UNUSED_TIMEOUT + MIN_SCAN_INTERVAL);
            !origins.by_key.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_user.values().map(|origins| origins.by_key.len()).sum()
    }
}

impl UserOrigins {
    fn new(now: Instant) -> Self {
        Self { by_key: HashMap::new(), scanned_at: now, crowded_until: now }
    }

    /// Evicts origins that were unused for [`UNUSED_TIMEOUT`], unless the last scan was less than
    /// `min_interval` ago.
    fn evict_unused(&mut self, now: Instant, min_interval: Duration) {
        if now < self.scanned_at + min_interval {
            return;
        }
        self.scanned_at = now;
        self.by_key.retain(|_, origin| {
            if origin.is_in_use() {
                origin.last_used_at = now;
            }
            now < origin.last_used_at + UNUSED_TIMEOUT
        });
    }

    /// Makes room for one more origin; returns whether there is any. However many are requested, evictions that free
    /// less than an eighth of the limit run at most ten times per second.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.by_key.len() < MAX_ORIGINS_PER_USER {
            return true;
        }
        if now < self.crowded_until {
            return false;
        }
        let unused = self.by_key.iter().filter(|(_, origin)| !origin.is_in_use());
        let mut unused: Vec<_> =
            unused.map(|(key, origin)| (origin.last_used_at, key.clone())).collect();
        let eviction_count = unused.len().div_ceil(2);
        if eviction_count < unused.len() {
            unused.select_nth_unstable_by_key(eviction_count, |(used, _)| *used);
        }
        for (_, key) in unused.drain(..eviction_count) {
            self.by_key.remove(&key);
        }
        if eviction_count < MAX_ORIGINS_PER_USER / 8 {
            self.crowded_until = now + MIN_CROWDED_EVICTION_INTERVAL;
        }
        eviction_count > 0
    }
}
