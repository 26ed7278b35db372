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
    /// The interval has both what bears it out and what does not.
    Undecided,
    /// There is a number of ours, but none that decides: too few runs, or a maximum.
    NotJudged,
    /// There is no number of ours.
    NotMeasured,
}

impl fmt::Display for Verdict {
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

/// The rules of [`judge`], for readers.
pub(super) const RULES: &str = "Every verdict is the 95 % interval's, not the mean's. Reproduced means \
    that the whole interval fits: a time or a number of bytes within a factor of 1.5 of the paper's; a \
    reduction of at least the paper's less 10 percentage points; a bound that holds; a direction. In part \
    means that the whole interval fits a wider rule: a factor of 4; at least half of the reduction; a bound \
    exceeded by less than its double. Not reproduced means that none of it fits the wider rule, undecided \
    that some of it does. Fewer than five runs have no interval and are not judged, nor is a maximum. \
    Intervals of differences are of pairs of runs with one seed. Where several settings could be held \
    against a claim, the one that the row names was chosen by its mean, and nothing is corrected for the \
    number of claims.";

const NEAR: f64 = 1.5;
const FAR: f64 = 4.0;
const POINTS: f64 = 0.10;

/// What an interval is held against, its ends included.
type Rule = (f64, f64);

/// The rule for a claim that is borne out, and the wider one for one that is in part.
fn rules(expected: Expected) -> Option<(Rule, Rule)> {
    const MOST: f64 = f64::INFINITY;
    let factor = |theirs: f64, by: f64| (theirs / by, theirs * by);
    match expected {
        Expected::Seconds(theirs) | Expected::Octets(theirs) => {
            Some((factor(theirs, NEAR), factor(theirs, FAR)))
        }
        Expected::LessBy(theirs) => Some(((theirs - POINTS, MOST), (theirs / 2.0, MOST))),
        Expected::MoreByLessThan(bound) => Some(((-MOST, bound), (-MOST, 2.0 * bound))),
        Expected::LongerThan(bound) => Some(((bound, MOST), (bound / 2.0, MOST))),
        // Nothing is no direction.
        Expected::Less | Expected::More => {
            Some(((f64::MIN_POSITIVE, MOST), (f64::MIN_POSITIVE, MOST)))
        }
        Expected::Web => None,
    }
}

/// Holds a measurement against a claim.
pub(super) fn judge(expected: Expected, ours: Ours) -> Verdict {
    let Some((near, far)) = rules(expected) else { return Verdict::NotMeasured };
    let Some((low, high)) = ours.interval else { return Verdict::NotJudged };
    let fits = |rule: Rule| rule.0 <= low && high <= rule.1;
    if fits(near) {
        Verdict::Reproduced
    } else if fits(far) {
        Verdict::InPart
    } else if high < far.0 || far.1 < low {
        Verdict::NotReproduced
    } else {
        Verdict::Undecided
    }
}

impl Expected {
    /// An interval in the words of what is expected; empty if there is none.
    pub(super) fn between(self, ours: Ours) -> String {
        let Some((low, high)) = ours.interval else { return String::new() };
        let percent = |share: f64, digits: usize| format!("{:.digits$}", share * 100.0);
        match self {
            Self::Seconds(_) | Self::LongerThan(_) => {
                format!(" [{} to {}]", seconds(low), seconds(high))
            }
            Self::Octets(_) => {
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
