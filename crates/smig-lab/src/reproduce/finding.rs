//! The outcome of an experiment: verdicts, a table, charts, sentences.

use serde::Serialize;

use super::claim::{Claim, ClaimResult, Expected, MeasuredValue};
use super::data_table::DataTable;
use super::drawing::Drawing;
use super::evaluate::{Evaluation, evaluate};
use super::evidence::Evidence;
use super::experiment::{Experiment, Extent};
use super::facts::Facts;
use super::judgement::Judgement;
use super::paper::{Figure, Remark};
use crate::campaign::TrialResult;
use smig_chart::svg::Colour;

/// A reproduced figure or table.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The experiment's name.
    pub name: &'static str,
    /// The name in the paper.
    pub paper_name: &'static str,
    /// The title.
    pub title: &'static str,
    /// The research question.
    pub question: &'static str,
    /// Its scenario file; for the survey, the page that describes it.
    pub source_file: &'static str,
    /// Number of runs.
    pub run_count: usize,
    /// Runs of a full campaign that are still missing; 0 for a quick one.
    pub missing_runs: usize,
    /// What a quick campaign omits; empty for a full one.
    pub omissions: Vec<String>,
    /// Each claim of the paper with our measurement.
    pub claim_rows: Vec<ClaimRow>,
    /// The numbers.
    pub table: DataTable,
    /// The same numbers, as charts.
    pub charts: Vec<Chart>,
    /// Further pictures, of other kinds.
    pub(super) drawings: Vec<Drawing>,
    /// Conclusions, each computed from the numbers.
    pub sentences: Vec<String>,
    /// Presumed causes. They are not measured here.
    pub interpretations: Vec<String>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    pub(super) figure: &'static Figure,
}

/// A claim of the paper with our measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimRow {
    /// The paper's claim.
    pub claim: &'static Claim,
    /// Our measurement as text, or why there is none.
    pub ours: String,
    /// Our measurement as a number, in the unit of the claim.
    pub value: Option<f64>,
    /// Its 95 % confidence interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the measurement reproduces the claim.
    pub verdict: ClaimResult,
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
    /// The unit, written after the last number of the axis.
    pub unit: &'static str,
    /// The groups, from top to bottom.
    pub groups: Vec<DotGroup>,
    /// A reference value and its name.
    pub reference: Option<(f64, String)>,
    /// The scale of the axis.
    pub scale: AxisScale,
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisScale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic.
    Log,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct DotGroup {
    /// The heading above the points; may be empty.
    pub title: String,
    /// The points, from top to bottom.
    pub dots: Vec<Dot>,
}

/// One mean with its confidence interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Dot {
    /// The label beside it.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// The mean, in the chart's unit; with the unit %, relative to another mean.
    pub value: f64,
    /// Its 95 % confidence interval.
    pub interval: Option<(f64, f64)>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The paper's value.
    pub paper_value: Option<f64>,
}

impl Finding {
    pub(super) fn new(figure: &'static Figure, file: &'static str) -> Self {
        Self {
            name: figure.name,
            paper_name: &figure.place,
            title: &figure.title,
            question: &figure.question,
            source_file: file,
            run_count: 0,
            missing_runs: 0,
            omissions: Vec::new(),
            claim_rows: Vec::new(),
            table: DataTable::default(),
            charts: Vec::new(),
            drawings: Vec::new(),
            sentences: Vec::new(),
            interpretations: Vec::new(),
            warnings: Vec::new(),
            figure,
        }
    }

    /// Returns the finding of a figure that is not measured at all: each claim's note says why.
    pub(super) fn unmeasured(figure: &'static Figure, file: &'static str) -> Self {
        let mut finding = Self::new(figure, file);
        for claim in &figure.claims {
            let note = claim.note.render(&|_| None);
            finding.add_unmeasured(claim, note.unwrap_or_default());
        }
        finding
    }

    /// Returns a finding without results.
    pub(super) fn without_results(experiment: &Experiment, reason: &str) -> Self {
        let mut finding = Self::new(experiment.figure, experiment.scenario_path);
        for claim in &experiment.figure.claims {
            finding.add_unmeasured(claim, reason.to_owned());
        }
        finding
    }

    /// Returns a finding with all claims compared, still without table, charts and sentences.
    pub(super) fn with_claims(
        experiment: &Experiment,
        extent: Extent,
        results: &[&TrialResult],
        evidence: &Evidence,
    ) -> Self {
        let mut finding = Self::new(experiment.figure, experiment.scenario_path);
        finding.run_count = results.len();
        match extent {
            Extent::Quick => finding.omissions = experiment.omissions(results),
            Extent::Full => finding.missing_runs = experiment.missing_runs(results),
        }
        let disturbed_count = results.iter().filter(|result| !result.disturbed.is_empty()).count();
        if disturbed_count > 0 {
            finding.warnings.push(format!(
                "{disturbed_count} of {} runs were disturbed at every attempt and are counted \
                 nevertheless: the machine was overloaded.",
                results.len()
            ));
        }
        for claim in &experiment.figure.claims {
            finding.compare_claim(claim, results, evidence);
        }
        finding
    }

    /// Adds the comparison of our measurement with a claim.
    pub(super) fn compare_claim(
        &mut self,
        claim: &'static Claim,
        results: &[&TrialResult],
        evidence: &Evidence,
    ) {
        let (measurement_text, value, interval, verdict) = match evaluate(claim, results, evidence)
        {
            Evaluation::Missing => return self.add_unmeasured(claim, "no runs".to_owned()),
            Evaluation::Cells(counts) => {
                let (value, range) = counts.share();
                let measured = MeasuredValue { value, interval: Some(range) };
                let verdict = if counts.is_judged() {
                    Judgement::standard().judge(claim.expected, measured)
                } else {
                    ClaimResult::NotJudged
                };
                let note = claim.note.render(&|_| None);
                (with_note(counts.text(), note.as_deref()), value, Some(range), verdict)
            }
            Evaluation::NoteOnly(value, note) => {
                let note_text = claim.note.render(&|name| note.get(name).map(String::as_str));
                (note_text.unwrap_or_default(), value, None, ClaimResult::NotJudged)
            }
            Evaluation::Comparable(measured, note) => {
                let note = claim.note.render(&|name| note.get(name).map(String::as_str));
                let value_text = claim.expected.format_value(measured)
                    + &claim.expected.format_interval(measured);
                let verdict = Judgement::standard().judge(claim.expected, measured);
                (with_note(value_text, note.as_deref()), measured.value, measured.interval, verdict)
            }
        };
        self.claim_rows.push(ClaimRow {
            claim,
            ours: measurement_text,
            value: Some(value),
            interval,
            verdict,
        });
    }

    pub(super) fn add_unmeasured(&mut self, claim: &'static Claim, reason: String) {
        self.claim_rows.push(ClaimRow {
            claim,
            ours: reason,
            value: None,
            interval: None,
            verdict: ClaimResult::NotMeasured,
        });
    }

    /// Adds the sentences of the report.
    pub(super) fn add_report_texts(&mut self, facts: &Facts) {
        let report = self.figure.report();
        let render = |remark: &'static Remark| {
            let is_applicable = remark.when.is_empty()
                || remark.when.iter().any(|key| self.is_not_fully_reproduced(key));
            let elements = facts.elements_of(remark.each.as_deref()).filter(move |values| {
                is_applicable && remark.needs.iter().all(|name| values.contains_key(name.as_str()))
            });
            elements.filter_map(|values| {
                remark.text.render(&|name| values.get(name).map(String::as_str))
            })
        };
        let sentences: Vec<_> = report.sentences.iter().flat_map(render).collect();
        let interpretations: Vec<_> = report.readings.iter().flat_map(render).collect();
        let warnings: Vec<_> = report.warnings.iter().flat_map(render).collect();
        self.sentences.extend(sentences);
        self.interpretations.extend(interpretations);
        self.warnings.extend(warnings);
    }

    /// Returns whether a claim was judged and is not fully reproduced.
    fn is_not_fully_reproduced(&self, key: &str) -> bool {
        let row = self.claim_rows.iter().find(|row| row.claim.key == key);
        row.is_some_and(|row| {
            matches!(
                row.verdict,
                ClaimResult::InPart | ClaimResult::NotReproduced | ClaimResult::Undecided
            )
        })
    }

    /// Returns the value that the paper gives in the claim of this key.
    pub(super) fn expected(&self, key: &str) -> Option<Expected> {
        self.figure.claim(key).map(|claim| claim.expected)
    }

    /// Adds the figure's chart; its texts are from the claims file.
    pub(super) fn add_chart(
        &mut self,
        unit: &'static str,
        groups: Vec<DotGroup>,
        reference: Option<f64>,
        scale: AxisScale,
    ) {
        let text = &self.figure.report().chart;
        self.charts.push(Chart {
            name: self.name.to_owned(),
            title: text.title.clone(),
            caption: text.caption.clone(),
            unit,
            groups,
            reference: reference.map(|value| (value, text.reference.clone())),
            scale,
        });
    }
}

fn with_note(value_text: String, note: Option<&str>) -> String {
    match note {
        None | Some("") => value_text,
        Some(note) => format!("{value_text} ({note})"),
    }
}
