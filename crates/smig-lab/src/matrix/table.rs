//! The report as tables.

use smig_chart::format_number;
use smig_chart::html::{Align, Table};

use super::arm::Arm;
use super::report::{ArmReport, CellReport, MatrixReport};

/// Returns the judged arms of each cell, the worst cells first.
#[must_use]
pub fn to_table(report: &MatrixReport) -> Table {
    let columns = [
        ("cell", Align::Left),
        ("arm", Align::Left),
        ("mean", Align::Right),
        ("p95", Align::Right),
        ("Mbit/s", Align::Right),
        ("download", Align::Right),
        ("all bytes", Align::Right),
        ("p95 to best", Align::Right),
        ("others", Align::Right),
        ("best", Align::Left),
        ("verdict", Align::Left),
    ];
    let mut rows = Vec::new();
    for cell in &report.cells {
        let judged = |report: &&ArmReport| Arm::by_key(report.arm).is_some_and(Arm::is_judged);
        for arm in cell.arms.iter().filter(judged) {
            rows.push(judged_row(cell, arm));
        }
    }
    Table { columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(), rows }
}

fn judged_row(cell: &CellReport, arm: &ArmReport) -> Vec<String> {
    let measured = &arm.measured;
    let mut verdict = arm.verdict.map_or("-", |verdict| verdict.as_str()).to_owned();
    if measured.disturbed_runs > 0 {
        verdict += " (disturbed)";
    }
    vec![
        cell.cell.clone(),
        arm.arm.to_owned(),
        times(arm.mean_ratio),
        times(arm.p95_ratio),
        format_number(measured.bulk_mbit),
        percent(arm.rate_ratio),
        percent(arm.total_ratio),
        to_best(arm),
        percent(arm.others_share),
        cell.winner.unwrap_or_default().to_owned(),
        verdict,
    ]
}

/// Returns how much longer the 95th percentile is than the best baseline's, and its interval.
fn to_best(arm: &ArmReport) -> String {
    let more = |ratio: f64| format!("{:+.0}", (ratio - 1.0) * 100.0);
    match (arm.p95_to_best, arm.p95_to_best_interval) {
        (None, _) => String::new(),
        (Some(ratio), None) => format!("{} %", more(ratio)),
        (Some(ratio), Some(interval)) => {
            format!("{} % ({} to {})", more(ratio), more(interval.low), more(interval.high))
        }
    }
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0))
}

/// Returns everything that was measured, one row for each arm of each cell.
#[must_use]
pub fn to_csv_table(report: &MatrixReport) -> Table {
    let axes: Vec<String> =
        report.cells.first().map(|cell| cell.levels.keys().cloned().collect()).unwrap_or_default();
    let numbers = [
        "runs",
        "disturbed_runs",
        "objects",
        "failed",
        "mean_ms",
        "p95_ms",
        "alone_mean_ms",
        "alone_p95_ms",
        "bulk_mbit",
        "total_mbit",
        "rate_to_best",
        "total_to_best",
        "p95_to_best",
        "p95_to_best_low",
        "p95_to_best_high",
        "other_mbit",
        "others_share",
    ];
    let mut columns = vec![("cell".to_owned(), Align::Left)];
    columns.extend(axes.iter().map(|axis| (axis.clone(), Align::Left)));
    columns.extend(["arm", "verdict"].map(|name| (name.to_owned(), Align::Left)));
    columns.extend(numbers.map(|name| (name.to_owned(), Align::Right)));
    let rows = report.cells.iter().flat_map(|cell| {
        let axes = &axes;
        cell.arms.iter().map(move |arm| csv_row(cell, arm, axes))
    });
    Table { rows: rows.collect(), columns }
}

fn csv_row(cell: &CellReport, arm: &ArmReport, axes: &[String]) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
    let alone = cell.alone.as_ref();
    let measured = &arm.measured;
    let mut row = vec![cell.cell.clone()];
    row.extend(axes.iter().map(|axis| cell.levels.get(axis).cloned().unwrap_or_default()));
    row.push(arm.arm.to_owned());
    row.push(arm.verdict.map_or("", |verdict| verdict.as_str()).to_owned());
    let counts = [measured.runs, measured.disturbed_runs, measured.objects, measured.failed];
    row.extend(counts.map(|count| count.to_string()));
    row.extend(
        [
            Some(measured.mean_ms),
            Some(measured.p95_ms),
            alone.map(|alone| alone.mean_ms),
            alone.map(|alone| alone.p95_ms),
            Some(measured.bulk_mbit),
            Some(measured.total_mbit),
            arm.rate_ratio,
            arm.total_ratio,
            arm.p95_to_best,
            arm.p95_to_best_interval.map(|interval| interval.low),
            arm.p95_to_best_interval.map(|interval| interval.high),
            measured.other_mbit,
            arm.others_share,
        ]
        .map(number),
    );
    row
}
