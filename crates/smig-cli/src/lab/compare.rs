//! `smig lab compare`: differences between results, with confidence intervals and effect sizes.
//!
//! Owns the command line and the output. smig-lab computes the numbers.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use smig_chart::table::{to_csv, to_markdown, to_text};
use smig_lab::campaign::read_results;
use smig_lab::compare::{
    Comparison, Selector, compare, order_agreements, pair_by_setting, pivot, series_of, table,
};
use smig_lab::trial::TrialResult;
use smig_stats::Bootstrap;

use super::run::DisturbedRuns;
use crate::exit::{CliError, Exit};
use crate::stdout::{out, outln};

/// Compare results: medians, 95th percentiles, confidence intervals, effect sizes
#[derive(Debug, Args)]
#[command(
    long_about = "Compare results of `smig lab run`.\n\nA side is a directory or file with results, \
        optionally followed by a colon and the levels to select. If the sides have several settings (of the other axes), \
        each setting of B is compared with the same setting of A. Disturbed runs do not count, unless `--disturbed keep` is given.\n\nEach \
        metric has the number of values and runs, median and 95th percentile of both sides, the ratio \
        of the medians with its 95 % confidence interval (a bootstrap that resamples whole runs, in \
        pairs where both sides were measured with the same seeds), Cliff's delta, and the p value of \
        the Mann-Whitney test over the medians of runs. With five settings or more, \
        Spearman's rank correlation says whether A and B put them in the same order. Intervals and p need five runs per side; the \
        verdict follows from the interval of the medians' difference, and a change below 1 % counts as none.",
    after_help = "\
Examples:
  smig lab compare results/fig4:scheme=NoMig :scheme=MigSW
  smig lab compare results/monday results/tuesday
  smig lab compare a b --metric 'small 10 kB' --json | jq '.[] | {metric, ratio}'
  smig lab compare a:scheme=NoMig :scheme=MigSW --format markdown >> notes.md
  smig lab compare pages-results:protocol=http1 :protocol=http2 --metric loaded --pivot objects,total"
)]
pub(crate) struct CompareArgs {
    /// The baseline: DIR or DIR:axis=name,axis=name
    #[arg(value_name = "A", value_parser = Selector::parse)]
    a: Selector,
    /// What to compare with it: the same, or :axis=name for other results in A's directory
    #[arg(value_name = "B", value_parser = Selector::parse)]
    b: Selector,
    /// Only metrics whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    metric: Vec<String>,
    /// Whether disturbed runs, which `smig lab run --disturbed keep` leaves among the results, count
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = DisturbedRuns::Drop)]
    disturbed: DisturbedRuns,
    /// Print everything as JSON, with summaries of the samples
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Format of the table
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Print a table for each metric: a row for each level of the first axis, a column for each level of the second, B/A
    #[arg(long, value_name = "ROWS,COLUMNS", value_parser = parse_axes, conflicts_with = "json")]
    pivot: Option<(String, String)>,
    /// Seed of the bootstrap; the same seed gives the same intervals
    #[arg(long, value_name = "NUMBER", default_value = "21273")]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Markdown,
    Csv,
}

pub(super) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let comparisons = build_comparisons(args)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&comparisons)?);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((row, column)) = &args.pivot {
        return print_pivots(&comparisons, row, column, args.format);
    }
    let table = table(&comparisons);
    match args.format {
        Format::Csv => out!("{}", to_csv(&table)),
        Format::Markdown => out!("{}", to_markdown(&table)),
        Format::Text => {
            out!("{}", to_text(&table));
            outln!("");
            for comparison in &comparisons {
                let setting = &comparison.setting;
                let prefix =
                    if setting.is_empty() { String::new() } else { format!("{setting}: ") };
                outln!("{prefix}{}", comparison.sentence);
            }
            print_order(&comparisons)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says whether both sides put the settings in the same order.
fn print_order(comparisons: &[Comparison]) -> Result<()> {
    for agreement in order_agreements(comparisons) {
        let (metric, settings) = (&agreement.metric, agreement.settings);
        let correlation = agreement.correlation;
        outln!(
            "\n{metric}: the rank correlation of A and B over {settings} settings is {correlation:.2} \
             (1: the same order)."
        );
    }
    Ok(())
}

fn parse_axes(text: &str) -> Result<(String, String), String> {
    let axes = text.split_once(',').filter(|(row, column)| !row.is_empty() && !column.is_empty());
    let (row, column) = axes.ok_or("two axes are needed: rows,columns")?;
    Ok((row.to_owned(), column.to_owned()))
}

fn print_pivots(
    comparisons: &[Comparison],
    row: &str,
    column: &str,
    format: Format,
) -> Result<ExitCode> {
    let pivots = pivot(comparisons, row, column).map_err(|axis| {
        let known: Vec<_> =
            comparisons.iter().flat_map(|one| one.levels.iter().map(|(axis, _)| axis)).collect();
        let mut known: Vec<_> = known.into_iter().map(String::as_str).collect();
        known.sort_unstable();
        known.dedup();
        let text =
            format!("{axis:?} is no axis that both sides vary; these are: {}", known.join(", "));
        CliError::new(Exit::Usage, text)
    })?;
    for (number, pivot) in pivots.iter().enumerate() {
        if number > 0 {
            outln!("");
        }
        outln!("{}\n", pivot.title);
        match format {
            Format::Csv => out!("{}", to_csv(&pivot.table)),
            Format::Markdown => out!("{}", to_markdown(&pivot.table)),
            Format::Text => out!("{}", to_text(&pivot.table)),
        }
    }
    if format == Format::Text {
        print_order(comparisons)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build_comparisons(args: &CompareArgs) -> Result<Vec<Comparison>, CliError> {
    let a_path = args.a.path.as_deref().ok_or_else(|| {
        CliError::new(Exit::Usage, "A needs a directory before its colon; only B can omit it")
    })?;
    let a_results = read(a_path)?;
    let b_results = args.b.path.as_deref().map(read).transpose()?;
    let a = Side::new(&args.a, &a_results, args.disturbed);
    let b = Side::new(&args.b, b_results.as_ref().unwrap_or(&a_results), args.disturbed);
    let groups = pair_by_setting((a.selector, &a.results), (b.selector, &b.results));
    if groups.is_empty() {
        return Err(nothing_to_compare(&a, &b));
    }
    let bootstrap = Bootstrap { seed: args.seed, ..Bootstrap::default() };
    let (a_label, b_label) = labels(args);
    let is_selected = |metric: &str| {
        args.metric.is_empty() || args.metric.iter().any(|text| metric.contains(text.as_str()))
    };
    let mut comparisons = Vec::new();
    let mut metrics = Vec::new();
    for group in &groups {
        let (a, b) = (series_of(&group.a), series_of(&group.b));
        for b in &b {
            metrics.push(b.metric.clone());
            if let Some(a) = a.iter().find(|a| a.metric == b.metric && is_selected(&a.metric)) {
                let (a, b) = ((a_label.as_str(), a), (b_label.as_str(), b));
                comparisons.extend(compare(&group.levels, a, b, &bootstrap));
            }
        }
    }
    if comparisons.is_empty() {
        metrics.sort_unstable();
        metrics.dedup();
        let text = format!("no such metric on both sides; known metrics: {}", metrics.join("; "));
        return Err(CliError::new(Exit::Usage, text));
    }
    Ok(comparisons)
}

fn read(path: &Path) -> Result<Vec<TrialResult>, CliError> {
    let display_path = path.display();
    read_results(path).map_err(|error| {
        let text =
            format!("cannot read results in {display_path}: {error}; `smig lab run` writes them");
        CliError::new(Exit::Read, text)
    })
}

/// What is known of one side.
struct Side<'a> {
    selector: &'a Selector,
    /// Results that count, whether the selector matches them or not.
    results: Vec<&'a TrialResult>,
    /// Number of results that the selector matches, and that do not count.
    dropped_count: usize,
}

impl<'a> Side<'a> {
    fn new(selector: &'a Selector, all: &'a [TrialResult], disturbed: DisturbedRuns) -> Self {
        let (results, dropped): (Vec<_>, Vec<_>) = all
            .iter()
            .partition(|result| disturbed == DisturbedRuns::Keep || result.disturbed.is_empty());
        let dropped_count =
            dropped.iter().filter(|result| selector.matches(&result.id.condition)).count();
        Self { selector, results, dropped_count }
    }

    /// Explains why nothing of this side can be compared; none if something can.
    fn explain_absence(&self) -> Option<String> {
        let selector = self.selector;
        let conditions = || self.results.iter().map(|result| &result.id.condition);
        if conditions().any(|condition| selector.matches(condition)) {
            return None;
        }
        if self.dropped_count > 0 {
            return Some(format!(
                "all runs of {selector} ({}) were disturbed; `--disturbed keep` compares them all \
                 the same",
                self.dropped_count
            ));
        }
        let mut names: Vec<String> = conditions().map(ToString::to_string).collect();
        names.sort_unstable();
        names.dedup();
        let text = if names.is_empty() { "no results".to_owned() } else { names.join("; ") };
        Some(format!("nothing matches {selector}; found: {text}"))
    }
}

/// Returns short labels of the two sides, or long ones if the short ones are equal.
fn labels(args: &CompareArgs) -> (String, String) {
    let (a, b) = (args.a.label(), args.b.label());
    if a == b { (args.a.to_string(), args.b.to_string()) } else { (a, b) }
}

/// Explains why there is nothing to compare.
fn nothing_to_compare(a: &Side<'_>, b: &Side<'_>) -> CliError {
    let text = a.explain_absence().or_else(|| b.explain_absence()).unwrap_or_else(|| {
        let mut text =
            "no setting is on both sides; name the level that differs on each side, such as \
             DIR:scheme=NoMig :scheme=MigSW"
                .to_owned();
        let dropped_count = a.dropped_count + b.dropped_count;
        if dropped_count > 0 {
            text += &format!("; {dropped_count} disturbed runs do not count (`--disturbed keep`)");
        }
        text
    });
    CliError::new(Exit::Usage, text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestCli {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn error_of(sides: &[&str]) -> String {
        let cli = TestCli::try_parse_from(["compare"].iter().chain(sides));
        match cli {
            Err(error) => error.to_string(),
            Ok(line) => run(&line.args).unwrap_err().to_string(),
        }
    }

    #[test]
    fn incomparable_sides_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let empty_directory = dir.path().to_str().unwrap();
        assert!(error_of(&[":scheme=NoMig", empty_directory]).contains("A needs a directory"));
        assert!(error_of(&[empty_directory, ":scheme"]).contains("cannot read results in :scheme"));
        assert!(error_of(&[empty_directory, ":a=b,c"]).contains("axis=name"));
        assert!(error_of(&["no/such/folder", ":a=b"]).contains("smig lab run"));
        assert!(error_of(&[empty_directory, ":a=b"]).contains("found: no results"));
    }
}
