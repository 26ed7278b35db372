//! Time and rate.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point on a monotonic clock: nanoseconds since an origin that the caller
/// chooses (`CLOCK_MONOTONIC` under real TCP, zero in virtual time).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// Returns the point this many nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
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
///
/// In files: `"10 Mbit/s"`, `"780 kbit/s"`, `"1 Gbit/s"`, or a whole number of
/// bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

/// A string that is not a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate; write it like \"10 Mbit/s\", \"780 kbit/s\" or \"1 Gbit/s\"")]
pub struct RateError(String);

impl Rate {
    /// Creates a rate in bits per second; 0 becomes 1.
    #[must_use]
    pub const fn bits_per_second(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// Creates a rate in units of 1,000 bits per second.
    #[must_use]
    pub const fn kbit(kbit: u64) -> Self {
        Self::bits_per_second(kbit.saturating_mul(1_000))
    }

    /// Creates a rate in units of 1,000,000 bits per second.
    #[must_use]
    pub const fn mbit(mbit: u64) -> Self {
        Self::bits_per_second(mbit.saturating_mul(1_000_000))
    }

    /// Returns the bits per second.
    #[must_use]
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns the megabits (1,000,000 bits) per second.
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
            write!(f, "{} kbit/s", self.0 as f64 / 1e3)
        }
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let error = || RateError(text.to_owned());
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, unit) = text.split_at(end);
        let number: f64 = number.parse().map_err(|_| error())?;
        let factor = match unit.trim() {
            "bit/s" => 1.0,
            "kbit/s" => 1e3,
            "Mbit/s" => 1e6,
            "Gbit/s" => 1e9,
            _ => return Err(error()),
        };
        let bits = (number * factor).round();
        // The maximum is far above any link's rate, and still exact as a float.
        if (1.0..=1e15).contains(&bits) { Ok(Self(bits as u64)) } else { Err(error()) }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate like \"10 Mbit/s\" or a number of bits per second")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, bits: u64) -> Result<Rate, E> {
        match bits {
            0 => Err(E::invalid_value(Unexpected::Unsigned(0), &self)),
            bits => Ok(Rate(bits)),
        }
    }

    fn visit_i64<E: Error>(self, bits: i64) -> Result<Rate, E> {
        match u64::try_from(bits) {
            Ok(bits) => self.visit_u64(bits),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(bits), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_round_trips_through_text() {
        for bits in [1, 999, 780_000, 1_638_400, 7_777_777, 1_000_000_000] {
            let rate = Rate::bits_per_second(bits);
            assert_eq!(rate.to_string().parse(), Ok(rate), "{rate}");
        }
        assert_eq!("1Gbit/s".parse(), Ok(Rate::mbit(1_000)));
        assert_eq!("56.6 kbit/s".parse(), Ok(Rate::bits_per_second(56_600)));
        for wrong in ["", "10", "10 Mb", "Mbit/s", "-1 Mbit/s", "0 bit/s", "1e9 bit/s"] {
            assert_eq!(wrong.parse::<Rate>(), Err(RateError(wrong.to_owned())));
        }
    }
}
