//! The paper's claims, and the rules by which a measurement reproduces them. The rules are fixed before
//! anything is measured, and the report states them.

use std::fmt;

use serde::Serialize;

use smig_chart::{bytes, ms};

/// A claim of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Claim {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The claim's key within the experiment.
    pub key: &'static str,
    /// The claim as text.
    pub text: &'static str,
    /// The claim as numbers.
    pub expected: Expected,
    /// The place in the paper.
    pub place: &'static str,
}

/// The value that a claim expects. Shares are 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// The rules of [`judge`], as text for the report.
pub(super) const RULES: &str = "Every verdict is based on the 95 % interval, not on the mean. \
    Reproduced means that the whole interval fits the rule: a time or a number of bytes within a \
    factor of 1.5 of the paper's; a reduction of at least the paper's less 10 percentage points; a \
    bound that holds; a direction. In part means that the whole interval fits a wider rule: a \
    factor of 4; at least half of the reduction; a bound exceeded by less than its double. Not \
    reproduced means that no part of the interval fits the wider rule, undecided that a part does. \
    Fewer than five runs have no interval and are not judged, nor is a maximum. Intervals of \
    differences are those of pairs of runs with the same seed. Where several settings could be \
    compared with a claim, the row names the one that was chosen by its mean, and nothing is \
    corrected for the number of claims.";

const NEAR: f64 = 1.5;
const FAR: f64 = 4.0;
const POINTS: f64 = 0.10;

/// A range to compare an interval with, its ends included.
type Rule = (f64, f64);

/// Returns the rule for a reproduced claim, and the wider rule for one reproduced in part.
fn rules(expected: Expected) -> Option<(Rule, Rule)> {
    const MOST: f64 = f64::INFINITY;
    let factor = |theirs: f64, by: f64| (theirs / by, theirs * by);
    match expected {
        Expected::Seconds(theirs) | Expected::Bytes(theirs) => {
            Some((factor(theirs, NEAR), factor(theirs, FAR)))
        }
        Expected::LessBy(theirs) => Some(((theirs - POINTS, MOST), (theirs / 2.0, MOST))),
        Expected::MoreByLessThan(bound) => Some(((-MOST, bound), (-MOST, 2.0 * bound))),
        Expected::LongerThan(bound) => Some(((bound, MOST), (bound / 2.0, MOST))),
        // Zero has no direction.
        Expected::Less | Expected::More => {
            Some(((f64::MIN_POSITIVE, MOST), (f64::MIN_POSITIVE, MOST)))
        }
        Expected::Web => None,
    }
}

/// Compares a measurement with a claim.
pub(super) fn judge(expected: Expected, ours: Measured) -> ClaimResult {
    let Some((near, far)) = rules(expected) else { return ClaimResult::NotMeasured };
    let Some((low, high)) = ours.interval else { return ClaimResult::NotJudged };
    let fits = |rule: Rule| rule.0 <= low && high <= rule.1;
    if fits(near) {
        ClaimResult::Reproduced
    } else if fits(far) {
        ClaimResult::InPart
    } else if high < far.0 || far.1 < low {
        ClaimResult::NotReproduced
    } else {
        ClaimResult::Undecided
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
