//! Warnings that clients can cause: one a second of each kind, with a count, so that nobody fills a disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use smig_proto::Instant;

const INTERVAL: Duration = Duration::from_secs(1);

/// What was said lately, by kind.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<FxHashMap<&'static str, Notice>>);

#[derive(Debug)]
struct Notice {
    said: Instant,
    /// How often it has happened since.
    unsaid: u64,
}

impl Notices {
    /// Something of this kind happened. `Some`: it is to be said, with how often it has happened since the last time.
    pub(super) fn due(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notice) = all.get_mut(kind) else {
            all.insert(kind, Notice { said: now, unsaid: 0 });
            return Some(1);
        };
        notice.unsaid += 1;
        if now.saturating_duration_since(notice.said) < INTERVAL {
            return None;
        }
        notice.said = now;
        Some(std::mem::take(&mut notice.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_said_once_a_second_with_a_count() {
        let notices = Notices::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert_eq!(notices.due("a", at(0)), Some(1));
        assert_eq!((1..1000).filter_map(|millis| notices.due("a", at(millis))).count(), 0);
        assert_eq!(notices.due("b", at(500)), Some(1));
        assert_eq!(notices.due("a", at(1000)), Some(1000));
        assert_eq!(notices.due("a", at(2000)), Some(1));
    }
}
