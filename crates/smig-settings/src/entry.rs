//! Helpers and macros for the entries of a settings table.

use std::fmt::Display;

use crate::value::parse_size;

/// Returns the last of a setting's values: the last of repeated flags takes effect.
#[must_use]
pub fn last_value(values: &[String]) -> &str {
    values.last().map_or("", String::as_str)
}

/// Converts a number to its field's type.
///
/// # Errors
/// A number that does not fit.
pub fn from_u64<T: TryFrom<u64>>(number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is too large"))
}

/// Converts a field to a number.
#[must_use]
pub fn to_u64<T: TryInto<u64>>(number: T) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

/// Parses an optional size: 0 is `None`, whose meaning the setting defines.
///
/// # Errors
/// Text that is not a size, or a size that does not fit.
pub fn parse_optional<T: TryFrom<u64>>(values: &[String]) -> Result<Option<T>, String> {
    match parse_size(last_value(values))? {
        0 => Ok(None),
        number => from_u64(number).map(Some),
    }
}

/// Formats an optional number; `None` is 0.
#[must_use]
pub fn show_optional<T: Display + Copy>(number: Option<T>) -> String {
    number.map_or_else(|| "0".to_owned(), |number| number.to_string())
}

/// Formats a string as TOML.
#[must_use]
pub fn show_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Formats strings as a TOML array.
#[must_use]
pub fn show_list(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| show_text(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// An entry for a size in bytes.
#[macro_export]
macro_rules! size {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        $crate::Setting {
            key: $key, flag: $flag, kind: $crate::ValueKind::Size, value_name: "BYTES", help: $help,
            show: |s| $crate::value::show_size($crate::entry::to_u64(s.$($field).+)),
            set: |s, v| {
                s.$($field).+ = $crate::entry::from_u64($crate::value::parse_size($crate::entry::last_value(v))?)?;
                Ok(())
            },
        }
    };
}
/// An entry for an integer.
#[macro_export]
macro_rules! integer {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        $crate::Setting {
            key: $key, flag: $flag, kind: $crate::ValueKind::Integer, value_name: "N", help: $help,
            show: |s| s.$($field).+.to_string(),
            set: |s, v| {
                s.$($field).+ = $crate::value::parse_integer($crate::entry::last_value(v))?;
                Ok(())
            },
        }
    };
}
/// An entry for a duration.
#[macro_export]
macro_rules! time {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        $crate::Setting {
            key: $key, flag: $flag, kind: $crate::ValueKind::Time, value_name: "TIME", help: $help,
            show: |s| $crate::value::show_time(s.$($field).+),
            set: |s, v| {
                s.$($field).+ = $crate::value::parse_time($crate::entry::last_value(v))?;
                Ok(())
            },
        }
    };
}
/// An entry for one of a few keywords.
#[macro_export]
macro_rules! word {
    ($key:literal, $flag:literal, $value:literal, $words:expr, $($field:ident).+, $help:literal) => {
        $crate::Setting {
            key: $key, flag: $flag, kind: $crate::ValueKind::Text, value_name: $value, help: $help,
            show: |s| $crate::value::show_word(&s.$($field).+, &$words),
            set: |s, v| {
                s.$($field).+ = $crate::value::parse_word($crate::entry::last_value(v), &$words)?;
                Ok(())
            },
        }
    };
}
