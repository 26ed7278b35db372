//! What the paper claims, and when a measurement bears it out. The rules are fixed before anything is
//! measured, and the report states them.

use std::fmt;

use serde::Serialize;

use crate::report::{bytes, ms};

/// One statement of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Claim {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Its name within the experiment.
    pub key: &'static str,
    /// In words.
    pub text: &'static str,
    /// In numbers.
    pub expected: Expected,
    /// Where it stands.
    pub place: &'static str,
}

/// What a claim expects. Shares are 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// So many seconds.
    Seconds(f64),
    /// So many octets.
    Octets(f64),
    /// Less by this share.
    LessBy(f64),
    /// Less; the paper gives no number.
    Less,
    /// More by less than this share.
    MoreByLessThan(f64),
    /// More seconds than this.
    LongerThan(f64),
    /// The first of two is more; the paper gives no number.
    More,
    /// Of the web's 1500 most visited sites of 2016; there is nothing to hold against it.
    Web,
}

/// Ours, with its interval where there is one: in the unit of [`Expected`]; for [`Expected::Less`] and
/// [`Expected::More`], the share by which it is less or more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ours {
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// Whether a claim is borne out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within what the rules allow.
    Reproduced,
    /// The same direction, another size.
    InPart,
    /// Otherwise.
    NotReproduced,
    /// There is no number of ours.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::InPart => "in part",
            Self::NotReproduced => "not reproduced",
            Self::NotMeasured => "not measured",
        })
    }
}

/// The rules of [`judge`], for readers.
pub(super) const RULES: &str = "Reproduced means: a time or a number of bytes within a factor of 1.5 of \
    the paper's; a reduction of at least the paper's less 10 percentage points; a bound that holds; a \
    direction whose 95 % interval excludes none. In part means: within a factor of 4; at least half of \
    the reduction; a bound exceeded by less than its double; the direction, but within the noise.";

const NEAR: f64 = 1.5;
const FAR: f64 = 4.0;
const POINTS: f64 = 0.10;

/// Holds a measurement against a claim.
pub(super) fn judge(expected: Expected, ours: Ours) -> Verdict {
    let value = ours.value;
    let grade = |whole: bool, half: bool| match (whole, half) {
        (true, _) => Verdict::Reproduced,
        (false, true) => Verdict::InPart,
        (false, false) => Verdict::NotReproduced,
    };
    match expected {
        Expected::Seconds(theirs) | Expected::Octets(theirs) => {
            let factor = if value > 0.0 { (value / theirs).max(theirs / value) } else { f64::MAX };
            grade(factor <= NEAR, factor <= FAR)
        }
        Expected::LessBy(theirs) => grade(value >= theirs - POINTS, value >= theirs / 2.0),
        Expected::MoreByLessThan(bound) => grade(value < bound, value < 2.0 * bound),
        Expected::LongerThan(bound) => grade(value > bound, value > bound / 2.0),
        Expected::Web => Verdict::NotMeasured,
        Expected::Less | Expected::More => {
            grade(ours.interval.is_some_and(|(low, _)| low > 0.0), value > 0.0)
        }
    }
}

impl Expected {
    /// A measured value in the words of what is expected.
    pub(super) fn shown(self, ours: Ours) -> String {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => seconds(ours.value),
            Self::Octets(_) => bytes(ours.value.max(0.0) as u64),
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

/// Seconds, or milliseconds below one.
pub(super) fn seconds(value: f64) -> String {
    if value < 0.9995 { format!("{} ms", ms(value * 1e3)) } else { format!("{value:.2} s") }
}
