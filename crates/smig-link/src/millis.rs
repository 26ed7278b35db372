//! Durations in files: a number of milliseconds, with microsecond resolution.
//!
//! Used as `#[serde(with = "smig_link::millis", rename = "took_ms")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Returns a duration in milliseconds, rounded to three decimals.
#[must_use]
pub fn of(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// Serialises a duration as milliseconds.
///
/// # Errors
/// The serialiser's.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(of(*duration))
}

/// Durations that may be absent.
pub mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Serialises a duration as milliseconds.
    ///
    /// # Errors
    /// The serialiser's.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserialises a duration from milliseconds.
    ///
    /// # Errors
    /// As [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Millis(#[serde(with = "super")] Duration);

        Ok(Option::<Millis>::deserialize(deserializer)?.map(|Millis(duration)| duration))
    }
}

/// Deserialises a duration from milliseconds.
///
/// # Errors
/// When the number is negative, not finite, or too large for a [`Duration`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let millis = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(millis / 1e3)
        .map_err(|_| D::Error::custom(format!("{millis} ms is not a duration")))
}
