//! Origins that users ask, and for how long they are remembered.
//!
//! Each user has origins of their own, and with them connections and limits: nobody takes another's, by
//! however many origins or however slow ones. What nobody asks for is looked for once a second at most, and
//! only among the origins of who asks just now, or of who has not asked for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::dial::Target;
use super::failure::Failure;
use crate::upstream::Upstream;

/// How long an origin is remembered that nobody asks for; its unused connections are kept as long.
pub(super) const KEPT: Duration = Duration::from_secs(30);

/// Origins of one user: those with requests under way, and those that are remembered. For one more the half
/// of the unused ones is forgotten that was not asked for longest.
pub(super) const MAX_ORIGINS: usize = 1024;

/// How often those of a user are looked through who asks.
const TIDY: Duration = Duration::from_secs(1);

/// How often they are where nearly all are in use, so that there is little to be forgotten.
const CROWDED: Duration = Duration::from_millis(100);

/// What an origin is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Http1,
    H2c,
}

pub(super) type Key = (Target, Protocol);

/// Origins by user.
#[derive(Debug, Default)]
pub(super) struct Origins {
    by_user: HashMap<String, OfUser>,
    tidied: Option<Instant>,
}

/// One user's.
#[derive(Debug)]
struct OfUser {
    by_key: HashMap<Key, Origin>,
    tidied: Instant,
    /// Nearly all were in use: until then they are all that there may be.
    crowded_until: Instant,
}

#[derive(Debug)]
struct Origin {
    upstream: Arc<Upstream>,
    used: Instant,
}

impl Origin {
    fn is_in_use(&self) -> bool {
        self.upstream.load() > 0
    }
}

impl Origins {
    /// The user's origin, or a new one.
    ///
    /// # Errors
    /// It cannot be made, or the user has as many in use as may be.
    pub(super) fn find(
        &mut self,
        user: &str,
        key: Key,
        make: impl FnOnce(&Key) -> Result<Arc<Upstream>, Failure>,
    ) -> Result<Arc<Upstream>, Failure> {
        let now = Instant::now();
        self.tidy(now);
        let theirs = match self.by_user.get_mut(user) {
            Some(theirs) => theirs,
            None => self.by_user.entry(user.to_owned()).or_insert_with(|| OfUser::new(now)),
        };
        let known = theirs.by_key.get_mut(&key).map(|origin| {
            origin.used = now;
            Arc::clone(&origin.upstream)
        });
        theirs.tidy(now, TIDY);
        if let Some(upstream) = known {
            return Ok(upstream);
        }
        if !theirs.make_room(now) {
            return Err(Failure::too_many_origins(MAX_ORIGINS));
        }
        let upstream = make(&key)?;
        theirs.by_key.insert(key, Origin { upstream: Arc::clone(&upstream), used: now });
        Ok(upstream)
    }

    /// Forgets what is left of users who ask no more.
    fn tidy(&mut self, now: Instant) {
        if self.tidied.is_some_and(|tidied| now < tidied + TIDY) {
            return;
        }
        self.tidied = Some(now);
        self.by_user.retain(|_, theirs| {
            // Whoever asks has had a look at theirs within a second before.
            theirs.tidy(now, KEPT + TIDY);
            !theirs.by_key.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_user.values().map(|theirs| theirs.by_key.len()).sum()
    }
}

impl OfUser {
    fn new(now: Instant) -> Self {
        Self { by_key: HashMap::new(), tidied: now, crowded_until: now }
    }

    /// Forgets what nobody has asked for, if that was not done for `pause`.
    fn tidy(&mut self, now: Instant, pause: Duration) {
        if now < self.tidied + pause {
            return;
        }
        self.tidied = now;
        self.by_key.retain(|_, origin| {
            if origin.is_in_use() {
                origin.used = now;
            }
            now < origin.used + KEPT
        });
    }

    /// Whether one more may be. All are looked through once for an eighth of the limit, or ten times a
    /// second, however many are asked for.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.by_key.len() < MAX_ORIGINS {
            return true;
        }
        if now < self.crowded_until {
            return false;
        }
        let unused = self.by_key.iter().filter(|(_, origin)| !origin.is_in_use());
        let mut unused: Vec<_> = unused.map(|(key, origin)| (origin.used, key.clone())).collect();
        let half = unused.len().div_ceil(2);
        if half < unused.len() {
            unused.select_nth_unstable_by_key(half, |(used, _)| *used);
        }
        for (_, key) in unused.drain(..half) {
            self.by_key.remove(&key);
        }
        if half < MAX_ORIGINS / 8 {
            self.crowded_until = now + CROWDED;
        }
        half > 0
    }
}
