//! Evaluates a claim from the results of its experiment.

use std::collections::BTreeMap;

use super::claim::{Cells, Value, seconds as shown};
use super::claim::{Choose, Claim, Difference, Expected, Levels, Measure, Measured, Quantity};
use super::measure::{Sample, bytes_after_cancel, seconds, spaced, with};
use crate::campaign::TrialResult;

/// Our value for a claim.
pub(super) enum Evaluated {
    /// A value to judge, with the values for the claim's note.
    Judged(Measured, Note),
    /// A value that decides nothing; the note is all that is shown.
    Shown(f64, Note),
    /// No runs.
    Missing,
}

/// Values for the note, by placeholder.
pub(super) type Note = BTreeMap<String, String>;

/// One level for each axis.
type Cell<'a> = BTreeMap<&'a str, &'a str>;

/// Evaluates a claim. A survey's claims have no runs.
pub(super) fn evaluate(claim: &Claim, results: &[&TrialResult]) -> Evaluated {
    let judged = |found: Option<(Measured, Note)>| {
        found.map_or(Evaluated::Missing, |(ours, note)| Evaluated::Judged(ours, note))
    };
    match &claim.measured {
        Measure::Mean(value) => judged(mean(value, results)),
        Measure::LessThan(pair) => judged(difference(claim, pair, results, Sample::less_than)),
        Measure::MoreThan(pair) => judged(difference(claim, pair, results, Sample::more_than)),
        Measure::Trend(pair) => judged(trend(pair, results)),
        Measure::Maximum(value) => maximum(value, results),
        Measure::Survey => Evaluated::Missing,
    }
}

fn sample(of: &Quantity, cell: &Cell<'_>, results: &[&TrialResult]) -> Sample {
    let wanted: Vec<_> = cell.iter().map(|(axis, level)| (*axis, *level)).collect();
    let results = with(results, &wanted);
    match of {
        Quantity::TimeOf(transfer) => seconds(&results, transfer),
        Quantity::BytesAfterCancelOf(transfer) => bytes_after_cancel(&results, transfer),
    }
}

/// A cell, with axis and level of the axis that has several.
type Combination<'a> = (Cell<'a>, Option<(&'a str, &'a str)>);

/// Returns every combination of levels.
fn combinations(cells: &Cells) -> Vec<Combination<'_>> {
    let mut all: Vec<Combination<'_>> = vec![(Cell::new(), None)];
    for (axis, levels) in cells {
        let (levels, several) = match levels {
            Levels::One(level) => (std::slice::from_ref(level), false),
            Levels::Several(levels) => (levels.as_slice(), true),
        };
        let mut more = Vec::new();
        for (cell, chosen) in &all {
            for level in levels {
                let mut cell = cell.clone();
                cell.insert(axis, level);
                let chosen = if several { Some((axis.as_str(), level.as_str())) } else { *chosen };
                more.push((cell, chosen));
            }
        }
        all = more;
    }
    all
}

/// Returns the cell with other levels where `over` has them.
fn replaced<'a>(cell: &Cell<'a>, over: &Cell<'a>) -> Cell<'a> {
    let mut cell = cell.clone();
    cell.extend(over);
    cell
}

fn note(chosen: Option<(&str, &str)>) -> Note {
    chosen.map(|(axis, level)| (axis.to_owned(), level_words(level))).into_iter().collect()
}

/// Sizes are written with a space, schemes and buffers as they are.
fn level_words(level: &str) -> String {
    if level.starts_with(|c: char| c.is_ascii_digit()) { spaced(level) } else { level.to_owned() }
}

/// Returns the value that is compared with the claim.
fn choose<T>(values: Vec<(Measured, T)>, which: Option<Choose>) -> Option<(Measured, T)> {
    let by_value = |a: &(Measured, T), b: &(Measured, T)| a.0.value.total_cmp(&b.0.value);
    match which {
        Some(Choose::Largest) | None => values.into_iter().max_by(by_value),
        Some(Choose::Smallest) => values.into_iter().min_by(by_value),
    }
}

fn mean(value: &Value, results: &[&TrialResult]) -> Option<(Measured, Note)> {
    let all = combinations(&value.cells).into_iter().filter_map(|(cell, chosen)| {
        Some((sample(&value.of, &cell, results).ours()?, note(chosen)))
    });
    choose(all.collect(), value.choose)
}

fn difference(
    claim: &Claim,
    pair: &Difference,
    results: &[&TrialResult],
    compare: fn(&Sample, &Sample) -> Option<Measured>,
) -> Option<(Measured, Note)> {
    let others = combinations(&pair.than);
    let mut all = Vec::new();
    for (cell, chosen) in combinations(&pair.cells) {
        let ours = sample(&pair.of, &cell, results);
        for (over, other_chosen) in &others {
            let theirs = sample(&pair.of, &replaced(&cell, over), results);
            if let Some(measured) = compare(&ours, &theirs) {
                all.push((measured, (note(chosen.or(*other_chosen)), cell.clone(), over)));
            }
        }
    }
    let (measured, (mut note, cell, over)) = choose(all, pair.choose)?;
    for (name, levels) in &pair.also {
        for (levels, _) in combinations(levels) {
            let ours = sample(&pair.of, &replaced(&cell, &levels), results);
            let theirs = sample(&pair.of, &replaced(&cell, over), results);
            if let Some(also) = compare(&ours, &theirs) {
                note.insert(name.clone(), claim.expected.shown(also));
            }
        }
    }
    Some((measured, note))
}

fn trend(pair: &Difference, results: &[&TrialResult]) -> Option<(Measured, Note)> {
    let than = combinations(&pair.than).into_iter().next()?.0;
    let mut present = combinations(&pair.cells)
        .into_iter()
        .map(|(cell, chosen)| {
            let ours = sample(&pair.of, &cell, results);
            let theirs = sample(&pair.of, &replaced(&cell, &than), results);
            (ours, theirs, chosen)
        })
        .filter(|(ours, theirs, _)| !ours.runs.is_empty() || !theirs.runs.is_empty());
    let (first, last) = (present.next()?, present.next_back()?);
    // The share that remains of the other cells' mean.
    let remaining = |ours: &Sample, theirs: &Sample| {
        let less = ours.less_than(theirs)?;
        let interval = less.interval.map(|(low, high)| (1.0 - high, 1.0 - low));
        Some(Measured { value: 1.0 - less.value, interval })
    };
    let (small, large) = (remaining(&first.0, &first.1)?, remaining(&last.0, &last.1)?);
    let interval = small
        .interval
        .zip(large.interval)
        .map(|((low, high), (from, to))| (from / high - 1.0, to / low - 1.0));
    let words = |chosen: Option<(&str, &str)>| level_words(chosen.map_or("", |(_, level)| level));
    let note = [("first", words(first.2)), ("last", words(last.2))];
    Some((
        Measured { value: large.value / small.value - 1.0, interval },
        note.map(|(name, words)| (name.to_owned(), words)).into(),
    ))
}

fn maximum(value: &Value, results: &[&TrialResult]) -> Evaluated {
    let samples = combinations(&value.cells);
    let largest = samples.iter().find_map(|(cell, _)| {
        let sample = sample(&value.of, cell, results);
        Some((sample.most()?, sample.mean()?))
    });
    let Some((most, mean)) = largest else { return Evaluated::Missing };
    let note = [("maximum", shown(most)), ("mean", shown(mean))];
    Evaluated::Shown(most, note.map(|(name, words)| (name.to_owned(), words)).into())
}

impl Claim {
    /// Returns what is wrong with the claim, apart from its syntax.
    pub(super) fn fault(&self) -> Option<String> {
        let (cells, choose): (Vec<&Cells>, _) = match &self.measured {
            Measure::Mean(value) | Measure::Maximum(value) => (vec![&value.cells], value.choose),
            Measure::LessThan(pair) | Measure::MoreThan(pair) | Measure::Trend(pair) => {
                (vec![&pair.cells, &pair.than], pair.choose)
            }
            Measure::Survey => (Vec::new(), None),
        };
        let is_list = |(_, levels): &(&String, &Levels)| matches!(levels, Levels::Several(_));
        let lists: Vec<&str> =
            cells.into_iter().flatten().filter(is_list).map(|(axis, _)| axis.as_str()).collect();
        if let Some(fault) = self.list_fault(&lists, choose) {
            return Some(fault);
        }
        if !self.expected.fits(&self.measured) {
            return Some(format!(
                "`expected` {:?} cannot be compared with what `measured` gives",
                self.expected
            ));
        }
        self.note_fault(&lists)
    }

    /// Returns what is wrong with the axes that have lists of levels.
    fn list_fault(&self, lists: &[&str], choose: Option<Choose>) -> Option<String> {
        let has_a_list = |axis| format!("`{axis}` has a list of levels");
        match (&self.measured, lists, choose) {
            (_, [_, second, ..], _) => {
                Some(format!("only one axis can have a list of levels, and `{second}` is a second"))
            }
            (Measure::Maximum(_), [axis], _) => {
                Some(has_a_list(axis) + ": `maximum` is that of one level")
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
    fn note_fault(&self, lists: &[&str]) -> Option<String> {
        let known: Vec<&str> = match &self.measured {
            // The survey's values, of which the figure has a list.
            Measure::Survey => return None,
            Measure::Maximum(_) => vec!["maximum", "mean"],
            Measure::Trend(_) => vec!["first", "last"],
            Measure::Mean(_) => lists.to_vec(),
            Measure::LessThan(pair) | Measure::MoreThan(pair) => {
                lists.iter().copied().chain(pair.also.keys().map(String::as_str)).collect()
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
    const fn fits(self, measured: &Measure) -> bool {
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
