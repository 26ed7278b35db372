//! Requests that are still being sent although their responses are complete.
//!
//! RFC 9113 section 8.1: a server may answer before it has received the whole request. Most servers then send
//! RST_STREAM(NO_ERROR), and most bodies end soon; both get a grace period. Then the stream is reset, because an
//! open stream holds resources at the server. The reset is deferred while the server's limit of resets is near.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

/// Grace period in which the server, or the body, may end the stream cleanly.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Streams to be reset, ordered by deadline.
#[derive(Debug)]
pub(super) struct UnfinishedUploads<K>(VecDeque<(Instant, K)>);

impl<K> Default for UnfinishedUploads<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Copy> UnfinishedUploads<K> {
    /// Adds a stream whose response is complete.
    pub(super) fn add(&mut self, now: Instant, key: K) {
        self.0.push_back((now + GRACE_PERIOD, key));
    }

    /// Returns a stream whose grace period has expired. Streams that have closed are dropped.
    pub(super) fn pop(&mut self, now: Instant, is_open: impl Fn(K) -> bool) -> Option<K> {
        while let Some(&(at, key)) = self.0.front() {
            let open = is_open(key);
            if open && now < at {
                return None;
            }
            self.0.pop_front();
            if open {
                return Some(key);
            }
        }
        None
    }

    /// Returns the first deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_have_closed_are_dropped() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut unfinished = UnfinishedUploads::default();
        for _ in 0..1_000 {
            unfinished.add(at(0), 1);
        }
        unfinished.add(at(0), 2);
        let is_open = |key| key == 2;
        assert_eq!(unfinished.pop(at(999), is_open), None);
        assert_eq!(unfinished.deadline(), Some(at(1_000)));
        assert_eq!(unfinished.pop(at(1_000), is_open), Some(2));
        assert_eq!(unfinished.deadline(), None);
    }
}
