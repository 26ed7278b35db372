//! Figure 11 and Table 2: data that arrives after a cancel.

use super::super::claim::Expected;
use super::super::data_table::{DataCell, number_column, text_column};
use super::super::facts::{FactNames, Facts};
use super::super::finding::{AxisScale, Dot, DotGroup, Finding};
use super::super::measure::{Sample, bytes_after_cancel, filter_runs, levels_of};
use super::scheme;
use crate::campaign::TrialResult;
use smig_chart::format_bytes;

const BUFFERS: [&str; 2] = ["default", "large"];

struct SchemeRow {
    buffer: String,
    scheme: String,
    sample: Sample,
    baseline: Sample,
}

fn scheme_rows(results: &[&TrialResult]) -> Vec<SchemeRow> {
    let mut rows = Vec::new();
    for buffer in levels_of(results, "buffer", &BUFFERS) {
        let buffer_runs = filter_runs(results, &[("buffer", &buffer)]);
        let bytes_of = |scheme: &str| {
            bytes_after_cancel(&filter_runs(&buffer_runs, &[("scheme", scheme)]), "big")
        };
        for scheme in levels_of(&buffer_runs, "scheme", &scheme::keys()) {
            let (sample, baseline) = (bytes_of(&scheme), bytes_of("NoMig"));
            rows.push(SchemeRow { buffer: buffer.clone(), scheme, sample, baseline });
        }
    }
    rows
}

fn find<'a>(rows: &'a [SchemeRow], buffer: &str, scheme: &str) -> Option<&'a SchemeRow> {
    rows.iter().find(|row| row.buffer == buffer && row.scheme == scheme)
}

/// The values of [`fill_after_cancel`].
pub(super) const AFTER_CANCEL_FACTS: FactNames = &[
    ("", &["plain_default", "plain_large", "migrated", "serve", "failed"]),
    ("buffer", &["buffer", "amounts"]),
];

/// Fills in finding and facts of Figure 11 or Table 2.
pub(super) fn fill_after_cancel(
    results: &[&TrialResult],
    finding: &mut Finding,
    facts: &mut Facts,
) {
    let rows = scheme_rows(results);
    for buffer in BUFFERS {
        let amounts_by_scheme: Vec<_> = rows
            .iter()
            .filter(|row| row.buffer == buffer)
            .filter_map(|row| {
                let mean = row.sample.mean()?;
                Some(format!("{} {}", scheme::label(&row.scheme), format_bytes(mean as u64)))
            })
            .collect();
        let amounts = Some(amounts_by_scheme.join(", ")).filter(|amounts| !amounts.is_empty());
        facts.push("buffer", [("buffer", Some(buffer.to_owned())), ("amounts", amounts)]);
    }
    let mean_bytes = |buffer, scheme| {
        let mean = find(&rows, buffer, scheme).and_then(|row| row.sample.mean());
        mean.map(|mean| format_bytes(mean as u64))
    };
    let or_none = |amount: Option<String>| amount.or_else(|| Some("no measurement".to_owned()));
    facts.set("plain_default", or_none(mean_bytes("default", "NoMig")));
    facts.set("plain_large", or_none(mean_bytes("large", "NoMig")));
    facts.set("migrated", mean_bytes("default", "MigSW"));
    facts.set("serve", mean_bytes("default", "SMig"));
    facts.set_failed(rows.iter().map(|row| row.sample.failed_count).sum());
    fill_table_and_chart(&rows, finding);
}

/// Returns the bytes that the paper gives for a scheme.
fn paper_bytes(finding: &Finding, scheme: &str) -> Option<f64> {
    let key = match scheme {
        "Http1" => "http1",
        "NoMig" => "http2",
        "Closed" => "closed",
        _ => return None,
    };
    match finding.expected(key) {
        Some(Expected::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

fn fill_table_and_chart(rows: &[SchemeRow], finding: &mut Finding) {
    finding.table.columns = vec![
        text_column("buffer", "send buffers"),
        text_column("scheme", "scheme"),
        number_column("mean_kb", "mean, kB", 0),
        number_column("low_kb", "95 % from", 0),
        number_column("high_kb", "to", 0),
        number_column("less_percent", "less than NoMig, %", 0),
        number_column("less_low_percent", "95 % from", 0),
        number_column("less_high_percent", "to", 0),
        number_column("paper_kb", "the paper, kB", 0),
        number_column("runs", "runs", 0),
    ];
    let mut groups: Vec<DotGroup> = Vec::new();
    for row in rows {
        let kb = |bytes: f64| bytes / 1e3;
        let interval = row.sample.interval();
        let reduction = row.sample.reduction_from(&row.baseline).filter(|_| row.scheme != "NoMig");
        let reduction_interval = reduction.and_then(|less| less.interval);
        let paper_kb = paper_bytes(finding, &row.scheme).map(kb);
        finding.table.rows.push(vec![
            DataCell::text(&row.buffer),
            DataCell::text(scheme::label(&row.scheme)),
            DataCell::of(row.sample.mean().map(kb)),
            DataCell::of(interval.map(|(low, _)| kb(low))),
            DataCell::of(interval.map(|(_, high)| kb(high))),
            DataCell::of(reduction.map(|less| less.value * 100.0)),
            DataCell::of(reduction_interval.map(|(low, _)| low * 100.0)),
            DataCell::of(reduction_interval.map(|(_, high)| high * 100.0)),
            DataCell::of(paper_kb),
            DataCell::Number(row.sample.value_count() as f64),
        ]);
        let title = format!("{} send buffers", row.buffer);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(DotGroup { title, dots: Vec::new() });
        }
        if let (Some(group), Some(mean)) = (groups.last_mut(), row.sample.mean()) {
            group.dots.push(Dot {
                label: scheme::label(&row.scheme),
                colour: scheme::colour(&row.scheme),
                value: kb(mean),
                interval: interval.map(|(low, high)| (kb(low), kb(high))),
                p95: None,
                paper_value: paper_kb,
            });
        }
    }
    finding.add_chart("kB", groups, None, AxisScale::Log);
}
