//! The kinds of a setting's value: how each is parsed from text, formatted, and checked.
//!
//! Flags and the file have text as their common form: a flag gives its argument, the file the text of
//! a TOML value of the correct type.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// The kind of a setting's value. Determines the expected TOML type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A string.
    Text,
    /// An array of strings, or one string.
    List,
    /// An integer.
    Integer,
    /// A size in bytes: an integer, or a string with a unit.
    Size,
    /// A duration: a string with a unit.
    Time,
    /// true or false.
    Bool,
}

impl ValueKind {
    /// Returns a description of the expected value, for messages.
    #[must_use]
    pub const fn expected_description(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::List => "a string or an array of strings",
            Self::Integer => "an integer",
            Self::Size => "a number of bytes, such as 65536 or \"64KiB\"",
            Self::Time => "a string with a unit, such as \"500ms\", \"10s\" or \"2min\"",
            Self::Bool => "true or false",
        }
    }
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
];

/// Parses a size in bytes: `65536`, `64KiB`, `64k`, `1MB`.
///
/// # Errors
/// Text that is not a size.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not {}", ValueKind::Size.expected_description());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = unit.trim_start();
    let factor = match unit {
        "" | "B" => 1,
        _ => SIZE_UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, factor)| *factor)
            .ok_or_else(bad)?,
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large"))
}

/// Parses a duration with its unit: `20ms`, `1.5s`, `2min`, `1h`; `0` needs none.
///
/// # Errors
/// Text that is not a duration.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not {}", ValueKind::Time.expected_description());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit.trim_start() {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "min" | "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text} is too long"))
}

/// Parses `ADDR:PORT`, or `localhost:PORT` for both loopback addresses.
///
/// # Errors
/// Text that is not an address with a port.
pub fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(addr) = text.parse() {
        return Ok(vec![addr]);
    }
    let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| {
        format!(
            "{text:?} is not an address with a port; write 127.0.0.1:8443, [::1]:8443, localhost:8443 \
             (both), or [::]:8443 for every interface"
        )
    })?;
    Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()])
}

/// Parses a duration, or seconds without a unit, as in curl's flags.
///
/// # Errors
/// Text that is not a duration.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("{text}: {error}"))
        }
        Err(_) => parse_time(text),
    }
}

/// Formats a size as TOML, in the largest unit that divides it.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("\"{}{unit}\"", bytes / factor);
        }
    }
    bytes.to_string()
}

/// Formats a duration as TOML, in the largest unit up to minutes that divides it.
#[must_use]
pub fn show_time(time: Duration) -> String {
    let micros = time.as_micros();
    let units = [("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    match units.into_iter().find(|(_, unit)| micros.is_multiple_of(*unit)) {
        Some((name, unit)) if micros > 0 => format!("\"{}{name}\"", micros / unit),
        _ => "\"0\"".to_owned(),
    }
}

/// Parses an integer.
///
/// # Errors
/// Text that is not an integer of this type.
pub fn parse_integer<T: FromStr>(text: &str) -> Result<T, String>
where
    T::Err: Display,
{
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}

/// Parses `true`, `yes` or `on`, or `false`, `no` or `off`.
///
/// # Errors
/// Any other text.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is not true or false")),
    }
}

/// Parses one of a few keywords.
///
/// # Errors
/// A word that is not one of them.
pub fn parse_word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        format!("{text:?} is not one of {}", known.join(", "))
    })
}

/// Formats a value as its keyword.
#[must_use]
pub fn show_word<T: PartialEq>(value: &T, words: &[(&str, T)]) -> String {
    let word = words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word);
    format!("\"{word}\"")
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// Deserialises a duration, for `#[serde(deserialize_with = ...)]`.
///
/// # Errors
/// A value that is not a duration with a unit.
pub fn deserialize_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match NumberOrText::deserialize(deserializer) {
        Ok(NumberOrText::Text(text)) => parse_time(&text).map_err(D::Error::custom),
        _ => {
            Err(D::Error::custom(format!("this takes {}", ValueKind::Time.expected_description())))
        }
    }
}

/// Deserialises a duration above zero, or `"never"`.
///
/// # Errors
/// Any other value.
pub fn deserialize_time_or_never<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = match NumberOrText::deserialize(deserializer) {
        Ok(NumberOrText::Text(text)) if text == "never" => return Ok(None),
        Ok(NumberOrText::Text(text)) => text,
        Ok(NumberOrText::Number(number)) => number.to_string(),
        Err(_) => {
            return Err(D::Error::custom("this takes a time like \"5s\", or \"never\""));
        }
    };
    // Reject zero: it could mean immediately or never.
    match parse_time(&text) {
        Ok(time) if !time.is_zero() => Ok(Some(time)),
        _ => Err(D::Error::custom(format!("{text:?} is neither a time like \"5s\" nor \"never\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_formatted() {
        assert_eq!(parse_size("65536"), Ok(65_536));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("64 k"), Ok(65_536));
        assert_eq!(parse_size("1MB"), Ok(1_000_000));
        assert_eq!(show_size(65_536), "\"64KiB\"");
        assert_eq!(show_size(1_000_000), "1000000");
        for bad in ["", "KiB", "-1", "1.5MiB", "1XB", "99999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_parsed_and_formatted() {
        assert_eq!(parse_time("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        assert_eq!(show_time(Duration::from_secs(90)), "\"90s\"");
        assert_eq!(show_time(Duration::from_millis(20)), "\"20ms\"");
        assert_eq!(show_time(Duration::from_micros(1500)), "\"1500us\"");
        assert_eq!(show_time(Duration::ZERO), "\"0\"");
        for bad in ["", "20", "s", "-1s", "1e400s", "5 weeks"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert!(parse_seconds("-1").is_err());
        assert!(parse_seconds("inf").is_err());
    }
}
