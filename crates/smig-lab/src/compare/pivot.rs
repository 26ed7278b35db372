//! Comparisons as tables of two axes: a row for each level of one, a column for each level of the other.

use smig_chart::html::{Align, Table};

use super::difference::Comparison;

/// What is compared with what, and the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Pivot {
    /// Metric, and the levels of all other axes.
    pub title: String,
    /// B's median over A's, by the levels of the two axes. A star: the 95 % interval of the ratio does not contain 1.
    pub table: Table,
}

/// Builds a table for each metric and each setting of the other axes, in the order of the comparisons.
///
/// # Errors
/// The axis that a setting lacks: it is not varied, or selected by a side.
pub fn pivot(comparisons: &[Comparison], row: &str, column: &str) -> Result<Vec<Pivot>, String> {
    let mut groups: Vec<(String, Vec<Cell<'_>>)> = Vec::new();
    for comparison in comparisons {
        let level = |axis: &str| {
            let found = comparison.levels.iter().find(|(name, _)| name == axis);
            found.map(|(_, level)| level.as_str()).ok_or_else(|| axis.to_owned())
        };
        let cell = Cell { row: level(row)?, column: level(column)?, comparison };
        let others = comparison.levels.iter().filter(|(axis, _)| axis != row && axis != column);
        let mut title = format!("{}, B/A", comparison.metric);
        for (axis, level) in others {
            title += &format!(", {axis}={level}");
        }
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, cells)) => cells.push(cell),
            None => groups.push((title, vec![cell])),
        }
    }
    let build = |(title, cells): (String, Vec<Cell<'_>>)| {
        let rows = distinct(cells.iter().map(|cell| cell.row));
        let columns = distinct(cells.iter().map(|cell| cell.column));
        let text = |row: &str, column: &str| {
            let cell = cells.iter().find(|cell| cell.row == row && cell.column == column);
            cell.map_or_else(|| "-".to_owned(), |cell| format_ratio(cell.comparison))
        };
        let line = |level: &str| {
            let texts = columns.iter().map(|column| text(level, column));
            std::iter::once(level.to_owned()).chain(texts).collect()
        };
        let names = columns.iter().map(|level| ((*level).to_owned(), Align::Right));
        let corner = (format!("{row} \\ {column}"), Align::Left);
        let table = Table {
            columns: std::iter::once(corner).chain(names).collect(),
            rows: rows.iter().map(|level| line(level)).collect(),
        };
        Pivot { title, table }
    };
    Ok(groups.into_iter().map(build).collect())
}

struct Cell<'a> {
    row: &'a str,
    column: &'a str,
    comparison: &'a Comparison,
}

/// Returns each level once, in the order of their first appearance.
fn distinct<'a>(levels: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for level in levels {
        if !known.contains(&level) {
            known.push(level);
        }
    }
    known
}

fn format_ratio(comparison: &Comparison) -> String {
    let Some(ratio) = comparison.ratio else { return "-".to_owned() };
    let is_clear =
        comparison.ratio_interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0);
    format!("{ratio:.2}{}", if is_clear { "*" } else { "" })
}
