//! Which cells and arms are measured.

use std::collections::BTreeSet;

use smig_settings::suggest;

use super::arm::{Arm, arms};
use crate::scenario::{Campaign, Cell};

/// The cells of `--quick`: networks in which something is known to be lost, without those that need root.
const QUICK_CELLS: [&str; 8] = [
    "r10-t50-q1-cubic",
    "r10-t50-q16-cubic",
    "r100-t80-q1-cubic",
    "r2-t50-q4-cubic",
    "r10-t50-q1-cubic-some",
    "r10-t50-q1-cubic-cubic",
    "r30-t20-q1-cubic-game",
    "r10-t50-q1-cubic-starved",
];
/// The arms of `--quick`.
const QUICK_ARMS: [&str; 5] = ["alone", "off", "lowat", "paced", "moved"];

/// Nothing to measure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// No cell matches a pattern.
    #[error("no cell has {0:?} in its name, and it is no AXIS=LEVEL; `--plan` lists all")]
    NoCell(String),
    /// An arm is unknown.
    #[error("unknown arm {name:?}; {hint}known: {known}")]
    UnknownArm {
        /// The name.
        name: String,
        /// A similar name.
        hint: String,
        /// All names.
        known: String,
    },
}

/// Keeps the cells that match any pattern (a name, a part of names, or `AXIS=LEVEL`), and the named arms with the
/// reference; all if there are no patterns, or no names.
///
/// # Errors
/// [`SelectionError`].
pub fn select(
    campaign: &mut Campaign,
    patterns: &[String],
    arm_names: &[String],
) -> Result<(), SelectionError> {
    if !patterns.is_empty() {
        for pattern in patterns {
            if !campaign.cells.iter().any(|cell| matches(cell, pattern)) {
                return Err(SelectionError::NoCell(pattern.clone()));
            }
        }
        let names: BTreeSet<_> = campaign.cells.iter().map(|cell| cell.name.clone()).collect();
        // A whole name is not a part of others.
        let selects = |pattern: &String, cell: &Cell| match names.contains(pattern) {
            true => cell.name == *pattern,
            false => matches(cell, pattern),
        };
        campaign.cells.retain(|cell| patterns.iter().any(|pattern| selects(pattern, cell)));
    }
    let mut kept: BTreeSet<&str> = arms().iter().map(|arm| arm.key).collect();
    if !arm_names.is_empty() {
        for name in arm_names {
            if Arm::by_key(name).is_none() {
                return Err(unknown_arm(name));
            }
        }
        kept = arm_names.iter().map(String::as_str).chain(["alone"]).collect();
    }
    keep(campaign, &kept);
    Ok(())
}

/// Keeps eight cells and five arms. They leave the machine's HyStart as it is, so that they neither need root nor wait
/// for other users of it.
pub fn select_quick(campaign: &mut Campaign) {
    keep_machine_hystart(campaign);
    campaign.cells.retain(|cell| QUICK_CELLS.contains(&cell.name.as_str()));
    keep(campaign, &BTreeSet::from(QUICK_ARMS));
}

/// Leaves the machine's HyStart as it is, which is on, for a user who may not set it: removes the cells without it.
pub fn keep_machine_hystart(campaign: &mut Campaign) {
    campaign.cells.retain(|cell| cell.level("hystart") != Some("off"));
    for condition in &mut campaign.conditions {
        condition.scenario.hosts.server.hystart = None;
    }
    let arm_keys = arms().iter().map(|arm| arm.key).collect();
    keep(campaign, &arm_keys);
}

/// Removes the conditions of other cells and arms.
fn keep(campaign: &mut Campaign, arms: &BTreeSet<&str>) {
    let cells: BTreeSet<_> = campaign.cells.iter().map(|cell| cell.name.clone()).collect();
    campaign.conditions.retain(|condition| {
        condition.name.level("cell").is_some_and(|cell| cells.contains(cell))
            && condition.name.level("arm").is_some_and(|arm| arms.contains(arm))
    });
}

fn matches(cell: &Cell, pattern: &str) -> bool {
    match pattern.split_once('=') {
        Some((axis, level)) => cell.level(axis) == Some(level),
        None => cell.name.contains(pattern),
    }
}

fn unknown_arm(name: &str) -> SelectionError {
    let known = || arms().iter().map(|arm| arm.key);
    let hint = suggest(name, known())
        .map_or_else(String::new, |similar| format!("did you mean {similar:?}? "));
    let known = known().collect::<Vec<_>>().join(", ");
    SelectionError::UnknownArm { name: name.to_owned(), hint, known }
}
