//! Outages: times in which nothing that leaves the wire arrives, as when a radio has lost its peer and no device says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SpecError, Time};
use crate::millis;

/// An outage of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Time since the origin of the link's clock: of a trial, the start of the measured run.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// How long it lasts; for ever if absent.
    #[serde(
        default,
        with = "millis::optional",
        rename = "for_ms",
        skip_serializing_if = "Option::is_none"
    )]
    pub lasts: Option<Duration>,
}

impl Outage {
    /// Returns its end, since the origin of the link's clock; `None` if it lasts for ever.
    fn end(&self) -> Option<Duration> {
        self.lasts.map(|lasts| self.at.saturating_add(lasts))
    }

    /// Checks that outages follow each other.
    pub(super) fn check_all(outages: &[Self]) -> Result<(), SpecError> {
        let is_after =
            |earlier: &Self, later: &Self| earlier.end().is_some_and(|end| end <= later.at);
        match outages.windows(2).find(|pair| !is_after(&pair[0], &pair[1])) {
            Some(pair) => Err(SpecError::Value(format!(
                "outages: the one at {} ms must begin after the end of the one before it",
                millis::of(pair[1].at)
            ))),
            None => Ok(()),
        }
    }
}

/// The outages of a direction.
#[derive(Debug)]
pub(super) struct Outages {
    outages: Vec<Outage>,
    /// `None` while they are held back: there is none then.
    origin: Option<Time>,
}

impl Outages {
    pub(super) const fn new(outages: Vec<Outage>) -> Self {
        Self { outages, origin: Some(Time::ZERO) }
    }

    pub(super) const fn start_at(&mut self, origin: Time) {
        self.origin = Some(origin);
    }

    pub(super) const fn hold_back(&mut self) {
        self.origin = None;
    }

    /// Returns whether what leaves the wire at this time is lost.
    #[inline]
    pub(super) fn include(&self, at: Time) -> bool {
        if self.outages.is_empty() {
            return false;
        }
        let Some(origin) = self.origin else { return false };
        let elapsed = at.since(origin);
        let begun = self.outages.partition_point(|outage| outage.at <= elapsed);
        let last = begun.checked_sub(1).map(|index| &self.outages[index]);
        last.is_some_and(|outage| outage.end().is_none_or(|end| elapsed < end))
    }
}
