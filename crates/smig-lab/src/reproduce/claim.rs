//! A claim of the paper: its text, the measure that is compared with it, and the format of both.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use smig_chart::{format_bytes, format_ms};

use super::cells::{CellShare, SenderShare, WindowShare};
use super::template::Template;
use crate::workload::PageMetric;

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
    #[serde(rename = "measured")]
    pub(super) measure: Measure,
    /// Text after our value: which of several values it is, and other values of interest.
    #[serde(skip_serializing, default)]
    pub(super) note: Template,
}

/// How our value is obtained.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measure {
    /// The mean.
    Mean(CellQuantity),
    /// The share by which the mean is less than that of other cells.
    LessThan(Difference),
    /// The share by which the mean is more than that of other cells.
    MoreThan(Difference),
    /// Relative increase, from the first to the last level of an axis, of the mean as a share of the other
    /// cells' mean.
    Trend(Difference),
    /// The maximum, which is shown without a result: it grows with the number of objects.
    Maximum(CellQuantity),
    /// In how many cells a ratio of page times is as stated.
    Share(CellShare),
    /// In how many pairs of runs the ratio of congestion windows was as stated.
    Windows(WindowShare),
    /// In how many probes a sender did as stated.
    Senders(SenderShare),
    /// Nothing: the survey of test sites fills in the note.
    Survey,
    /// Nothing: the note says why.
    Nothing,
}

/// A quantity in the selected cells of the experiment (a cell: one level per axis).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellQuantity {
    #[serde(rename = "of")]
    pub(super) quantity: Quantity,
    #[serde(default)]
    pub(super) cells: CellSelection,
    pub(super) choose: Option<Extreme>,
}

/// A quantity in some cells, relative to other cells.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    #[serde(rename = "of")]
    pub(super) quantity: Quantity,
    pub(super) cells: CellSelection,
    /// Levels of the other cells where they differ from `cells`.
    #[serde(rename = "than")]
    pub(super) baseline: CellSelection,
    pub(super) choose: Option<Extreme>,
    /// What is compared.
    #[serde(default)]
    pub(super) statistic: ClaimStatistic,
    /// Further values for the note: their names, and their levels where they differ from `cells`.
    #[serde(default)]
    #[serde(rename = "also")]
    pub(super) note_values: BTreeMap<String, CellSelection>,
}

/// A measured quantity of a transfer, given by its name in the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Quantity {
    /// Times of its objects, in seconds.
    #[serde(rename = "time-of")]
    TransferTime(String),
    /// Bytes that arrive after its cancel.
    BytesAfterCancelOf(String),
    /// A time of the loads of the scenario's pages, in seconds.
    Page(PageMetric),
}

/// A statistic over all values of a setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ClaimStatistic {
    #[default]
    Mean,
    Median,
    /// The 99th percentile.
    P99,
}

/// Selects runs: levels by axis.
pub(super) type CellSelection = BTreeMap<String, Levels>;

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
pub(super) enum Extreme {
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
    /// At least this share of the cells in which it must hold.
    ShareOfCells(f64),
    /// A share of the cells between these two: neither always nor never.
    ShareBetween(f64, f64),
}

/// Our measurement, with its confidence interval if there is one, in the unit of [`Expected`]; for
/// [`Expected::Less`] and [`Expected::More`], the share of the decrease or increase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct MeasuredValue {
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
    pub(super) fn format_interval(self, measured: MeasuredValue) -> String {
        let Some((low, high)) = measured.interval else { return String::new() };
        let percent = |share: f64, digits: usize| format!("{:.digits$}", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => {
                format!(" [{} to {}]", format_seconds(low), format_seconds(high))
            }
            Self::Bytes(_) => {
                let shown = |value: f64| format_bytes(value.max(0.0) as u64);
                format!(" [{} to {}]", shown(low), shown(high))
            }
            Self::LessBy(_) | Self::Less if measured.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 0), percent(-low, 0))
            }
            Self::More if measured.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 0), percent(-low, 0))
            }
            Self::LessBy(_) | Self::Less | Self::More => {
                format!(" [{} to {}]", percent(low, 0), percent(high, 0))
            }
            Self::MoreByLessThan(_) if measured.value < 0.0 => {
                format!(" [{} to {}]", percent(-high, 1), percent(-low, 1))
            }
            Self::MoreByLessThan(_) => format!(" [{} to {}]", percent(low, 1), percent(high, 1)),
            Self::ShareOfCells(_) | Self::ShareBetween(..) => {
                format!(" [{} to {}]", percent(low, 0), percent(high, 0))
            }
            Self::Web => String::new(),
        }
    }

    /// Formats a measured value in the unit of the claim.
    pub(super) fn format_value(self, measured: MeasuredValue) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => format_seconds(measured.value),
            Self::Bytes(_) => format_bytes(measured.value.max(0.0) as u64),
            Self::LessBy(_) | Self::Less if measured.value < 0.0 => {
                format!("{} more", percent(-measured.value))
            }
            Self::LessBy(_) | Self::Less => format!("{} less", percent(measured.value)),
            Self::MoreByLessThan(_) if measured.value < 0.0 => {
                format!("{:.1} % less", -measured.value * 100.0)
            }
            Self::MoreByLessThan(_) => format!("{:.1} % more", measured.value * 100.0),
            Self::More if measured.value < 0.0 => format!("{} less", percent(-measured.value)),
            Self::More => format!("{} more", percent(measured.value)),
            Self::ShareOfCells(_) | Self::ShareBetween(..) => percent(measured.value),
            Self::Web => measured.value.to_string(),
        }
    }
}

/// Formats a time in seconds, or in milliseconds below one second.
pub(super) fn format_seconds(value: f64) -> String {
    if value < 0.9995 { format!("{} ms", format_ms(value * 1e3)) } else { format!("{value:.2} s") }
}
