//! Sizes and times in a scenario's notation.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Size in bytes: `10000`, `"10kB"`, `"64KiB"`, `"50MB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// Duration: `"500ms"`, `"1.5s"`, `"2min"`; `0` needs no unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimeSpan(pub Duration);

const SIZE_UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const TIME_UNITS: [(&str, f64); 5] =
    [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];

/// Splits a text into a number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

impl Size {
    /// Parses a size with or without a unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let factor = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
        let bytes = number * factor as f64;
        (bytes <= 1e15).then_some(Self(bytes as u64))
    }
}

impl TimeSpan {
    /// Parses a duration with its unit.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let factor = match TIME_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() && number == 0.0 => 0.0,
            None => return None,
        };
        Duration::try_from_secs_f64(number * factor).ok().map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("MB", 1_000_000), ("kB", 1_000), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{} {unit}", self.0 / factor);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        match micros {
            0 => f.write_str("0"),
            _ if micros.is_multiple_of(1_000_000) => write!(f, "{}s", micros / 1_000_000),
            _ if micros.is_multiple_of(1_000) => write!(f, "{}ms", micros / 1_000),
            _ => write!(f, "{micros}us"),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as 65536, \"64KiB\" or \"50MB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        let wrong = || E::invalid_value(de::Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map(Size).map_err(|_| wrong())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        Size::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct TimeSpanVisitor;

impl de::Visitor<'_> for TimeSpanVisitor {
    type Value = TimeSpan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit such as \"500ms\", \"1.5s\" or \"2min\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<TimeSpan, E> {
        if number == 0 {
            return Ok(TimeSpan::default());
        }
        Err(E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeSpan, E> {
        TimeSpan::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeSpanVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("10", 10),
            ("10kB", 10_000),
            ("64KiB", 65_536),
            ("1.5 MB", 1_500_000),
            ("2gib", 2 << 30),
        ] {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text}");
        }
        for text in ["", "-1", "kB", "10XB", "1e3", "9999999999GB"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
        assert_eq!(Size(50_000_000).to_string(), "50 MB");
        assert_eq!(Size(16_384).to_string(), "16 KiB");
    }

    #[test]
    fn times_need_units_and_round_trip() {
        for text in ["500ms", "90s", "150us"] {
            assert_eq!(TimeSpan::parse(text).map(|span| span.to_string()).as_deref(), Some(text));
        }
        assert_eq!(TimeSpan::parse("0"), Some(TimeSpan::default()));
        assert_eq!(TimeSpan::parse("1.5s"), Some(TimeSpan(Duration::from_millis(1500))));
        for text in ["5", "s", "-1s", "5 weeks"] {
            assert_eq!(TimeSpan::parse(text), None, "{text}");
        }
    }
}
