//! Requests whose responses are whole before they are, and whose rest nobody wants.
//!
//! RFC 9113 section 8.1: a server may answer before it has the whole request. Most servers then say by
//! RST_STREAM(NO_ERROR) that they want no more, and most bodies end at once: both have a moment. Then the stream
//! is reset, for it is held at the server by whoever rests. But servers count the streams that a connection
//! resets, and end it when they are many (CVE-2023-44487), together with all that others have on it. So only
//! so many are reset in a time, and what is left waits.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

use super::allowance::Allowance;

/// How long the server, or the body, may end it in order.
const GRACE: Duration = Duration::from_secs(1);
/// Streams that are reset at once. Servers allow 200 (our own) to 1000 (nghttp2).
const BURST: u32 = 100;

/// Streams that are to be reset, in the order of their time.
#[derive(Debug)]
pub(super) struct Leftovers<K> {
    waiting: VecDeque<(Instant, K)>,
    resets: Allowance<BURST>,
}

impl<K> Default for Leftovers<K> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), resets: Allowance::default() }
    }
}

impl<K: Copy> Leftovers<K> {
    /// The stream's response is whole.
    pub(super) fn add(&mut self, now: Instant, key: K) {
        self.waiting.push_back((now + GRACE, key));
    }

    /// A stream that is to be reset now. Those that are not `open` any more cost nothing.
    pub(super) fn pop(&mut self, now: Instant, open: impl Fn(K) -> bool) -> Option<K> {
        while let Some(&(at, key)) = self.waiting.front() {
            let open = open(key);
            if open && now < at.max(self.resets.next()) {
                return None;
            }
            self.waiting.pop_front();
            if open {
                self.resets.pay(now);
                return Some(key);
            }
        }
        None
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|&(at, _)| at.max(self.resets.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// How many are reset then.
    fn reset(leftovers: &mut Leftovers<u32>, now: Instant) -> u32 {
        let mut count = 0;
        while leftovers.pop(now, |_| true).is_some() {
            count += 1;
        }
        count
    }

    #[test]
    fn a_burst_is_reset_and_then_so_many_a_second() {
        let start = 1_000_000;
        let mut leftovers = Leftovers::default();
        assert_eq!(leftovers.deadline(), None);
        for _ in 0..1_000 {
            leftovers.add(at(start), 1);
        }
        assert_eq!(reset(&mut leftovers, at(start + 999)), 0);
        assert_eq!(leftovers.deadline(), Some(at(start + 1_000)));
        assert_eq!(reset(&mut leftovers, at(start + 1_000)), 100);
        assert_eq!(leftovers.deadline(), Some(at(start + 1_050)));
        assert_eq!(reset(&mut leftovers, at(start + 1_049)), 0);
        assert_eq!(reset(&mut leftovers, at(start + 1_050)), 1);
        assert_eq!(reset(&mut leftovers, at(start + 3_050)), 40);
        // No more is saved up than the burst.
        assert_eq!(reset(&mut leftovers, at(start + 1_000_000)), 100);
    }

    #[test]
    fn what_ended_in_order_costs_nothing_and_holds_nobody_up() {
        let mut leftovers = Leftovers::default();
        for _ in 0..1_000 {
            leftovers.add(at(0), 1);
        }
        leftovers.add(at(0), 2);
        let open = |key| key == 2;
        assert_eq!(leftovers.pop(at(999), open), None);
        assert_eq!(leftovers.pop(at(1_000), open), Some(2));
        assert_eq!(leftovers.deadline(), None);
    }
}
