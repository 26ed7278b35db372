//! Cells: a written-down fraction of the combinations of several axes' levels.
//!
//! `[variants]` multiply: with ten axes there are too many combinations to measure. `[levels]` has the keys of each
//! level of each axis, and `[cells]` names the combinations that are measured, each with one level of each axis.

use std::collections::BTreeMap;

use smig_settings::{Diagnostic, KeyLocations, suggest};
use toml::Table;

use super::trials::ConditionName;

/// The axis on which a condition's level is the name of its cell.
pub(super) const CELL_AXIS: &str = "cell";

/// The keys of each level, by axis.
pub(super) type Levels = BTreeMap<String, BTreeMap<String, Table>>;

/// A cell in a file: its levels by axis. Axes that it does not name have their first level.
pub(super) type CellTable = BTreeMap<String, String>;

/// Combinations that are left out: names by axis, of cells' levels and of variants.
pub(super) type SkipTable = BTreeMap<String, String>;

/// One combination of levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Name of the cell: the level of its conditions on the axis `cell`.
    pub name: String,
    /// Axes and levels, in the order of the file, with those that are the axis's first.
    pub levels: Vec<(String, String)>,
}

impl Cell {
    /// Returns the cell's level on an axis.
    #[must_use]
    pub fn level(&self, axis: &str) -> Option<&str> {
        self.levels.iter().find(|(name, _)| name == axis).map(|(_, level)| level.as_str())
    }
}

/// A combination to measure, and the tables that make it, as key paths in the file; later ones override earlier ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Combination {
    pub(super) name: ConditionName,
    pub(super) layers: Vec<Vec<String>>,
}

/// Returns the faults of tables that no combination matches: they have a misspelt name.
pub(super) fn unused_skips(
    locations: &KeyLocations<'_>,
    skips: &[SkipTable],
    combinations: &[Combination],
) -> Vec<Diagnostic> {
    let unused = |(index, skip): (usize, &SkipTable)| {
        if combinations.iter().any(|combination| combination.matches(skip)) {
            return None;
        }
        let path = ["skip".to_owned(), index.to_string()];
        let message = "no combination has these levels".to_owned();
        Some(Diagnostic { line: locations.find(&path).line, key: path.join("."), message })
    };
    skips.iter().enumerate().filter_map(unused).collect()
}

impl Combination {
    /// Returns whether the combination has all of these levels.
    pub(super) fn matches(&self, skip: &SkipTable) -> bool {
        skip.iter().all(|(axis, name)| {
            let is_level =
                |path: &Vec<String>| matches!(&path[..], [_, a, n] if a == axis && n == name);
            self.layers.iter().any(is_level)
        })
    }

    /// Returns the combination with a variant of another axis.
    pub(super) fn with_variant(&self, axis: &str, name: &str) -> Self {
        let mut layers = self.layers.clone();
        layers.push(vec!["variants".into(), axis.into(), name.into()]);
        Self { name: self.name.with_level(axis, name), layers }
    }
}

/// Returns the cells in the file's order, and faults in their names of axes and levels.
pub(super) fn cells(
    locations: &KeyLocations<'_>,
    levels: &Levels,
    tables: &BTreeMap<String, CellTable>,
) -> (Vec<Cell>, Vec<Diagnostic>) {
    let axes: Vec<_> = locations
        .keys(&["levels"])
        .into_iter()
        .map(|axis| (locations.keys(&["levels", &axis]), axis))
        .filter(|(names, axis)| levels.contains_key(axis) && !names.is_empty())
        .collect();
    let (mut cells, mut faults) = (Vec::new(), Vec::new());
    for name in locations.keys(&["cells"]) {
        let Some(table) = tables.get(&name) else { continue };
        for (axis, level) in table {
            let known = axes.iter().find(|(_, other)| other == axis);
            let message = match known {
                None => unknown("axis", axis, axes.iter().map(|(_, axis)| axis.as_str())),
                Some((names, _)) if !names.contains(level) => {
                    unknown(&format!("level of {axis}"), level, names.iter().map(String::as_str))
                }
                Some(_) => continue,
            };
            let path = ["cells", &name, axis].map(str::to_owned);
            let key = path.join(".");
            faults.push(Diagnostic { line: locations.find(&path).line, key, message });
        }
        let level = |(names, axis): &(Vec<String>, String)| {
            let level = table.get(axis).or_else(|| names.first())?;
            Some((axis.clone(), level.clone()))
        };
        cells.push(Cell { levels: axes.iter().filter_map(level).collect(), name });
    }
    (cells, faults)
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let similar = suggest(name, known.clone());
    let hint = similar.map_or_else(String::new, |similar| format!("did you mean {similar:?}? "));
    format!("unknown {what} {name:?}; {hint}known: {}", known.collect::<Vec<_>>().join(", "))
}

/// Returns a combination for each cell; without cells the one that nothing overrides.
pub(super) fn combinations(cells: &[Cell]) -> Vec<Combination> {
    if cells.is_empty() {
        return vec![Combination::default()];
    }
    let combination = |cell: &Cell| Combination {
        name: ConditionName::default().with_level(CELL_AXIS, &cell.name),
        layers: (cell.levels.iter())
            .map(|(axis, level)| vec!["levels".into(), axis.clone(), level.clone()])
            .collect(),
    };
    cells.iter().map(combination).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::scenario::{Campaign, Shard, parse};

    const TEXT: &str = "\
seed = 1
[link.both]
delay_ms = 5
queue = { bdp = 1 }
[servers.main]
kind = 'smig'
[clients.user]
kind = 'smig'
[workload.transfers.big]
size = '5MB'
[levels.rate.slow]
link.both.rate = '12 Mbit/s'
[levels.rate.fast]
link.both.rate = '120 Mbit/s'
[levels.control.cubic]
hosts.server.congestion_control = 'cubic'
[levels.control.bbr]
hosts.server.congestion_control = 'bbr'
[variants.arm.moved]
[variants.arm.nginx]
servers.main.kind = 'nginx'
";

    fn read(cells: &str) -> Result<Campaign, String> {
        let text = format!("{TEXT}{cells}");
        parse(&text, "test", Path::new("/"), &|_| Ok(()))
            .map_err(|faults| format!("{}: {}", faults[0].key, faults[0].message))
    }

    #[test]
    fn each_cell_is_measured_with_each_variant() {
        let campaign =
            read("[cells]\nz = { rate = 'fast' }\na = { control = 'bbr', rate = 'slow' }\n")
                .unwrap();
        let names: Vec<_> =
            campaign.conditions.iter().map(|condition| condition.name.to_string()).collect();
        assert_eq!(
            names,
            ["cell=z arm=moved", "cell=z arm=nginx", "cell=a arm=moved", "cell=a arm=nginx"]
        );
        let scenario = |index: usize| &campaign.conditions[index].scenario;
        let control = |index| scenario(index).hosts.server.congestion_control.as_deref();
        assert_eq!((control(0), control(3)), (Some("cubic"), Some("bbr")));
        let queue = |index| scenario(index).link.to_client.queue.packets;
        assert_eq!((queue(1), queue(2)), (100, 10), "1 BDP of each rate");
        assert_eq!(campaign.cells[0].level("control"), Some("cubic"), "the first level");
        assert_eq!(campaign.cells[1].level("rate"), Some("slow"));
        assert_eq!(campaign.cells[1].level("weather"), None);
    }

    #[test]
    fn skipped_combinations_are_left_out() {
        let cells =
            "[cells]\na = {}\nb = { rate = 'fast' }\n[[skip]]\nrate = 'fast'\narm = 'nginx'\n";
        let campaign = read(cells).unwrap();
        let names: Vec<_> =
            campaign.conditions.iter().map(|condition| condition.name.to_string()).collect();
        assert_eq!(names, ["cell=a arm=moved", "cell=a arm=nginx", "cell=b arm=moved"]);
    }

    #[test]
    fn a_cells_trials_are_in_one_shard() {
        let cells = "[cells]\na = {}\nb = { rate = 'fast' }\nc = { control = 'bbr' }\n";
        let campaign = read(cells).unwrap();
        let ids = |index| {
            let selected = Shard { index, count: 2 }.select(campaign.trials(), 1);
            selected.iter().map(|trial| trial.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(2), ["cell=b arm=moved #1", "cell=b arm=nginx #1"]);
        assert_eq!(ids(1).len(), 4);
    }

    #[test]
    fn faults_name_the_cell_or_the_level() {
        for (cells, key, message) in [
            ("[cells]\na = { rate = 'fest' }\n", "cells.a.rate", "did you mean \"fast\"?"),
            ("[cells]\na = { rat = 'fast' }\n", "cells.a.rat", "did you mean \"rate\"?"),
            ("", "levels", "no cell"),
            ("[cells]\na = {}\n[[skip]]\nrate = 'fast'\n", "skip.0", "no combination"),
            ("[variants.cell.x]\n[cells]\na = {}\n", "variants.cell", "rename"),
            (
                "[levels.control.odd]\nhosts.server.congestion = 'odd'\n[cells]\na = { control = 'odd' }\n",
                "hosts.server.congestion",
                "unknown field",
            ),
        ] {
            let error = read(cells).unwrap_err();
            assert!(error.starts_with(key) && error.contains(message), "{error}");
        }
    }
}
