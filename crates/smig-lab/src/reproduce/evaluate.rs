//! Evaluates a claim from the results of its experiment.

use std::collections::BTreeMap;

use super::claim::{CellQuantity, CellSelection, format_seconds};
use super::claim::{
    Claim, Difference, Expected, Extreme, Levels, Measure, MeasuredValue, Quantity,
};
use super::measure::{Sample, bytes_after_cancel, filter_runs, spaced_size, transfer_times};
use crate::campaign::TrialResult;

/// The evaluation of a claim.
pub(super) enum Evaluation {
    /// A value to compare with the claim, with the values for the claim's note.
    Comparable(MeasuredValue, NoteValues),
    /// A value that is not compared; only the note is shown.
    NoteOnly(f64, NoteValues),
    /// No runs.
    Missing,
}

/// Values for the note, by placeholder.
pub(super) type NoteValues = BTreeMap<String, String>;

/// One level for each axis.
type LevelByAxis<'a> = BTreeMap<&'a str, &'a str>;

/// Evaluates a claim. A survey's claims have no runs.
pub(super) fn evaluate(claim: &Claim, results: &[&TrialResult]) -> Evaluation {
    let comparable = |found: Option<(MeasuredValue, NoteValues)>| {
        found.map_or(Evaluation::Missing, |(measured, note)| Evaluation::Comparable(measured, note))
    };
    match &claim.measure {
        Measure::Mean(value) => comparable(mean(value, results)),
        Measure::LessThan(pair) => comparable(difference(claim, pair, results, Sample::less_than)),
        Measure::MoreThan(pair) => comparable(difference(claim, pair, results, Sample::more_than)),
        Measure::Trend(pair) => comparable(trend(pair, results)),
        Measure::Maximum(value) => maximum(value, results),
        Measure::Survey => Evaluation::Missing,
    }
}

fn sample(quantity: &Quantity, cell: &LevelByAxis<'_>, results: &[&TrialResult]) -> Sample {
    let levels: Vec<_> = cell.iter().map(|(axis, level)| (*axis, *level)).collect();
    let results = filter_runs(results, &levels);
    match quantity {
        Quantity::TransferTime(transfer) => transfer_times(&results, transfer),
        Quantity::BytesAfterCancelOf(transfer) => bytes_after_cancel(&results, transfer),
    }
}

/// A cell, with the name and the level of the axis that has several levels.
type Combination<'a> = (LevelByAxis<'a>, Option<(&'a str, &'a str)>);

/// Returns every combination of levels.
fn combinations(cells: &CellSelection) -> Vec<Combination<'_>> {
    let mut all: Vec<Combination<'_>> = vec![(LevelByAxis::new(), None)];
    for (axis, levels) in cells {
        let (levels, several) = match levels {
            Levels::One(level) => (std::slice::from_ref(level), false),
            Levels::Several(levels) => (levels.as_slice(), true),
        };
        let mut extended = Vec::new();
        for (cell, chosen) in &all {
            for level in levels {
                let mut cell = cell.clone();
                cell.insert(axis, level);
                let chosen = if several { Some((axis.as_str(), level.as_str())) } else { *chosen };
                extended.push((cell, chosen));
            }
        }
        all = extended;
    }
    all
}

/// Returns the cell with the levels of `overrides`, where it has some.
fn override_levels<'a>(cell: &LevelByAxis<'a>, overrides: &LevelByAxis<'a>) -> LevelByAxis<'a> {
    let mut cell = cell.clone();
    cell.extend(overrides);
    cell
}

fn note(chosen: Option<(&str, &str)>) -> NoteValues {
    chosen.map(|(axis, level)| (axis.to_owned(), level_text(level))).into_iter().collect()
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
    which: Option<Extreme>,
) -> Option<(MeasuredValue, T)> {
    let by_value = |a: &(MeasuredValue, T), b: &(MeasuredValue, T)| a.0.value.total_cmp(&b.0.value);
    match which {
        Some(Extreme::Largest) | None => values.into_iter().max_by(by_value),
        Some(Extreme::Smallest) => values.into_iter().min_by(by_value),
    }
}

fn mean(value: &CellQuantity, results: &[&TrialResult]) -> Option<(MeasuredValue, NoteValues)> {
    let all = combinations(&value.cells).into_iter().filter_map(|(cell, chosen)| {
        Some((sample(&value.quantity, &cell, results).measured()?, note(chosen)))
    });
    select_extreme(all.collect(), value.choose)
}

fn difference(
    claim: &Claim,
    pair: &Difference,
    results: &[&TrialResult],
    compare: fn(&Sample, &Sample) -> Option<MeasuredValue>,
) -> Option<(MeasuredValue, NoteValues)> {
    let baselines = combinations(&pair.baseline);
    let mut all = Vec::new();
    for (cell, chosen) in combinations(&pair.cells) {
        let treatment = sample(&pair.quantity, &cell, results);
        for (baseline_levels, other_chosen) in &baselines {
            let baseline =
                sample(&pair.quantity, &override_levels(&cell, baseline_levels), results);
            if let Some(measured) = compare(&treatment, &baseline) {
                all.push((
                    measured,
                    (note(chosen.or(*other_chosen)), cell.clone(), baseline_levels),
                ));
            }
        }
    }
    let (measured, (mut note, cell, baseline_levels)) = select_extreme(all, pair.choose)?;
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
    let than = combinations(&pair.baseline).into_iter().next()?.0;
    let mut with_runs = combinations(&pair.cells)
        .into_iter()
        .map(|(cell, chosen)| {
            let treatment = sample(&pair.quantity, &cell, results);
            let baseline = sample(&pair.quantity, &override_levels(&cell, &than), results);
            (treatment, baseline, chosen)
        })
        .filter(|(treatment, baseline, _)| !treatment.runs.is_empty() || !baseline.runs.is_empty());
    let (first, last) = (with_runs.next()?, with_runs.next_back()?);
    // The mean as a share of the baseline's.
    let ratio = |treatment: &Sample, baseline: &Sample| {
        let less = treatment.less_than(baseline)?;
        let interval = less.interval.map(|(low, high)| (1.0 - high, 1.0 - low));
        Some(MeasuredValue { value: 1.0 - less.value, interval })
    };
    let (at_first, at_last) = (ratio(&first.0, &first.1)?, ratio(&last.0, &last.1)?);
    let interval = at_first
        .interval
        .zip(at_last.interval)
        .map(|((low, high), (from, to))| (from / high - 1.0, to / low - 1.0));
    let text = |chosen: Option<(&str, &str)>| level_text(chosen.map_or("", |(_, level)| level));
    let note = [("first", text(first.2)), ("last", text(last.2))];
    Some((
        MeasuredValue { value: at_last.value / at_first.value - 1.0, interval },
        note.map(|(name, value)| (name.to_owned(), value)).into(),
    ))
}

fn maximum(value: &CellQuantity, results: &[&TrialResult]) -> Evaluation {
    let cells = combinations(&value.cells);
    let max_and_mean = cells.iter().find_map(|(cell, _)| {
        let sample = sample(&value.quantity, cell, results);
        Some((sample.max()?, sample.mean()?))
    });
    let Some((max, mean)) = max_and_mean else { return Evaluation::Missing };
    let note = [("maximum", format_seconds(max)), ("mean", format_seconds(mean))];
    Evaluation::NoteOnly(max, note.map(|(name, value)| (name.to_owned(), value)).into())
}

impl Claim {
    /// Returns the first error in the claim that is not one of syntax.
    pub(super) fn validation_error(&self) -> Option<String> {
        let (cells, choose): (Vec<&CellSelection>, _) = match &self.measure {
            Measure::Mean(value) | Measure::Maximum(value) => (vec![&value.cells], value.choose),
            Measure::LessThan(pair) | Measure::MoreThan(pair) | Measure::Trend(pair) => {
                (vec![&pair.cells, &pair.baseline], pair.choose)
            }
            Measure::Survey => (Vec::new(), None),
        };
        let is_list = |(_, levels): &(&String, &Levels)| matches!(levels, Levels::Several(_));
        let lists: Vec<&str> =
            cells.into_iter().flatten().filter(is_list).map(|(axis, _)| axis.as_str()).collect();
        if let Some(fault) = self.list_error(&lists, choose) {
            return Some(fault);
        }
        if !self.expected.is_comparable_with(&self.measure) {
            return Some(format!(
                "`expected` {:?} cannot be compared with what `measured` gives",
                self.expected
            ));
        }
        self.note_error(&lists)
    }

    /// Returns the first error in the axes that have lists of levels.
    fn list_error(&self, lists: &[&str], choose: Option<Extreme>) -> Option<String> {
        let has_a_list = |axis| format!("`{axis}` has a list of levels");
        match (&self.measure, lists, choose) {
            (_, [_, second, ..], _) => {
                Some(format!("only one axis can have a list of levels, and `{second}` is a second"))
            }
            (Measure::Maximum(_), [axis], _) => {
                Some(has_a_list(axis) + ": `maximum` needs a single level")
            }
            (Measure::Trend(_), [], _) => {
                Some("`trend` needs an axis with a list of levels".into())
            }
            (Measure::Trend(_), [_], None) => None,
            (Measure::Trend(_), [_], Some(_)) => Some("`trend` has no `choose`".into()),
            (_, [axis], None) => {
                Some(has_a_list(axis) + ": set `choose` to \"largest\" or \"smallest\"")
            }
            (_, [], Some(_)) => Some("`choose` needs an axis with a list of levels".into()),
            (_, [_], Some(_)) | (_, [], None) => None,
        }
    }

    /// Returns the note's first placeholder that has no value.
    fn note_error(&self, lists: &[&str]) -> Option<String> {
        let known: Vec<&str> = match &self.measure {
            // Checked against the figure's list of facts.
            Measure::Survey => return None,
            Measure::Maximum(_) => vec!["maximum", "mean"],
            Measure::Trend(_) => vec!["first", "last"],
            Measure::Mean(_) => lists.to_vec(),
            Measure::LessThan(pair) | Measure::MoreThan(pair) => {
                lists.iter().copied().chain(pair.note_values.keys().map(String::as_str)).collect()
            }
        };
        let unknown = self.note.names().find(|name| !known.contains(name))?;
        Some(format!(
            "`note`: {{{unknown}}} is not a value of this claim; it has: {}",
            known.join(", ")
        ))
    }
}

impl Expected {
    /// Returns whether the claim's value has the unit of this measure.
    const fn is_comparable_with(self, measured: &Measure) -> bool {
        match measured {
            Measure::Mean(_) => matches!(self, Self::Seconds(_) | Self::Bytes(_)),
            Measure::LessThan(_) => matches!(self, Self::LessBy(_) | Self::Less),
            Measure::MoreThan(_) => matches!(self, Self::MoreByLessThan(_) | Self::More),
            Measure::Trend(_) => matches!(self, Self::More),
            Measure::Maximum(_) => matches!(self, Self::LongerThan(_)),
            Measure::Survey => matches!(self, Self::Web),
        }
    }
}
