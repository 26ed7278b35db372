//! Time and rate.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on a monotonic clock: nanoseconds since an origin that the caller
/// chooses (`CLOCK_MONOTONIC` under real TCP, zero in virtual time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The point this many nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        let nanos = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// Bits of IP packets per second; link-layer framing is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    /// A rate in bits per second; 0 is read as 1.
    #[must_use]
    pub const fn bits_per_second(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// A rate in units of 1,000 bits per second.
    #[must_use]
    pub const fn kbit(kbit: u64) -> Self {
        Self::bits_per_second(kbit.saturating_mul(1_000))
    }

    /// A rate in units of 1,000,000 bits per second.
    #[must_use]
    pub const fn mbit(mbit: u64) -> Self {
        Self::bits_per_second(mbit.saturating_mul(1_000_000))
    }

    /// Bits per second.
    #[must_use]
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }

    /// Megabits (1,000,000) per second.
    #[must_use]
    pub fn as_mbit(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1_000_000 {
            write!(f, "{} Mbit/s", self.as_mbit())
        } else {
            write!(f, "{} kbit/s", self.as_mbit() * 1e3)
        }
    }
}
