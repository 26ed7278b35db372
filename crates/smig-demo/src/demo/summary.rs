//! The result as numbers and sentences.
//!
//! Small objects count as "beside the big file" if they were requested during its transfer. Medians
//! and percentiles are those of [`smig_stats`].

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use smig_chart::{format_bytes, format_count, format_ms, format_number};
use smig_link::millis;
use smig_stats::{quantile, sorted_finite};

use super::data::{BackgroundLoad, ConnectionBytes, DemoResult, DemoRun, DemoSetup, Variant};
use super::live::wrap;

/// One run as numbers; a number is `None` if there are no values for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The variant.
    pub variant: Variant,
    /// Number of small objects without concurrent load.
    pub unloaded_objects: usize,
    /// Their median, in ms.
    pub unloaded_median_ms: Option<f64>,
    /// Number of small objects beside the big file.
    pub objects: usize,
    /// Their median, in ms.
    pub median_ms: Option<f64>,
    /// Their 95th percentile, in ms.
    pub p95_ms: Option<f64>,
    /// The maximum, in ms.
    pub max_ms: Option<f64>,
    /// The time from the request for the big file to its last byte, in seconds.
    pub big_file_s: Option<f64>,
    /// Its body's bits over that time, in Mbit/s.
    pub big_file_mbit_per_s: Option<f64>,
    /// Body bytes on each connection.
    pub connections: Vec<ConnectionBytes>,
    /// Number of migrations of the big file.
    pub migrations: usize,
    /// Number of problems.
    pub problems: usize,
}

/// Returns the times of the small objects under one load, in ms, in ascending order.
#[must_use]
pub fn object_times_ms(run: &DemoRun, load: BackgroundLoad) -> Vec<f64> {
    let objects = run.objects.iter().filter(|object| object.load == load);
    sorted_finite(&objects.map(|object| millis::of(object.duration)).collect::<Vec<_>>())
}

/// Summarises one run.
#[must_use]
pub fn summarise(setup: &DemoSetup, run: &DemoRun) -> RunSummary {
    let unloaded_times_ms = object_times_ms(run, BackgroundLoad::Unloaded);
    let beside_times_ms = object_times_ms(run, BackgroundLoad::BigFile);
    let big_file_s = run.big_file_duration().map(|took| millis::of(took) / 1e3);
    let big_file_mbit_per_s =
        big_file_s.filter(|s| *s > 0.0).map(|s| setup.big_file_bytes as f64 * 8e-6 / s);
    RunSummary {
        variant: run.variant,
        unloaded_objects: unloaded_times_ms.len(),
        unloaded_median_ms: quantile(&unloaded_times_ms, 0.5),
        objects: beside_times_ms.len(),
        median_ms: quantile(&beside_times_ms, 0.5),
        p95_ms: quantile(&beside_times_ms, 0.95),
        max_ms: beside_times_ms.last().copied(),
        big_file_s,
        big_file_mbit_per_s,
        connections: run.connections.clone(),
        migrations: run.migrations.len(),
        problems: run.problems.len(),
    }
}

/// Summarises all runs.
#[must_use]
pub fn summaries(result: &DemoResult) -> Vec<RunSummary> {
    result.runs.iter().map(|run| summarise(&result.setup, run)).collect()
}

/// Describes the demonstration in one sentence.
#[must_use]
pub fn describe_setup(setup: &DemoSetup) -> String {
    format!(
        "An object of {} is requested every {} ms while a file of {} downloads, over an emulated \
         link: {}.",
        format_bytes(setup.object_bytes),
        format_number(millis::of(setup.object_interval)),
        format_bytes(setup.big_file_bytes),
        setup.link,
    )
}

/// Returns the findings as sentences; they follow the numbers, whichever variant is ahead.
#[must_use]
pub fn findings(summaries: &[RunSummary]) -> Vec<String> {
    let mut sentences = Vec::new();
    let summary_of = |variant| summaries.iter().find(|summary| summary.variant == variant);
    let unloaded_ms = unloaded_median(summaries);
    for summary in summaries {
        let Some(median) = summary.median_ms else { continue };
        let ratio = unloaded_ms.map_or_else(String::new, |alone| {
            format!(
                ", {} times as long as with nothing else on the link",
                format_number(median / alone)
            )
        });
        let median_text = format_ms(median);
        let beginning = sentence_beginning(summary);
        sentences.push(if sentences.is_empty() {
            format!("{beginning}, the median small object takes {median_text} ms{ratio}.")
        } else {
            format!("{beginning}, it takes {median_text} ms{ratio}.")
        });
    }
    let plain_s = summary_of(Variant::PlainHttp2).and_then(|plain| plain.big_file_s);
    let paced = [
        (Variant::Serve, "at the rate of the path on one connection"),
        (Variant::Smig, "with SMig at both ends"),
    ];
    let others: Vec<_> = paced
        .into_iter()
        .filter_map(|(variant, way)| Some((summary_of(variant)?.big_file_s?, way)))
        .map(|(seconds, way)| {
            let change = plain_s.map_or_else(String::new, |plain_s| change(plain_s, seconds));
            format!("{seconds:.1} s {way}{change}")
        })
        .collect();
    if let Some(plain_s) = plain_s.filter(|_| !others.is_empty()) {
        sentences.push(format!(
            "The big file takes {plain_s:.1} s with plain HTTP/2, {}.",
            others.join(", ")
        ));
    }
    sentences
}

/// Describes by how much a time differs from another one; empty if it hardly does.
fn change(from_s: f64, to_s: f64) -> String {
    match (to_s / from_s - 1.0) * 100.0 {
        less if less <= -0.05 => format!(" ({:.1} % less)", -less),
        more if more >= 0.05 => format!(" ({more:.1} % more)"),
        _ => String::new(),
    }
}

/// Returns the beginning of a sentence about a run.
const fn sentence_beginning(summary: &RunSummary) -> &'static str {
    match summary.variant {
        Variant::PlainHttp2 => "With plain HTTP/2",
        Variant::NotsentLowat => {
            "With TCP_NOTSENT_LOWAT, which keeps the server's send buffer short"
        }
        Variant::Serve => {
            "With smig serve and any HTTP/2 client, where the server sends the big file at the rate of the path"
        }
        Variant::Smig if summary.migrations > 0 => {
            "With SMig at both ends, where the server moved the big file to a connection of its own"
        }
        Variant::Smig => "With SMig at both ends, but without a migration of the big file",
    }
}

/// Returns the median of the runs' medians without load, which differ only by noise.
#[must_use]
pub fn unloaded_median(summaries: &[RunSummary]) -> Option<f64> {
    let mut medians: Vec<f64> = summaries.iter().filter_map(|s| s.unloaded_median_ms).collect();
    medians.sort_by(f64::total_cmp);
    quantile(&medians, 0.5)
}

/// Returns headings and cells of the final table; the first column names the run.
#[must_use]
pub fn table(summaries: &[RunSummary]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let headings =
        vec!["", "alone, ms", "median, ms", "p95, ms", "max, ms", "big file, s", "Mbit/s", "moves"];
    let or_dash =
        |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "–".into(), text);
    let rows = summaries
        .iter()
        .map(|s| {
            vec![
                s.variant.title().to_owned(),
                or_dash(s.unloaded_median_ms, format_ms),
                or_dash(s.median_ms, format_ms),
                or_dash(s.p95_ms, format_ms),
                or_dash(s.max_ms, format_ms),
                or_dash(s.big_file_s, |s| format!("{s:.1}")),
                or_dash(s.big_file_mbit_per_s, |rate| format!("{rate:.2}")),
                s.migrations.to_string(),
            ]
        })
        .collect();
    (headings, rows)
}

/// Formats the bytes of each connection: `connection 1: 1.19 MB, connection 2: 19.2 MB`.
#[must_use]
pub fn format_connections(summary: &RunSummary) -> String {
    let connections = summary.connections.iter();
    let texts: Vec<_> =
        connections.map(|c| format!("{}: {}", c.connection, format_bytes(c.bytes))).collect();
    if texts.is_empty() { "–".into() } else { texts.join(", ") }
}

/// The width of a standard terminal.
const TERMINAL_COLUMNS: usize = 80;

/// Renders the result as text, at most 80 columns wide.
#[must_use]
pub fn render_text(result: &DemoResult) -> String {
    let summaries = summaries(result);
    let (headings, rows) = table(&summaries);
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let words = headings[column].split(", ").map(str::len);
        cells.chain(words).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = String::new();
    // Headings on two lines: the quantity, then its unit.
    for heading_line in 0..2 {
        let cell = |column: usize| headings[column].split(", ").nth(heading_line).unwrap_or("");
        push_row(&mut out, &widths, |column| cell(column).to_owned());
    }
    for row in &rows {
        push_row(&mut out, &widths, |column| row[column].clone());
    }
    out.push('\n');
    for summary in summaries.iter().filter(|summary| !summary.connections.is_empty()) {
        let _ = writeln!(out, "{:<26}  {}", summary.variant, format_connections(summary));
    }
    for (run, summary) in result.runs.iter().zip(&summaries) {
        for problem in &run.problems {
            let _ = writeln!(
                out,
                "{}",
                wrap(&format!("{}: {problem}", summary.variant), TERMINAL_COLUMNS)
            );
        }
    }
    if let Some(warning) = lateness_warning(result) {
        let _ = writeln!(out, "\n{}", wrap(&warning, TERMINAL_COLUMNS));
    }
    out
}

fn push_row(out: &mut String, widths: &[usize], cell: impl Fn(usize) -> String) {
    let mut text = String::new();
    for (column, width) in widths.iter().enumerate() {
        let cell = cell(column);
        let _ = if column == 0 {
            write!(text, "{cell:<width$}")
        } else {
            write!(text, "  {cell:>width$}")
        };
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Maximum lateness of packets that does not affect measurements of a round trip of tens of
/// milliseconds.
const MAX_LATENESS_MS: f64 = 2.0;

/// Returns a warning if packets were so late that the numbers may not reflect the link alone.
#[must_use]
pub fn lateness_warning(result: &DemoResult) -> Option<String> {
    let lateness_ms = |run: &DemoRun| run.link.map_or(0.0, |link| millis::of(link.lateness.p99));
    let runs: Vec<_> =
        result.runs.iter().filter(|run| lateness_ms(run) > MAX_LATENESS_MS).collect();
    let worst = runs.iter().map(|run| lateness_ms(run)).max_by(f64::total_cmp)?;
    Some(format!(
        "The machine was overloaded: in {}, one packet in a hundred was over {} ms late (in the worst, over {} ms). \
         Repeat the demo on an idle machine before relying on small differences.",
        format_count(runs.len(), "run"),
        format_number(MAX_LATENESS_MS),
        format_number(worst),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::fixtures;

    #[test]
    fn objects_before_the_big_file_count_as_unloaded() {
        let result = fixtures::result();
        let summaries = summaries(&result);
        for (run, summary) in result.runs.iter().zip(&summaries) {
            assert_eq!(summary.unloaded_objects, 6);
            assert_eq!(summary.objects + 6, run.objects.len());
            let alone = summary.unloaded_median_ms.unwrap();
            assert!((60.0..64.1).contains(&alone), "{alone}");
            let (median, p95, max) =
                (summary.median_ms.unwrap(), summary.p95_ms.unwrap(), summary.max_ms.unwrap());
            assert!(median <= p95 && p95 <= max);
            assert_eq!(run.big_file_bytes(), result.setup.big_file_bytes);
        }
    }

    #[test]
    fn the_text_fits_eighty_columns_and_lines_up() {
        let text = render_text(&fixtures::result());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_sentences_say_what_the_numbers_say() {
        let result = fixtures::result();
        insta::assert_snapshot!(format!(
            "{}\n\n{}",
            describe_setup(&result.setup),
            findings(&summaries(&result)).join("\n")
        ));
    }

    #[test]
    fn an_unfinished_demonstration_has_dashes_and_no_claims() {
        let mut result = fixtures::result();
        result.runs.truncate(1);
        result.runs[0].objects.clear();
        result.runs[0].big_file_finished_at = None;
        result.runs[0].problems.push("The connection was lost.".into());
        assert!(findings(&summaries(&result)).is_empty());
        let text = render_text(&result);
        assert!(text.contains('–') && text.contains("The connection was lost."), "{text}");
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn a_slower_smig_is_called_slower() {
        let mut result = fixtures::result();
        let run = &mut result.runs[3];
        run.migrations.clear();
        run.big_file_finished_at = run.big_file_finished_at.map(|at| at * 2);
        let text = findings(&summaries(&result)).join("\n");
        assert!(text.contains("without a migration") && text.contains("% more"), "{text}");
    }

    #[test]
    fn a_late_link_is_reported() {
        let mut result = fixtures::result();
        assert_eq!(lateness_warning(&result), None);
        if let Some(link) = &mut result.runs[1].link {
            link.lateness.p99 = Duration::from_millis(7);
        }
        assert!(lateness_warning(&result).unwrap().contains(
            "in 1 run, one packet in a hundred was over 2 ms late (in the worst, over 7 ms)"
        ));
    }
}
