//! Comparisons as a table.

use smig_chart::format_number;
use smig_chart::html::{Align, Table};
use smig_stats::Interval;

use super::difference::Comparison;
use super::sentence::format_p;

/// Builds a table with one row per comparison, for any of the report's writers.
#[must_use]
pub fn table(comparisons: &[Comparison]) -> Table {
    let has_setting = comparisons.iter().any(|c| !c.setting.is_empty());
    let head = [
        ("setting", Align::Left),
        ("metric", Align::Left),
        ("unit", Align::Left),
        ("A", Align::Left),
        ("B", Align::Left),
        ("n A", Align::Right),
        ("n B", Align::Right),
        ("median A", Align::Right),
        ("median B", Align::Right),
        ("p95 A", Align::Right),
        ("p95 B", Align::Right),
        ("B/A", Align::Right),
        ("95 % interval", Align::Right),
        ("Cliff's delta", Align::Right),
        ("p", Align::Right),
    ];
    let skipped_columns = usize::from(!has_setting);
    Table {
        columns: head
            .into_iter()
            .skip(skipped_columns)
            .map(|(name, align)| (name.into(), align))
            .collect(),
        rows: comparisons
            .iter()
            .map(|c| row(c).into_iter().skip(skipped_columns).collect())
            .collect(),
    }
}

fn row(c: &Comparison) -> Vec<String> {
    let count =
        |side: &super::difference::SideSummary| format!("{} in {}", side.summary.n, side.runs);
    let interval = |interval: Interval| {
        format!("{} to {}", format_number(interval.low), format_number(interval.high))
    };
    let p = |test: smig_stats::RankTest| format_p(test.p).trim_start_matches("= ").to_owned();
    vec![
        c.setting.clone(),
        c.metric.clone(),
        c.unit.clone(),
        c.a.label.clone(),
        c.b.label.clone(),
        count(&c.a),
        count(&c.b),
        format_number(c.a.summary.median),
        format_number(c.b.summary.median),
        format_number(c.a.summary.p95),
        format_number(c.b.summary.p95),
        c.ratio.map_or_else(|| "-".into(), format_number),
        c.ratio_interval.map_or_else(|| "-".into(), interval),
        format!("{:.2} {}", c.effect.delta, c.effect.magnitude),
        c.test.map_or_else(|| "-".into(), p),
    ]
}
