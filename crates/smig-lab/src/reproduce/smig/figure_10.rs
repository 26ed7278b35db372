//! Figure 10: the download time of the big file.

use super::super::claim::Expected;
use super::super::data_table::{DataCell, number_column, text_column};
use super::super::facts::{FactNames, Facts};
use super::super::finding::{AxisScale, Dot, DotGroup, Finding};
use super::super::measure::{Sample, filter_runs, levels_of, spaced_size, transfer_times};
use super::scheme;
use crate::campaign::TrialResult;

const FILE_SIZES: [&str; 2] = ["10MB", "50MB"];
const BUFFERS: [&str; 2] = ["default", "large"];

struct SchemeRow {
    buffer: String,
    file_size: String,
    scheme: String,
    sample: Sample,
    baseline: Sample,
}

fn scheme_rows(results: &[&TrialResult]) -> Vec<SchemeRow> {
    let mut rows = Vec::new();
    for buffer in levels_of(results, "buffer", &BUFFERS) {
        for file_size in levels_of(results, "big", &FILE_SIZES) {
            let file_runs = filter_runs(results, &[("buffer", &buffer), ("big", &file_size)]);
            let times_of = |scheme: &str| {
                transfer_times(&filter_runs(&file_runs, &[("scheme", scheme)]), "big")
            };
            for scheme in levels_of(&file_runs, "scheme", &scheme::keys()) {
                rows.push(SchemeRow {
                    buffer: buffer.clone(),
                    file_size: file_size.clone(),
                    sample: times_of(&scheme),
                    baseline: times_of("NoMig"),
                    scheme,
                });
            }
        }
    }
    rows
}

/// The values of [`fill_big_file`].
pub(super) const BIG_FILE_FACTS: FactNames = &[("", &["failed"]), ("file", &["file", "times"])];

/// Fills in finding and facts of Figure 10.
pub(super) fn fill_big_file(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let rows = scheme_rows(results);
    for file_size in levels_of(results, "big", &FILE_SIZES) {
        let times_by_scheme: Vec<_> = rows
            .iter()
            .filter(|row| row.file_size == file_size && row.buffer == "default")
            .filter_map(|row| {
                let mean = row.sample.mean()?;
                Some(format!("{} {mean:.2} s", scheme::label(&row.scheme)))
            })
            .collect();
        let times = Some(times_by_scheme.join(", ")).filter(|times| !times.is_empty());
        facts.push("file", [("file", Some(spaced_size(&file_size))), ("times", times)]);
    }
    facts.set_failed(rows.iter().map(|row| row.sample.failed_count).sum());
    fill_table_and_chart(&rows, finding);
}

fn fill_table_and_chart(rows: &[SchemeRow], finding: &mut Finding) {
    finding.table.columns = vec![
        text_column("buffer", "send buffers"),
        text_column("file", "file"),
        text_column("scheme", "scheme"),
        number_column("mean_s", "mean, s", 2),
        number_column("low_s", "95 % from", 2),
        number_column("high_s", "to", 2),
        number_column("more_percent", "longer, %", 1),
        number_column("more_low_percent", "95 % from", 1),
        number_column("more_high_percent", "to", 1),
        number_column("runs", "runs", 0),
    ];
    let mut groups: Vec<DotGroup> = Vec::new();
    for row in rows {
        let interval = row.sample.interval();
        let increase = row.sample.increase_from(&row.baseline);
        let increase = increase.filter(|_| row.scheme != "NoMig");
        let increase_interval = increase.and_then(|more| more.interval);
        finding.table.rows.push(vec![
            DataCell::text(&row.buffer),
            DataCell::text(spaced_size(&row.file_size)),
            DataCell::text(scheme::label(&row.scheme)),
            DataCell::of(row.sample.mean()),
            DataCell::of(interval.map(|(low, _)| low)),
            DataCell::of(interval.map(|(_, high)| high)),
            DataCell::of(increase.map(|more| more.value * 100.0)),
            DataCell::of(increase_interval.map(|(low, _)| low * 100.0)),
            DataCell::of(increase_interval.map(|(_, high)| high * 100.0)),
            DataCell::Number(row.sample.value_count() as f64),
        ]);
        let title = format!("{}, {} send buffers", spaced_size(&row.file_size), row.buffer);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(DotGroup { title, dots: Vec::new() });
        }
        if let (Some(group), Some(mean), Some(baseline)) =
            (groups.last_mut(), row.sample.mean(), row.baseline.mean())
        {
            let percent_of_baseline = |seconds: f64| seconds / baseline * 100.0;
            group.dots.push(Dot {
                label: scheme::label(&row.scheme),
                colour: scheme::colour(&row.scheme),
                value: percent_of_baseline(mean),
                interval: interval
                    .map(|(low, high)| (percent_of_baseline(low), percent_of_baseline(high))),
                p95: None,
                paper_value: None,
            });
        }
    }
    let bound_percent = match finding.expected("existing") {
        Some(Expected::MoreByLessThan(share)) => Some(100.0 + share * 100.0),
        _ => None,
    };
    finding.add_chart("%", groups, bound_percent, AxisScale::Linear);
}
