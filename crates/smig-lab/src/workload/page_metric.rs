//! The times of a page's load.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::result::{Outcome, PageLoad};

/// A time of a page's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageMetric {
    /// Until everything has arrived and run: the load event.
    Loaded,
    /// Until something could be rendered first; `first-rendered` in claims.
    #[serde(rename = "rendered", alias = "first-rendered")]
    FirstRendered,
    /// Mean time until a picture had arrived and could be seen, each as large as any other.
    SpeedIndex,
    /// SpeedIndex as it is defined: by frames of the screen.
    SpeedIndexByFrames,
    /// Until 85 % of the final screen could be seen, by frames.
    #[serde(rename = "visually-85")]
    MostlyVisible,
    /// Until the final screen could be seen, by frames.
    #[serde(rename = "visually-complete")]
    Visible,
}

impl PageMetric {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Loaded,
        Self::FirstRendered,
        Self::SpeedIndex,
        Self::SpeedIndexByFrames,
        Self::MostlyVisible,
        Self::Visible,
    ];

    /// Returns whether only frames of a browser's screen show it.
    #[must_use]
    pub const fn needs_screen(self) -> bool {
        matches!(self, Self::SpeedIndexByFrames | Self::MostlyVisible | Self::Visible)
    }

    /// Returns the name in tables and comparisons.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::FirstRendered => "first rendered",
            Self::SpeedIndex => "speed index",
            Self::SpeedIndexByFrames => "SpeedIndex by frames",
            Self::MostlyVisible => "visually 85 %",
            Self::Visible => "visually complete",
        }
    }

    /// Returns the name, as on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::FirstRendered => "rendered",
            Self::SpeedIndex => "speed-index",
            Self::SpeedIndexByFrames => "speed-index-by-frames",
            Self::MostlyVisible => "visually-85",
            Self::Visible => "visually-complete",
        }
    }

    /// Returns the time of a load in seconds; `None` if the load has failed, or the client has no screen.
    #[must_use]
    pub fn of(self, load: &PageLoad) -> Option<f64> {
        if load.outcome != Outcome::Complete {
            return None;
        }
        match self {
            Self::Loaded => Some(load.duration_s()),
            Self::FirstRendered => load.render_s(),
            Self::SpeedIndex => load.speed_index_s(),
            Self::SpeedIndexByFrames => Some(load.visual?.speed_index_us as f64 / 1e6),
            Self::MostlyVisible => Some(load.visual?.mostly_complete_us as f64 / 1e6),
            Self::Visible => Some(load.visual?.complete_us as f64 / 1e6),
        }
    }
}

impl fmt::Display for PageMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for PageMetric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|metric| metric.as_str()).collect();
            format!("known: {}", names.join(", "))
        })
    }
}
