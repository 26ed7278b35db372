//! What the path is known to carry.

use std::time::Duration;

use smig_proto::Instant;

/// The part of the path that bulk takes at most, whatever its congestion control would, where the path's rate is known and no
/// [`AloneProbe`](super::AloneProbe) runs.
pub(super) const FAIR_SHARE: f64 = 0.55;
/// How long the path's rate counts as known.
const MAX_AGE: Duration = Duration::from_secs(60);
/// A maximum is kept for ten to twenty seconds.
const HALF_WINDOW: Duration = Duration::from_secs(10);

/// What the path is known to carry, bytes per second: the highest rate while bulk was alone, or what sharing has
/// shown.
#[derive(Debug)]
pub(crate) struct AloneRate {
    highest: f64,
    current: f64,
    since: Instant,
    is_certain: bool,
}

impl AloneRate {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { highest: 0.0, current: 0.0, since: now, is_certain: false }
    }

    pub(crate) fn update(&mut self, now: Instant, rate: f64) {
        self.current = self.current.max(rate);
        self.highest = self.highest.max(self.current);
        self.is_certain = true;
        if now.saturating_duration_since(self.since) > HALF_WINDOW {
            *self = Self { highest: self.current, current: rate, since: now, is_certain: true };
        }
    }

    /// Replaces what is known by what sharing has shown.
    pub(crate) const fn reset(&mut self, now: Instant, rate: f64) {
        *self = Self { highest: rate, current: rate, since: now, is_certain: false };
    }

    /// What was known for certain may be wrong: next time, what sharing shows replaces it.
    pub(super) const fn doubt(&mut self) {
        self.is_certain = false;
    }

    /// Returns the highest rate; zero if none is known.
    pub(crate) const fn value(&self) -> f64 {
        self.highest
    }

    /// Returns whether bulk has had that rate by itself. What sharing has shown is a guess, or a share.
    pub(super) const fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Returns the part of it that bulk takes beside others, while it is not too old.
    pub(super) fn fair_share(&self, now: Instant) -> Option<f64> {
        let is_known = self.highest > 0.0 && now.saturating_duration_since(self.since) < MAX_AGE;
        is_known.then_some(self.highest * FAIR_SHARE)
    }
}
