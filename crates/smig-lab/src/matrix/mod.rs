//! The matrix: many networks and workloads (cells), many ways to transfer (arms), and who is best where.
//!
//! Owns the scenario `scenarios/matrix/matrix.toml`, the selection of its cells and arms, and the report: a table with the
//! worst cells first, comma-separated values, and one picture. [`campaign`](crate::campaign) measures.

mod arm;
mod label;
mod measurement;
mod picture;
mod report;
mod selection;
mod table;
#[cfg(test)]
mod tests;

pub use arm::{Arm, Role, arms};
pub use measurement::Measurement;
pub use picture::draw;
pub use report::{ArmReport, CellReport, Goal, MatrixReport, Verdict};
pub use selection::{SelectionError, keep_machine_hystart, select, select_quick};
pub use table::{to_csv_table, to_table};

use std::path::Path;

use crate::scenario::{Campaign, Diagnostic, SettingsCheck, parse};

/// The path of the scenario in this repository.
pub const SCENARIO_PATH: &str = "scenarios/matrix/matrix.toml";

/// The scenario's text.
pub const SCENARIO_TEXT: &str = include_str!("../../../../scenarios/matrix/matrix.toml");

/// Parses the scenario.
///
/// # Errors
/// Faults in its text, which a test excludes for the settings of this version.
pub fn campaign(check_setting: SettingsCheck<'_>) -> Result<Campaign, Vec<Diagnostic>> {
    parse(SCENARIO_TEXT, "matrix", Path::new("/"), check_setting)
}
