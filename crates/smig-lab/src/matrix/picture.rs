//! The report as one picture: cells from top to bottom, arms from left to right.

use smig_chart::format_number;
use smig_chart::svg::{HeatColumn, HeatField, HeatMap, HeatRow};

use super::arm::{Arm, Role, arms};
use super::label::label;
use super::report::{ArmReport, CellReport, MatrixReport};

const WIDTH: f64 = 900.0;
const LABEL_WIDTH: f64 = 252.0;
/// Times of the objects, relative to those without a download, from which on the shade is strongest.
const MAX_SHADED_RATIO: f64 = 20.0;
/// Arms that begin a group of columns.
const GROUPS: [&str; 3] = ["off", "paced", "moved-unpaced"];

/// Draws the picture, the worst cells first, with the arms that have a result.
#[must_use]
pub fn draw(report: &MatrixReport) -> String {
    let is_measured = |arm: &&Arm| report.cells.iter().any(|cell| cell.arm(arm.key).is_some());
    let shown: Vec<&Arm> = arms().iter().filter(is_measured).collect();
    let column = |arm: &&Arm| HeatColumn {
        name: arm.label.map(str::to_owned),
        is_emphasized: arm.is_judged(),
        begins_group: GROUPS.contains(&arm.key) || arm.role == Role::Reference,
    };
    let row = |cell: &CellReport| HeatRow {
        name: label(&cell.levels),
        tooltip: cell.cell.clone(),
        fields: shown.iter().map(|arm| Some(field(cell, cell.arm(arm.key)?))).collect(),
    };
    let map = HeatMap {
        title: "Small objects beside bulk: 95th percentile, relative to the objects alone".into(),
        description: "For each network and workload, and each way to transfer: how much longer \
                      small objects take beside bulk, and the rate of the bulk."
            .into(),
        width: WIDTH,
        label_width: LABEL_WIDTH,
        shade_legend: (
            "times as long as alone".into(),
            [1.0, 1.5, 3.0, 8.0, MAX_SHADED_RATIO]
                .map(|ratio| (format_number(ratio), shade(ratio)))
                .to_vec(),
        ),
        bar_legend: "rate of the bulk; lost to the row's best:".into(),
        mark_legend: "best: rate divided by delay".into(),
        columns: shown.iter().map(column).collect(),
        row_heading: "Mbit/s, RTT, queue in BDP, control".into(),
        rows: report.cells.iter().map(row).chain([wins(report, &shown)]).collect(),
    };
    map.to_file()
}

/// Returns the last row: in how many cells each arm is the best.
fn wins(report: &MatrixReport, shown: &[&Arm]) -> HeatRow {
    let count = |arm: &&Arm| {
        let wins = report.cells.iter().filter(|cell| cell.winner == Some(arm.key)).count();
        let text = wins.to_string();
        let (shade, bar, is_marked, tooltip) = (0.0, None, false, String::new());
        Some(HeatField { text, shade, bar, is_marked, tooltip })
    };
    HeatRow {
        name: "best in so many of these".into(),
        tooltip: String::new(),
        fields: shown.iter().map(count).collect(),
    }
}

fn field(cell: &CellReport, arm: &ArmReport) -> HeatField {
    let best_mbit =
        cell.arms.iter().map(|arm| arm.measured.bulk_mbit).fold(f64::MIN_POSITIVE, f64::max);
    let share = arm.measured.bulk_mbit / best_mbit;
    let mut tooltip = format!(
        "{}: mean {:.0} ms, p95 {:.0} ms, bulk {} Mbit/s ({:.0} %)",
        Arm::by_key(arm.arm).map_or(arm.arm, |arm| arm.about),
        arm.measured.mean_ms,
        arm.measured.p95_ms,
        format_number(arm.measured.bulk_mbit),
        share * 100.0
    );
    if let Some(verdict) = arm.verdict {
        tooltip = format!("{tooltip}; {}", verdict.as_str());
    }
    HeatField {
        text: arm.p95_ratio.map_or_else(|| "-".into(), short_ratio),
        shade: arm.p95_ratio.map_or(0.0, shade),
        bar: Some(share),
        is_marked: cell.winner == Some(arm.arm),
        tooltip,
    }
}

fn short_ratio(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

/// Returns the shade of a ratio: logarithmic, none at 1.
fn shade(ratio: f64) -> f64 {
    (ratio.max(1.0).ln() / MAX_SHADED_RATIO.ln()).min(1.0)
}
