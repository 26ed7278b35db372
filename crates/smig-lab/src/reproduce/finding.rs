//! The outcome of an experiment: table rows, a chart, verdicts, sentences.

use serde::Serialize;
use serde_json::{Value, json};
use smig_chart::html::{Align, Table};
use smig_chart::svg::Colour;

use super::claim::{Claim, ClaimResult, Measured, judge};
use super::experiment::{Experiment, Extent};
use super::paper::claims_of;
use crate::campaign::TrialResult;

/// A reproduced figure or table.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The experiment's name.
    pub name: &'static str,
    /// The name in the paper.
    pub place: &'static str,
    /// The title.
    pub title: &'static str,
    /// The research question.
    pub question: &'static str,
    /// Its scenario file.
    pub file: &'static str,
    /// Number of runs.
    pub runs: usize,
    /// Runs of the full campaign that are still missing.
    pub missing: usize,
    /// What a quick campaign omits; empty for a full one.
    pub trimmed: Vec<String>,
    /// Each claim of the paper with our measurement.
    pub rows: Vec<Row>,
    /// The numbers.
    pub table: DataTable,
    /// The same numbers, as charts.
    pub charts: Vec<Chart>,
    /// Conclusions, each computed from the numbers.
    pub sentences: Vec<String>,
    /// Presumed causes. They are not measured here.
    pub readings: Vec<String>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
}

/// The description of a figure or table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) place: &'static str,
    pub(super) title: &'static str,
    pub(super) question: &'static str,
    pub(super) file: &'static str,
}

/// A claim of the paper with our measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The paper's claim.
    pub claim: Claim,
    /// Our measurement as text, or why there is none.
    pub ours: String,
    /// Our measurement as a number, in the unit of the claim.
    pub value: Option<f64>,
    /// Its 95 % confidence interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the measurement reproduces the claim.
    pub verdict: ClaimResult,
}

/// A table with numeric cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataTable {
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The name in CSV and JSON.
    pub key: &'static str,
    /// The heading for readers, with the unit.
    pub heading: &'static str,
    /// Decimal places for readers; `None` for text.
    pub digits: Option<usize>,
}

/// The content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number in the column's unit.
    Number(f64),
    /// No value.
    Empty,
}

/// Points along one axis, in groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The file name without its extension.
    pub name: String,
    /// The axis title.
    pub title: String,
    /// The caption, in a sentence.
    pub caption: String,
    /// The unit, written after the axis' last number.
    pub unit: &'static str,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
    /// A reference value and its name.
    pub reference: Option<(f64, String)>,
    /// The axis' scale.
    pub spread: Spread,
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Linear, from 0.
    Even,
    /// Logarithmic.
    Logarithmic,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The heading above the points; may be empty.
    pub title: String,
    /// The points, from top to bottom.
    pub dots: Vec<Dot>,
}

/// One value with its confidence interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Dot {
    /// The label beside it.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// The mean.
    pub value: f64,
    /// Its 95 % confidence interval.
    pub interval: Option<(f64, f64)>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The paper's value.
    pub paper: Option<f64>,
}

impl Finding {
    pub(super) fn about(subject: Subject) -> Self {
        Self {
            name: subject.name,
            place: subject.place,
            title: subject.title,
            question: subject.question,
            file: subject.file,
            runs: 0,
            missing: 0,
            trimmed: Vec::new(),
            rows: Vec::new(),
            table: DataTable::default(),
            charts: Vec::new(),
            sentences: Vec::new(),
            readings: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns a finding without results.
    pub(super) fn missing(experiment: &Experiment, why: &str) -> Self {
        let mut finding = Self::about(experiment.subject());
        for claim in claims_of(experiment.name) {
            finding.unmeasured(claim.key, why);
        }
        finding
    }

    pub(super) fn begin(experiment: &Experiment, extent: Extent, results: &[&TrialResult]) -> Self {
        let mut finding = Self::about(experiment.subject());
        finding.runs = results.len();
        match extent {
            Extent::Quick => finding.trimmed = experiment.trimmed(results),
            Extent::Full => finding.missing = experiment.missing(results),
        }
        let disturbed = results.iter().filter(|result| !result.disturbed.is_empty()).count();
        if disturbed > 0 {
            finding.warnings.push(format!(
                "{disturbed} of {} runs were disturbed at every attempt and are counted \
                 nevertheless: the machine was overloaded.",
                results.len()
            ));
        }
        finding
    }

    fn claim(&self, key: &str) -> Option<&'static Claim> {
        claims_of(self.name).find(|claim| claim.key == key)
    }

    /// Adds the comparison of a measurement with a claim; `named` describes the measurement.
    pub(super) fn hold(&mut self, key: &str, ours: Option<Measured>, named: &str) {
        let Some(claim) = self.claim(key) else { return };
        let Some(ours) = ours else {
            return self.unmeasured(key, "no runs");
        };
        let shown = claim.expected.shown(ours) + &claim.expected.between(ours);
        self.rows.push(Row {
            claim: *claim,
            ours: if named.is_empty() { shown } else { format!("{shown} ({named})") },
            value: Some(ours.value),
            interval: ours.interval,
            verdict: judge(claim.expected, ours),
        });
    }

    pub(super) fn unmeasured(&mut self, key: &str, why: &str) {
        let Some(claim) = self.claim(key) else { return };
        self.rows.push(Row {
            claim: *claim,
            ours: why.to_owned(),
            value: None,
            interval: None,
            verdict: ClaimResult::NotMeasured,
        });
    }

    /// Adds a value beside a claim that it cannot decide.
    pub(super) fn beside(&mut self, key: &str, shown: &str, value: Option<f64>) {
        let Some(claim) = self.claim(key) else { return };
        self.rows.push(Row {
            claim: *claim,
            ours: shown.to_owned(),
            value,
            interval: None,
            verdict: ClaimResult::NotJudged,
        });
    }

    /// Returns whether a claim has a verdict, and the claim is not fully reproduced.
    pub(super) fn falls_short(&self, key: &str) -> bool {
        self.verdict(key).is_some_and(|verdict| {
            matches!(
                verdict,
                ClaimResult::InPart | ClaimResult::NotReproduced | ClaimResult::Undecided
            )
        })
    }

    pub(super) fn verdict(&self, key: &str) -> Option<ClaimResult> {
        self.rows.iter().find(|row| row.claim.key == key).map(|row| row.verdict)
    }

    pub(super) fn say(&mut self, sentence: impl Into<String>) {
        self.sentences.push(sentence.into());
    }

    /// Adds a presumed cause.
    pub(super) fn read(&mut self, reading: impl Into<String>) {
        self.readings.push(reading.into());
    }
}

impl Cell {
    pub(super) fn of(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Empty, Self::Number)
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A text column.
pub(super) const fn words(key: &'static str, heading: &'static str) -> Column {
    Column { key, heading, digits: None }
}

/// A numeric column.
pub(super) const fn numbers(key: &'static str, heading: &'static str, digits: usize) -> Column {
    Column { key, heading, digits: Some(digits) }
}

impl DataTable {
    /// Renders the table for readers.
    #[must_use]
    pub fn shown(&self) -> Table {
        let align = |column: &Column| match column.digits {
            Some(_) => Align::Right,
            None => Align::Left,
        };
        let columns = self.columns.iter().map(|column| (column.heading.to_owned(), align(column)));
        self.as_table(columns.collect(), |column, value| {
            let digits = column.digits.unwrap_or(1);
            grouped(&format!("{value:.digits$}"))
        })
    }

    /// Renders the table as CSV.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let columns = self.columns.iter().map(|column| (column.key.to_owned(), Align::Left));
        smig_chart::table::to_csv(&self.as_table(columns.collect(), |_, value| exact(value)))
    }

    /// Returns the rows as JSON objects.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |cells: &Vec<Cell>| {
            let pairs = self.columns.iter().zip(cells).map(|(column, cell)| {
                let value = match cell {
                    Cell::Text(text) => json!(text),
                    Cell::Number(number) => json!(rounded(*number)),
                    Cell::Empty => Value::Null,
                };
                (column.key.to_owned(), value)
            });
            Value::Object(pairs.collect())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }

    fn as_table(
        &self,
        columns: Vec<(String, Align)>,
        number: impl Fn(&Column, f64) -> String,
    ) -> Table {
        let row = |cells: &Vec<Cell>| {
            let cell = |(column, cell): (&Column, &Cell)| match cell {
                Cell::Text(text) => text.clone(),
                Cell::Number(value) => number(column, *value),
                Cell::Empty => String::new(),
            };
            self.columns.iter().zip(cells).map(cell).collect()
        };
        Table { columns, rows: self.rows.iter().map(row).collect() }
    }
}

/// Rounds to six decimal places: more than the measurement's precision.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn exact(value: f64) -> String {
    format!("{}", rounded(value))
}

/// Inserts thousands separators.
fn grouped(text: &str) -> String {
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = String::new();
    for (index, c) in text.char_indices() {
        let left = whole.saturating_sub(index);
        if index < whole && left % 3 == 0 && out.ends_with(|c: char| c.is_ascii_digit()) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_numbers() {
        let table = DataTable {
            columns: vec![words("scheme", "scheme"), numbers("mean_ms", "mean, ms", 0)],
            rows: vec![
                vec![Cell::text("a, b"), Cell::Number(12_345.6)],
                vec![Cell::text("c"), Cell::Empty],
            ],
        };
        assert_eq!(table.shown().rows[0], ["a, b", "12,346"]);
        assert_eq!(table.to_csv(), "scheme,mean_ms\n\"a, b\",12345.6\nc,\n");
        assert_eq!(
            table.to_json(),
            json!([{"scheme": "a, b", "mean_ms": 12345.6}, {"scheme": "c", "mean_ms": null}])
        );
        assert_eq!(grouped("-1234567.25"), "-1,234,567.25");
        assert_eq!(grouped("-123"), "-123");
    }
}
