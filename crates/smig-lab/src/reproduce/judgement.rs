//! The rules by which a measurement reproduces a claim. Their numbers are in `claims/judgement.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::claim::{ClaimResult, Expected, Measured};
use super::template::Template;
use smig_chart::number;

/// The tolerances.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Judgement {
    reproduced: Reproduced,
    in_part: InPart,
    report: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reproduced {
    /// Factor of a time or a number of bytes, either way.
    factor: f64,
    /// By how much a reduction may be smaller than the paper's.
    percentage_points: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InPart {
    factor: f64,
    /// Share of the paper's reduction.
    reduction: f64,
    /// Multiple of the paper's bound.
    bound: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    text: Template,
}

/// A range to compare an interval with, its ends included.
type Range = (f64, f64);

static JUDGEMENT: LazyLock<Judgement> = LazyLock::new(|| {
    toml::from_str(include_str!("../../claims/judgement.toml"))
        .unwrap_or_else(|error| panic!("claims/judgement.toml: {error}"))
});

impl Judgement {
    /// Returns the rules that every report uses.
    pub(super) fn standard() -> &'static Self {
        &JUDGEMENT
    }

    /// Returns the rules as text for the report.
    pub(super) fn text(&self) -> String {
        let [reproduced, points, in_part] = [
            number(self.reproduced.factor),
            number(self.reproduced.percentage_points),
            number(self.in_part.factor),
        ];
        let value = |name: &str| match name {
            "reproduced_factor" => Some(reproduced.as_str()),
            "percentage_points" => Some(points.as_str()),
            "in_part_factor" => Some(in_part.as_str()),
            _ => None,
        };
        self.report.text.render(&value).unwrap_or_default()
    }

    /// Returns the range for a reproduced claim, and the wider one for a claim reproduced in part.
    fn ranges(&self, expected: Expected) -> Option<(Range, Range)> {
        const MOST: f64 = f64::INFINITY;
        let factor = |theirs: f64, by: f64| (theirs / by, theirs * by);
        let Self { reproduced, in_part, .. } = self;
        match expected {
            Expected::Seconds(theirs) | Expected::Bytes(theirs) => {
                Some((factor(theirs, reproduced.factor), factor(theirs, in_part.factor)))
            }
            Expected::LessBy(theirs) => {
                let least = theirs - reproduced.percentage_points / 100.0;
                Some(((least, MOST), (theirs * in_part.reduction, MOST)))
            }
            Expected::MoreByLessThan(bound) => {
                Some(((-MOST, bound), (-MOST, in_part.bound * bound)))
            }
            Expected::LongerThan(bound) => Some(((bound, MOST), (bound / in_part.bound, MOST))),
            // Zero has no direction.
            Expected::Less | Expected::More => {
                Some(((f64::MIN_POSITIVE, MOST), (f64::MIN_POSITIVE, MOST)))
            }
            Expected::Web => None,
        }
    }

    /// Compares a measurement with a claim.
    pub(super) fn judge(&self, expected: Expected, ours: Measured) -> ClaimResult {
        let Some((near, far)) = self.ranges(expected) else { return ClaimResult::NotMeasured };
        let Some((low, high)) = ours.interval else { return ClaimResult::NotJudged };
        let fits = |range: Range| range.0 <= low && high <= range.1;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_states_the_tolerances() {
        let judgement = Judgement::standard();
        let text = judgement.text();
        for part in
            ["a factor of 1.5 of the paper's", "less 10 percentage points", "a factor of 4;"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The words "half" and "double" are not placeholders.
        assert_eq!((judgement.in_part.reduction, judgement.in_part.bound), (0.5, 2.0));
    }
}
