//! Requests whose responses are whole before they are, and whose rest nobody wants.
//!
//! RFC 9113 section 8.1: a server may answer before it has the whole request. Most servers then say by
//! RST_STREAM(NO_ERROR) that they want no more, and most bodies end at once: both have a moment. Then the stream
//! is reset, for it is held at the server by whoever rests; but not while the server may have had enough of
//! resets.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

/// How long the server, or the body, may end it in order.
const GRACE: Duration = Duration::from_secs(1);

/// Streams that are to be reset, in the order of their time.
#[derive(Debug)]
pub(super) struct Leftovers<K>(VecDeque<(Instant, K)>);

impl<K> Default for Leftovers<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Copy> Leftovers<K> {
    /// The stream's response is whole.
    pub(super) fn add(&mut self, now: Instant, key: K) {
        self.0.push_back((now + GRACE, key));
    }

    /// A stream whose time has come. Those that are not `open` any more are forgotten.
    pub(super) fn pop(&mut self, now: Instant, open: impl Fn(K) -> bool) -> Option<K> {
        while let Some(&(at, key)) = self.0.front() {
            let open = open(key);
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

    /// When the time of the first one comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.front().map(|&(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_in_order_holds_nobody_up() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut leftovers = Leftovers::default();
        for _ in 0..1_000 {
            leftovers.add(at(0), 1);
        }
        leftovers.add(at(0), 2);
        let open = |key| key == 2;
        assert_eq!(leftovers.pop(at(999), open), None);
        assert_eq!(leftovers.deadline(), Some(at(1_000)));
        assert_eq!(leftovers.pop(at(1_000), open), Some(2));
        assert_eq!(leftovers.deadline(), None);
    }
}
