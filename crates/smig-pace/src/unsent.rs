//! How much unsent data a connection's socket may hold (TCP_NOTSENT_LOWAT): what is there can no longer be reordered.
//!
//! No I/O: the owner sets the option, after each measurement.

use super::bounds::Bounds;

/// What the path carries in this time at the delivery rate, in milliseconds.
const UNSENT_MS: u64 = 4;
/// The same where only bulk is sent, and it is not bounded: it must not run dry while this process waits for a CPU.
const BULK_UNSENT_MS: u64 = 24;
/// The least while bulk is released piece by piece: hardly anything waits in the socket then, and what does should be
/// short if congestion control allows less.
const MIN_RELEASE_BYTES: u32 = 4 << 10;
const MAX_BYTES: u32 = 1 << 20;
/// Where bulk is written ahead, the limit follows growth by this part of it.
const AHEAD_STEP_DIVISOR: u32 = 16;
/// The bounds decide what is written ahead, and the path's rate is measured from what was sent meanwhile: a socket that takes
/// just that lets neither grow.
const AHEAD_FACTOR: u64 = 2;

/// The limit of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnsentLimit {
    /// Bytes for the connection's role, and now. Zero is the system's default, which stays.
    usual: u32,
    current: u32,
}

impl UnsentLimit {
    /// Creates the limit of a connection's role, in bytes; zero leaves the system's default.
    #[must_use]
    pub const fn new(usual: u32) -> Self {
        Self { usual, current: usual }
    }

    /// Returns the limit in bytes; zero is the system's default.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.current
    }

    /// Records a delivery rate in bytes per second, of a connection that bulk has for itself or shares, and bulk's bounds
    /// if it has any. Returns the new limit in bytes, if it changes: it follows changes of the rate, not its noise. Where
    /// bulk is written ahead it follows growth beyond a sixteenth, and falls only if less than half is needed.
    pub fn update(
        &mut self,
        delivery_rate: u64,
        is_for_bulk: bool,
        bounds: Option<Bounds>,
    ) -> Option<u32> {
        if self.usual == 0 {
            return None;
        }
        let (least, ahead) = match bounds {
            Some(bounds) => (self.usual.min(MIN_RELEASE_BYTES), bounds.write_ahead),
            None => (self.usual, 0),
        };
        let is_unbounded_bulk = is_for_bulk && bounds.is_none();
        let millis = if is_unbounded_bulk { BULK_UNSENT_MS } else { UNSENT_MS };
        let ahead = ahead.saturating_mul(AHEAD_FACTOR);
        let bytes = (delivery_rate / 1000).saturating_mul(millis).saturating_add(ahead);
        let target = u32::try_from(bytes).unwrap_or(u32::MAX);
        let target = target.clamp(least, MAX_BYTES.max(self.usual));
        let current = self.current;
        // What is written ahead grows in small steps (see AHEAD_FACTOR): a limit that waited for a target of twice its
        // size would never be raised.
        let highest = match ahead {
            0 => current.saturating_mul(2),
            _ => current.saturating_add(current / AHEAD_STEP_DIVISOR),
        };
        let changes = target > highest || target < current / 2;
        changes.then(|| self.set(target))
    }

    /// Returns whether the limit is lower than that of the role.
    #[must_use]
    pub const fn is_lowered(self) -> bool {
        self.current < self.usual
    }

    /// Returns to the limit of the role. Returns it, in bytes, unless it is the system's default.
    pub fn reset(&mut self) -> Option<u32> {
        let usual = self.usual;
        (usual > 0).then(|| self.set(usual))
    }

    const fn set(&mut self, bytes: u32) -> u32 {
        self.current = bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_250_000;

    fn bounds(write_ahead: u64) -> Option<Bounds> {
        Some(Bounds { rate: RATE, write_ahead, ..Bounds::NONE })
    }

    #[test]
    fn the_limit_follows_changes_of_the_rate_and_not_its_noise() {
        let mut limit = UnsentLimit::new(16 << 10);
        assert_eq!(limit.update(RATE, false, None), None, "4 ms are less than the role's");
        assert_eq!(limit.update(RATE, true, None), None, "not yet twice as much");
        assert_eq!(limit.update(10 * RATE, false, None), Some(50_000));
        assert_eq!(limit.update(19 * RATE, false, None), None);
        assert_eq!(limit.update(6 * RATE, false, None), None);
        assert_eq!(limit.update(1000 * RATE, false, None), Some(MAX_BYTES));
        assert_eq!(limit.reset(), Some(16 << 10));
        assert_eq!(limit.update(RATE / 10, false, bounds(0)), Some(MIN_RELEASE_BYTES));
        assert_eq!(limit.bytes(), MIN_RELEASE_BYTES);
    }

    #[test]
    fn the_system_default_stays() {
        let mut limit = UnsentLimit::default();
        assert_eq!(limit.update(1000 * RATE, true, bounds(100_000)), None);
        assert_eq!((limit.reset(), limit.bytes()), (None, 0));
    }

    #[test]
    fn what_is_written_ahead_is_admitted_when_it_grows() {
        let mut limit = UnsentLimit::new(16 << 10);
        assert_eq!(limit.update(RATE, false, bounds(60_000)), Some(125_000));
        assert_eq!(limit.update(RATE, false, bounds(62_000)), None);
        let raised = limit.update(RATE, false, bounds(80_000));
        assert_eq!(raised, Some(165_000), "not only twice as much");
        assert_eq!(limit.update(RATE, false, bounds(60_000)), None);
    }
}
