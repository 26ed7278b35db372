//! Evaluates a claim from the results of its experiment.

use std::collections::BTreeMap;

use super::cells::CellCounts;
use super::claim::{CellQuantity, CellSelection, format_seconds};
use super::claim::{
    Claim, ClaimStatistic, Difference, Expected, Extreme, Levels, Measure, MeasuredValue, Quantity,
};
use super::evidence::Evidence;
use super::judgement::Judgement;
use super::measure::{
    Sample, bytes_after_cancel, filter_runs, page_times, spaced_size, transfer_times,
};
use crate::campaign::TrialResult;
use smig_stats::Statistic;

/// The evaluation of a claim.
pub(super) enum Evaluation {
    /// A value to compare with the claim, with the values for the claim's note.
    Comparable(MeasuredValue, NoteValues),
    /// A value that is not compared; only the note is shown.
    NoteOnly(f64, NoteValues),
    /// In how many cells it holds.
    Cells(CellCounts),
    /// No runs.
    Missing,
}

/// Values for the note, by placeholder.
pub(super) type NoteValues = BTreeMap<String, String>;

/// One level for each axis.
pub(super) type LevelByAxis<'a> = BTreeMap<&'a str, &'a str>;

/// Evaluates a claim. A survey's claims have no runs.
pub(super) fn evaluate(claim: &Claim, results: &[&TrialResult], evidence: &Evidence) -> Evaluation {
    let comparable = |found: Option<(MeasuredValue, NoteValues)>| {
        found.map_or(Evaluation::Missing, |(measured, note)| Evaluation::Comparable(measured, note))
    };
    match &claim.measure {
        Measure::Mean(value) => comparable(mean(value, results)),
        Measure::LessThan(pair) => {
            let compare = |a: &Sample, b: &Sample| a.reduction_by(b, pair.statistic.into());
            comparable(difference(claim, pair, results, compare))
        }
        Measure::MoreThan(pair) => {
            let compare = |a: &Sample, b: &Sample| a.increase_by(b, pair.statistic.into());
            comparable(difference(claim, pair, results, compare))
        }
        Measure::Trend(pair) => comparable(trend(pair, results)),
        Measure::Maximum(value) => maximum(value, results),
        Measure::Share(share) => of_cells(share.count(results)),
        Measure::Windows(share) => of_cells(share.count(&evidence.windows)),
        Measure::Senders(share) => of_cells(share.count(&evidence.probes.probes)),
        Measure::Survey | Measure::Nothing => Evaluation::Missing,
    }
}

fn of_cells(counts: CellCounts) -> Evaluation {
    if counts.is_measured() { Evaluation::Cells(counts) } else { Evaluation::Missing }
}

impl From<ClaimStatistic> for Statistic {
    fn from(statistic: ClaimStatistic) -> Self {
        match statistic {
            ClaimStatistic::Mean => Self::Mean,
            ClaimStatistic::Median => Self::Median,
            ClaimStatistic::P99 => Self::Quantile(0.99),
        }
    }
}

fn sample(quantity: &Quantity, cell: &LevelByAxis<'_>, results: &[&TrialResult]) -> Sample {
    let levels: Vec<_> = cell.iter().map(|(axis, level)| (*axis, *level)).collect();
    let results = filter_runs(results, &levels);
    match quantity {
        Quantity::TransferTime(transfer) => transfer_times(&results, transfer),
        Quantity::BytesAfterCancelOf(transfer) => bytes_after_cancel(&results, transfer),
        Quantity::Page(time) => page_times(&results, *time),
    }
}

/// A cell, with the name and the level of the axis that has several levels.
pub(super) type Combination<'a> = (LevelByAxis<'a>, Option<(&'a str, &'a str)>);

/// Returns every combination of levels.
pub(super) fn combinations(cells: &CellSelection) -> Vec<Combination<'_>> {
    let mut partial_combinations: Vec<Combination<'_>> = vec![(LevelByAxis::new(), None)];
    for (axis, levels) in cells {
        let (levels, is_list) = match levels {
            Levels::One(level) => (std::slice::from_ref(level), false),
            Levels::Several(levels) => (levels.as_slice(), true),
        };
        let mut extended = Vec::new();
        for (cell, varied_level) in &partial_combinations {
            for level in levels {
                let mut cell = cell.clone();
                cell.insert(axis, level);
                let varied_level =
                    if is_list { Some((axis.as_str(), level.as_str())) } else { *varied_level };
                extended.push((cell, varied_level));
            }
        }
        partial_combinations = extended;
    }
    partial_combinations
}

/// Returns the cell with the levels of `overrides`, where it has some.
pub(super) fn override_levels<'a>(
    cell: &LevelByAxis<'a>,
    overrides: &LevelByAxis<'a>,
) -> LevelByAxis<'a> {
    let mut cell = cell.clone();
    cell.extend(overrides);
    cell
}

fn varied_level_note(varied_level: Option<(&str, &str)>) -> NoteValues {
    varied_level.map(|(axis, level)| (axis.to_owned(), level_text(level))).into_iter().collect()
}

/// Formats a level: sizes with a space, others unchanged.
fn level_text(level: &str) -> String {
    if level.starts_with(|c: char| c.is_ascii_digit()) {
        spaced_size(level)
    } else {
        level.to_owned()
    }
}

/// Returns the value that is compared with the claim.
fn select_extreme<T>(
    values: Vec<(MeasuredValue, T)>,
    extreme: Option<Extreme>,
) -> Option<(MeasuredValue, T)> {
    let by_value = |a: &(MeasuredValue, T), b: &(MeasuredValue, T)| a.0.value.total_cmp(&b.0.value);
    match extreme {
        Some(Extreme::Largest) | None => values.into_iter().max_by(by_value),
        Some(Extreme::Smallest) => values.into_iter().min_by(by_value),
    }
}

fn mean(
    cell_quantity: &CellQuantity,
    results: &[&TrialResult],
) -> Option<(MeasuredValue, NoteValues)> {
    let candidates = combinations(&cell_quantity.cells).into_iter().filter_map(|(cell, chosen)| {
        Some((
            sample(&cell_quantity.quantity, &cell, results).measured_mean()?,
            varied_level_note(chosen),
        ))
    });
    select_extreme(candidates.collect(), cell_quantity.choose)
}

fn difference(
    claim: &Claim,
    pair: &Difference,
    results: &[&TrialResult],
    compare: impl Fn(&Sample, &Sample) -> Option<MeasuredValue>,
) -> Option<(MeasuredValue, NoteValues)> {
    let baselines = combinations(&pair.baseline);
    let mut candidates = Vec::new();
    for (cell, varied_level) in combinations(&pair.cells) {
        let treatment = sample(&pair.quantity, &cell, results);
        for (baseline_levels, baseline_varied_level) in &baselines {
            let baseline =
                sample(&pair.quantity, &override_levels(&cell, baseline_levels), results);
            if let Some(mut measured) = compare(&treatment, &baseline) {
                // A percentile of so few values is their maximum, and grows with their number.
                let values = treatment.value_count().min(baseline.value_count());
                let is_too_few = values < Judgement::standard().p99_values();
                if pair.statistic == ClaimStatistic::P99 && is_too_few {
                    measured.interval = None;
                }
                candidates.push((
                    measured,
                    (
                        varied_level_note(varied_level.or(*baseline_varied_level)),
                        cell.clone(),
                        baseline_levels,
                    ),
                ));
            }
        }
    }
    let (measured, (mut note, cell, baseline_levels)) = select_extreme(candidates, pair.choose)?;
    for (name, levels) in &pair.note_values {
        for (levels, _) in combinations(levels) {
            let treatment = sample(&pair.quantity, &override_levels(&cell, &levels), results);
            let baseline =
                sample(&pair.quantity, &override_levels(&cell, baseline_levels), results);
            if let Some(note_value) = compare(&treatment, &baseline) {
                note.insert(name.clone(), claim.expected.format_value(note_value));
            }
        }
    }
    Some((measured, note))
}

fn trend(pair: &Difference, results: &[&TrialResult]) -> Option<(MeasuredValue, NoteValues)> {
    let baseline_levels = combinations(&pair.baseline).into_iter().next()?.0;
    let mut measured_cells = combinations(&pair.cells)
        .into_iter()
        .map(|(cell, chosen)| {
            let treatment = sample(&pair.quantity, &cell, results);
            let baseline =
                sample(&pair.quantity, &override_levels(&cell, &baseline_levels), results);
            (treatment, baseline, chosen)
        })
        .filter(|(treatment, baseline, _)| !treatment.runs.is_empty() || !baseline.runs.is_empty());
    let (first_cell, last_cell) = (measured_cells.next()?, measured_cells.next_back()?);
    // The mean as a share of the baseline's.
    let ratio = |treatment: &Sample, baseline: &Sample| {
        let less = treatment.reduction_from(baseline)?;
        let interval = less.interval.map(|(low, high)| (1.0 - high, 1.0 - low));
        Some(MeasuredValue { value: 1.0 - less.value, interval })
    };
    let (first_ratio, last_ratio) =
        (ratio(&first_cell.0, &first_cell.1)?, ratio(&last_cell.0, &last_cell.1)?);
    let interval = first_ratio
        .interval
        .zip(last_ratio.interval)
        .map(|((low, high), (from, to))| (from / high - 1.0, to / low - 1.0));
    let text = |chosen: Option<(&str, &str)>| level_text(chosen.map_or("", |(_, level)| level));
    let note = [("first", text(first_cell.2)), ("last", text(last_cell.2))];
    Some((
        MeasuredValue { value: last_ratio.value / first_ratio.value - 1.0, interval },
        note.map(|(name, value)| (name.to_owned(), value)).into(),
    ))
}

fn maximum(cell_quantity: &CellQuantity, results: &[&TrialResult]) -> Evaluation {
    let cells = combinations(&cell_quantity.cells);
    let max_and_mean = cells.iter().find_map(|(cell, _)| {
        let sample = sample(&cell_quantity.quantity, cell, results);
        Some((sample.max()?, sample.mean()?))
    });
    let Some((max, mean)) = max_and_mean else { return Evaluation::Missing };
    let note = [("maximum", format_seconds(max)), ("mean", format_seconds(mean))];
    Evaluation::NoteOnly(max, note.map(|(name, value)| (name.to_owned(), value)).into())
}

impl Claim {
    /// Returns the first error in the claim that is not one of syntax.
    pub(super) fn validation_error(&self) -> Option<String> {
        let (cells, extreme): (Vec<&CellSelection>, _) = match &self.measure {
            Measure::Mean(value) | Measure::Maximum(value) => (vec![&value.cells], value.choose),
            Measure::LessThan(pair) | Measure::MoreThan(pair) | Measure::Trend(pair) => {
                (vec![&pair.cells, &pair.baseline], pair.choose)
            }
            Measure::Share(share) => {
                if let Some(error) = share.validation_error() {
                    return Some(error);
                }
                (Vec::new(), None)
            }
            Measure::Windows(_) | Measure::Senders(_) | Measure::Survey | Measure::Nothing => {
                (Vec::new(), None)
            }
        };
        let is_list = |(_, levels): &(&String, &Levels)| matches!(levels, Levels::Several(_));
        let list_axes: Vec<&str> =
            cells.into_iter().flatten().filter(is_list).map(|(axis, _)| axis.as_str()).collect();
        if let Some(error) = self.list_error(&list_axes, extreme) {
            return Some(error);
        }
        if !self.expected.is_comparable_with(&self.measure) {
            return Some(format!(
                "`expected` {:?} cannot be compared with what `measured` gives",
                self.expected
            ));
        }
        self.note_error(&list_axes)
    }

    /// Returns the first error in the axes that have lists of levels.
    fn list_error(&self, list_axes: &[&str], extreme: Option<Extreme>) -> Option<String> {
        let list_message = |axis| format!("`{axis}` has a list of levels");
        match (&self.measure, list_axes, extreme) {
            (_, [_, second, ..], _) => {
                Some(format!("only one axis can have a list of levels, and `{second}` is a second"))
            }
            (Measure::Maximum(_), [axis], _) => {
                Some(list_message(axis) + ": `maximum` needs a single level")
            }
            (Measure::Trend(_), [], _) => {
                Some("`trend` needs an axis with a list of levels".into())
            }
            (Measure::Trend(_), [_], None) => None,
            (Measure::Trend(_), [_], Some(_)) => Some("`trend` has no `choose`".into()),
            (_, [axis], None) => {
                Some(list_message(axis) + ": set `choose` to \"largest\" or \"smallest\"")
            }
            (_, [], Some(_)) => Some("`choose` needs an axis with a list of levels".into()),
            (_, [_], Some(_)) | (_, [], None) => None,
        }
    }

    /// Returns the note's first placeholder that has no value.
    fn note_error(&self, list_axes: &[&str]) -> Option<String> {
        let known_names: Vec<&str> = match &self.measure {
            // Checked against the figure's list of facts.
            Measure::Survey => return None,
            Measure::Share(_) | Measure::Windows(_) | Measure::Senders(_) | Measure::Nothing => {
                Vec::new()
            }
            Measure::Maximum(_) => vec!["maximum", "mean"],
            Measure::Trend(_) => vec!["first", "last"],
            Measure::Mean(_) => list_axes.to_vec(),
            Measure::LessThan(pair) | Measure::MoreThan(pair) => list_axes
                .iter()
                .copied()
                .chain(pair.note_values.keys().map(String::as_str))
                .collect(),
        };
        let unknown = self.note.names().find(|name| !known_names.contains(name))?;
        Some(format!(
            "`note`: {{{unknown}}} is not a value of this claim; it has: {}",
            known_names.join(", ")
        ))
    }
}

impl Expected {
    /// Returns whether the claim's value has the unit of this measure.
    const fn is_comparable_with(self, measure: &Measure) -> bool {
        match measure {
            Measure::Mean(_) => matches!(self, Self::Seconds(_) | Self::Bytes(_)),
            Measure::LessThan(_) => matches!(self, Self::LessBy(_) | Self::Less),
            Measure::MoreThan(_) => matches!(self, Self::MoreByLessThan(_) | Self::More),
            Measure::Trend(_) => matches!(self, Self::More),
            Measure::Maximum(_) => matches!(self, Self::LongerThan(_)),
            Measure::Share(_) | Measure::Windows(_) | Measure::Senders(_) => {
                matches!(self, Self::ShareOfCells(_) | Self::ShareBetween(..))
            }
            Measure::Survey | Measure::Nothing => matches!(self, Self::Web),
        }
    }
}
