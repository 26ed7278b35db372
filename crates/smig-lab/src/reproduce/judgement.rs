//! The rules by which a measurement reproduces a claim. Their numbers are in `claims/judgement.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::claim::{ClaimResult, Expected, MeasuredValue};
use super::study::Rules;
use super::template::Template;
use smig_chart::format_number;

/// The tolerances.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Judgement {
    reproduced: ReproducedRules,
    in_part: InPartRules,
    cells: CellRules,
    report: ReportText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReproducedRules {
    /// Maximum factor between the paper's time or bytes and ours, in either direction.
    factor: f64,
    /// Points by which a reduction may be smaller than the paper's.
    percentage_points: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InPartRules {
    factor: f64,
    /// Minimum share of the paper's reduction.
    reduction: f64,
    /// Maximum factor between the paper's bound and ours, above an upper or below a lower bound.
    bound: f64,
    /// Points by which the share of cells may be outside of the range for a reproduced claim.
    cell_points: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellRules {
    /// What a ratio from fewer than five runs is taken to be uncertain by, either way.
    few_runs_factor: f64,
    /// Minimum number of values for a 99th percentile.
    p99_values: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportText {
    text: Template,
    cells_text: Template,
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

    /// Returns the rules as text for a report.
    pub(super) fn text(&self, rules: Rules) -> String {
        let [reproduced, points, in_part, cell_points, few_runs, p99] = [
            format_number(self.reproduced.factor),
            format_number(self.reproduced.percentage_points),
            format_number(self.in_part.factor),
            format_number(self.in_part.cell_points),
            format_number(self.cells.few_runs_factor),
            self.cells.p99_values.to_string(),
        ];
        let value = |name: &str| match name {
            "reproduced_factor" => Some(reproduced.as_str()),
            "percentage_points" => Some(points.as_str()),
            "in_part_factor" => Some(in_part.as_str()),
            "cell_points" => Some(cell_points.as_str()),
            "few_runs_factor" => Some(few_runs.as_str()),
            "p99_values" => Some(p99.as_str()),
            _ => None,
        };
        let text = match rules {
            Rules::Values => &self.report.text,
            Rules::Cells => &self.report.cells_text,
        };
        text.render(&value).unwrap_or_default()
    }

    /// Returns what a ratio from fewer than five runs is taken to be uncertain by, either way.
    pub(super) const fn few_runs_factor(&self) -> f64 {
        self.cells.few_runs_factor
    }

    /// Returns the minimum number of values for a 99th percentile to be judged.
    pub(super) const fn p99_values(&self) -> usize {
        self.cells.p99_values
    }

    /// Returns the range for a reproduced claim, and the wider one for a claim reproduced in part.
    fn ranges(&self, expected: Expected) -> Option<(Range, Range)> {
        const INFINITY: f64 = f64::INFINITY;
        let range_by_factor = |paper_value: f64, by: f64| (paper_value / by, paper_value * by);
        let Self { reproduced: reproduced_rules, in_part: in_part_rules, .. } = self;
        match expected {
            Expected::Seconds(paper_value) | Expected::Bytes(paper_value) => Some((
                range_by_factor(paper_value, reproduced_rules.factor),
                range_by_factor(paper_value, in_part_rules.factor),
            )),
            Expected::LessBy(paper_value) => {
                let min = paper_value - reproduced_rules.percentage_points / 100.0;
                Some(((min, INFINITY), (paper_value * in_part_rules.reduction, INFINITY)))
            }
            Expected::MoreByLessThan(bound) => {
                Some(((-INFINITY, bound), (-INFINITY, in_part_rules.bound * bound)))
            }
            Expected::LongerThan(bound) => {
                Some(((bound, INFINITY), (bound / in_part_rules.bound, INFINITY)))
            }
            // Zero has no direction.
            Expected::Less | Expected::More => {
                Some(((f64::MIN_POSITIVE, INFINITY), (f64::MIN_POSITIVE, INFINITY)))
            }
            Expected::ShareOfCells(share) => {
                let points = in_part_rules.cell_points / 100.0;
                // Of a small share at least a half: otherwise no cell at all would be a part of it.
                Some(((share, INFINITY), ((share - points).max(share / 2.0), INFINITY)))
            }
            Expected::ShareBetween(low, high) => {
                let points = in_part_rules.cell_points / 100.0;
                Some(((low, high), (low - points, high + points)))
            }
            Expected::Web => None,
        }
    }

    /// Compares a measurement with a claim.
    pub(super) fn judge(&self, expected: Expected, measured: MeasuredValue) -> ClaimResult {
        let Some((reproduced_range, in_part_range)) = self.ranges(expected) else {
            return ClaimResult::NotMeasured;
        };
        let Some((low, high)) = measured.interval else { return ClaimResult::NotJudged };
        let is_within = |range: Range| range.0 <= low && high <= range.1;
        if is_within(reproduced_range) {
            ClaimResult::Reproduced
        } else if is_within(in_part_range) {
            ClaimResult::InPart
        } else if high < in_part_range.0 || in_part_range.1 < low {
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
        let text = judgement.text(Rules::Values);
        for part in
            ["a factor of 1.5 of the paper's", "less 10 percentage points", "a factor of 4;"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let cells_text = judgement.text(Rules::Cells);
        for part in ["a factor of 1.33", "20 percentage points", "fewer than 100 values"] {
            assert!(cells_text.contains(part), "{part}: {cells_text}");
        }
        // The words "half" and "double" are not placeholders.
        assert_eq!((judgement.in_part.reduction, judgement.in_part.bound), (0.5, 2.0));
    }

    #[test]
    fn a_claim_of_which_no_cell_holds_is_not_reproduced() {
        let none = MeasuredValue { value: 0.0, interval: Some((0.0, 0.0)) };
        for share in [0.125, 0.5, 1.0] {
            let verdict = Judgement::standard().judge(Expected::ShareOfCells(share), none);
            assert_eq!(verdict, ClaimResult::NotReproduced, "{share}");
        }
    }
}
