//! A claim of the paper: what it says, what is compared with it, and how both are shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use smig_chart::{bytes, ms};

use super::template::Template;

/// A claim of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The experiment's name.
    #[serde(skip_deserializing)]
    pub experiment: &'static str,
    /// The claim's key within the experiment.
    pub key: String,
    /// The claim as text.
    pub text: String,
    /// The claim as numbers.
    pub expected: Expected,
    /// The place in the paper.
    pub place: String,
    /// What is compared with it.
    #[serde(skip_serializing)]
    pub(super) measured: Measure,
    /// Words beside our value: which of several it is, and others of interest.
    #[serde(skip_serializing, default)]
    pub(super) note: Template,
}

/// How our value is obtained.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// The mean.
    Mean(Value),
    /// The share by which the mean is less than that of other cells.
    LessThan(Difference),
    /// The share by which the mean is more than that of other cells.
    MoreThan(Difference),
    /// By how much larger the share that remains of the other cells' mean is at the last level of an axis than
    /// at the first.
    Trend(Difference),
    /// The maximum, which is shown without a verdict: it grows with the number of objects.
    Maximum(Value),
    /// Nothing: the survey of test sites fills in the note.
    Survey,
}

/// A quantity in some cells of the experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Value {
    pub(super) of: Quantity,
    #[serde(default)]
    pub(super) cells: Cells,
    pub(super) choose: Option<Choose>,
}

/// A quantity in some cells, relative to other cells.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    pub(super) of: Quantity,
    pub(super) cells: Cells,
    /// Levels of the other cells where they differ from `cells`.
    pub(super) than: Cells,
    pub(super) choose: Option<Choose>,
    /// Further values for the note: their names, and their levels where they differ from `cells`.
    #[serde(default)]
    pub(super) also: BTreeMap<String, Cells>,
}

/// A measured quantity of a transfer, given by its name in the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Quantity {
    /// Times of its objects, in seconds.
    TimeOf(String),
    /// Bytes that arrive after its cancel.
    BytesAfterCancelOf(String),
}

/// Selects runs: levels by axis.
pub(super) type Cells = BTreeMap<String, Levels>;

/// One level of an axis, or several to choose from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected a level, or a list of levels")]
pub(super) enum Levels {
    One(String),
    Several(Vec<String>),
}

/// Which of several values is compared with the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Choose {
    Largest,
    Smallest,
}

/// The value that a claim expects. Shares are 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// A time in seconds.
    Seconds(f64),
    /// A number of bytes.
    Bytes(f64),
    /// A reduction by this share.
    LessBy(f64),
    /// A reduction; the paper gives no number.
    Less,
    /// An increase of less than this share.
    MoreByLessThan(f64),
    /// A time longer than this, in seconds.
    LongerThan(f64),
    /// The first of two values is larger; the paper gives no number.
    More,
    /// A number of the 1500 most visited sites of 2016; there is no measurement to compare with it.
    Web,
}

/// Our measurement, with its confidence interval if there is one, in the unit of [`Expected`]; for
/// [`Expected::Less`] and [`Expected::More`], the share of the decrease or increase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Measured {
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// Whether a measurement reproduces a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimResult {
    /// The interval lies within the rule for a reproduced claim.
    Reproduced,
    /// The interval lies within the wider rule: the same direction, but another effect size.
    InPart,
    /// The interval lies outside of the wider rule.
    NotReproduced,
    /// The interval overlaps the end of the wider rule.
    Undecided,
    /// The measurement decides nothing: too few runs, or a maximum.
    NotJudged,
    /// There is no measurement.
    NotMeasured,
}

impl fmt::Display for ClaimResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "in part",
            Self::NotReproduced => "not reproduced",
            Self::Undecided => "undecided",
            Self::NotJudged => "not judged",
            Self::NotMeasured => "not measured",
        })
    }
}

impl Expected {
    /// Formats an interval in the unit of the claim; empty if there is none.
    pub(super) fn between(self, ours: Measured) -> String {
        let Some((low, high)) = ours.interval else { return String::new() };
        let percent = |share: f64, digits: usize| format!("{:.digits$}", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => {
                format!(" [{} to {}]", seconds(low), seconds(high))
            }
            Self::Bytes(_) => {
                let shown = |value: f64| bytes(value.max(0.0) as u64);
                format!(" [{} to {}]", shown(low), shown(high))
            }
            Self::LessBy(_) | Self::Less if ours.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 0), percent(-low, 0))
            }
            Self::More if ours.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 0), percent(-low, 0))
            }
            Self::LessBy(_) | Self::Less | Self::More => {
                format!(" [{} to {}]", percent(low, 0), percent(high, 0))
            }
            Self::MoreByLessThan(_) if ours.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 1), percent(-low, 1))
            }
            Self::MoreByLessThan(_) => format!(" [{} to {}]", percent(low, 1), percent(high, 1)),
            Self::Web => String::new(),
        }
    }

    /// Formats a measured value in the unit of the claim.
    pub(super) fn shown(self, ours: Measured) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => seconds(ours.value),
            Self::Bytes(_) => bytes(ours.value.max(0.0) as u64),
            Self::LessBy(_) | Self::Less if ours.value < 0.0 => {
                format!("{} more", percent(-ours.value))
            }
            Self::LessBy(_) | Self::Less => format!("{} less", percent(ours.value)),
            Self::MoreByLessThan(_) if ours.value < 0.0 => {
                format!("{:.1} % less", -ours.value * 100.0)
            }
            Self::MoreByLessThan(_) => format!("{:.1} % more", ours.value * 100.0),
            Self::More if ours.value < 0.0 => format!("{} less", percent(-ours.value)),
            Self::More => format!("{} more", percent(ours.value)),
            Self::Web => ours.value.to_string(),
        }
    }
}

/// Formats a time in seconds, or in milliseconds below one second.
pub(super) fn seconds(value: f64) -> String {
    if value < 0.9995 { format!("{} ms", ms(value * 1e3)) } else { format!("{value:.2} s") }
}
