//! Figures 1a and 1b: the difference between HTTP/1.1's and HTTP/2's speed index, as a heat map for each network.

use super::super::drawing::{Drawing, Shape};
use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::page_table::{
    BASELINE, PageAxis, PageCell, PageCells, difference_s, protocol_label, size_label,
};
use super::CONTROLS;
use crate::campaign::TrialResult;
use crate::workload::PageMetric;
use smig_chart::format_number;
use smig_chart::svg::{HeatColumn, HeatField, HeatMap, HeatRow};

const TIME: PageMetric = PageMetric::SpeedIndex;
const WIDE_LABELS: f64 = 146.0;
const NARROW_LABELS: f64 = 96.0;
/// The ratio from which on the shade is strongest.
const MAX_SHADED_RATIO: f64 = 4.0;

const AXES: &[PageAxis] = &[
    PageAxis {
        key: "network",
        heading: "network",
        levels: &["fiber", "slowdown", "jitter", "lte-like"],
    },
    PageAxis { key: "control", heading: "control", levels: CONTROLS },
    PageAxis { key: "window", heading: "initial window", levels: &["10", "20", "40"] },
    PageAxis {
        key: "total",
        heading: "total",
        levels: &["40kB", "140kB", "550kB", "2300kB", "9MB"],
    },
    PageAxis { key: "objects", heading: "objects", levels: &["6", "48", "96", "192"] },
];

/// A page: its window, total and number of objects.
type PageLevels<'a> = [&'a str; 3];

/// Fills in the table, and a heat map for each network.
pub(super) fn fill(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pages = PageCells::new(results, AXES);
    pages.fill(TIME, finding, facts);
    for network in pages.levels_of("network") {
        finding.drawings.push(draw(&pages, network, finding.name));
    }
}

/// Returns the pages that were loaded in a network, in the order of the paper's figure: larger windows last.
fn pages_of<'a>(pages: &'a PageCells, network: &str) -> Vec<PageLevels<'a>> {
    let mut found = Vec::new();
    for window in pages.levels_of("window") {
        for total in pages.levels_of("total") {
            for objects in pages.levels_of("objects") {
                let is_here = |cell: &PageCell| {
                    cell.levels[0] == network && cell.levels[2..] == [window, total, objects]
                };
                if pages.cells.iter().any(is_here) {
                    found.push([window, total, objects]);
                }
            }
        }
    }
    found
}

/// A row of the paper's figure: a way to load pages, and a congestion control.
type RowLevels<'a> = (&'a str, &'a str);

/// Returns the rows that were measured in a network: the paper's HTTP/2 first.
fn rows_of<'a>(pages: &'a PageCells, network: &str) -> Vec<RowLevels<'a>> {
    let mut protocols: Vec<&str> = Vec::new();
    for cell in pages.cells.iter().filter(|cell| cell.levels[0] == network) {
        if cell.protocol != BASELINE && !protocols.contains(&cell.protocol.as_str()) {
            protocols.push(&cell.protocol);
        }
    }
    let mut rows = Vec::new();
    for protocol in protocols {
        for control in pages.levels_of("control") {
            let is_here = |cell: &PageCell| {
                cell.levels[..2] == [network, control] && cell.protocol == protocol
            };
            if pages.cells.iter().any(is_here) {
                rows.push((protocol, control));
            }
        }
    }
    rows
}

fn draw(pages: &PageCells, network: &str, name: &str) -> Drawing {
    let unit = if network == "fiber" { Unit::Milliseconds } else { Unit::Seconds };
    let (columns, rows) = (pages_of(pages, network), rows_of(pages, network));
    let field = |(protocol, control): RowLevels<'_>, page: PageLevels<'_>| {
        let [window, total, objects] = page;
        let cell = pages.find(&[network, control, window, total, objects], protocol)?;
        field(pages, cell, unit)
    };
    let wide_row = |row: &RowLevels<'_>| HeatRow {
        name: format!("{}, {}", protocol_label(row.0), row.1),
        tooltip: format!("{network}, {}, {}", protocol_label(row.0), row.1),
        fields: columns.iter().map(|page| field(*row, *page)).collect(),
    };
    let http2: Vec<_> = rows.iter().filter(|(protocol, _)| *protocol == "http2").collect();
    let narrow_column = |(_, control): &&RowLevels<'_>| {
        let (first, second) = control.split_once('-').unwrap_or((control, ""));
        HeatColumn {
            name: [first.to_owned(), second.to_owned()],
            is_emphasized: false,
            begins_group: false,
        }
    };
    let narrow_row = |page: &PageLevels<'_>| HeatRow {
        name: format!("{}, {}", group_label(page), page[2]),
        tooltip: format!("{network}, {}, {} objects", group_label(page), page[2]),
        fields: http2.iter().map(|row| field(**row, *page)).collect(),
    };
    let title = |what: &str| format!("{network}: {what}, {}", unit.name());
    let wide = HeatMap {
        columns: wide_columns(&columns),
        rows: rows.iter().map(wide_row).collect(),
        ..empty_map(title("speed index, HTTP/1.1 minus HTTP/2"), WIDE_LABELS, "objects")
    };
    // A phone has no room for the whole title.
    let narrow = HeatMap {
        columns: http2.iter().map(narrow_column).collect(),
        rows: columns.iter().map(narrow_row).collect(),
        ..empty_map(title("HTTP/1.1 minus HTTP/2"), NARROW_LABELS, "total, objects")
    };
    Drawing {
        name: format!("{name}-{network}"),
        caption: caption(network),
        shape: Shape::HeatMaps(Box::new([wide, narrow])),
    }
}

/// Returns a map without rows and columns.
fn empty_map(title: String, label_width: f64, row_heading: &str) -> HeatMap {
    HeatMap {
        title,
        description: "For each page and congestion control: by how much HTTP/2's speed index is less than that of \
                      HTTP/1.1; less than nothing where HTTP/1.1 is ahead."
            .into(),
        width: 860.0,
        label_width,
        shade_legend: (
            "HTTP/2's over HTTP/1.1's".into(),
            [0.25, 0.5, 1.0, 2.0, 4.0].map(|ratio| (format_number(ratio), shade(ratio))).to_vec(),
        ),
        bar_legend: String::new(),
        mark_legend: String::new(),
        row_heading: row_heading.into(),
        columns: Vec::new(),
        rows: Vec::new(),
    }
}

/// Returns a column for each page; the name of a group of them is above its second.
fn wide_columns(pages: &[PageLevels<'_>]) -> Vec<HeatColumn> {
    let begins = |index: usize| index == 0 || pages[index - 1][..2] != pages[index][..2];
    let column = |(index, page): (usize, &PageLevels<'_>)| {
        let is_named = !begins(index) && begins(index - 1);
        let name = if is_named { group_label(page) } else { String::new() };
        HeatColumn {
            name: [name, page[2].to_owned()],
            is_emphasized: false,
            begins_group: begins(index),
        }
    };
    pages.iter().enumerate().map(column).collect()
}

fn caption(network: &str) -> String {
    const HOW_TO_READ: &str = "Numbers are differences of medians: negative where HTTP/1.1 is ahead. Shades are ratios: red where \
                               HTTP/1.1 is ahead, blue where the other is. Rows of smig serve and SMig are compared with HTTP/1.1 \
                               as well.";
    match network {
        "fiber" => format!("As the paper's Figure 1a. {HOW_TO_READ}"),
        "slowdown" => format!(
            "As the paper's Figure 1b; w20 and w40 are the larger initial windows. {HOW_TO_READ}"
        ),
        "jitter" => "Not in the paper's Figure 1: the network of its survey of sites.".into(),
        _ => {
            "Not in the paper's Figure 1: a mobile link in place of its tethered telephone.".into()
        }
    }
}

fn group_label([window, total, _]: &PageLevels<'_>) -> String {
    let total = size_label(total);
    if *window == "10" { total } else { format!("{total} w{window}") }
}

#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Seconds,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// Formats a difference as short as a field is.
    fn format(self, seconds: f64) -> String {
        let text = match self {
            Self::Milliseconds => format!("{:.0}", seconds * 1e3),
            Self::Seconds if seconds.abs() < 9.95 => format!("{seconds:.1}"),
            Self::Seconds => format!("{seconds:.0}"),
        };
        // No negative zero. The hyphen is narrower than a minus sign, and fields are narrow.
        let is_zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
        if is_zero { text.replace('-', "") } else { text }
    }
}

fn field(pages: &PageCells, cell: &PageCell, unit: Unit) -> Option<HeatField> {
    let baseline = pages.baseline(cell)?;
    let difference = difference_s(baseline, cell, TIME)?;
    let ratio = cell.times(TIME).ratio_by(baseline.times(TIME), smig_stats::Statistic::Median)?;
    let runs = cell.times(TIME).run_count().min(baseline.times(TIME).run_count());
    let interval = ratio.interval.map_or_else(String::new, |(low, high)| {
        format!(" (95 % {} to {})", format_number(low), format_number(high))
    });
    Some(HeatField {
        text: unit.format(difference),
        shade: shade(ratio.value),
        bar: None,
        is_marked: false,
        tooltip: format!(
            "{} over HTTP/1.1: {}{interval}; {}",
            protocol_label(&cell.protocol),
            format_number(ratio.value),
            smig_chart::format_count(runs, "run")
        ),
    })
}

/// Returns the shade of a ratio: logarithmic, none at 1, negative where HTTP/1.1 is behind.
fn shade(ratio: f64) -> f64 {
    (ratio.max(f64::MIN_POSITIVE).ln() / MAX_SHADED_RATIO.ln()).clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_short_and_have_no_negative_zero() {
        let (ms, s) = (Unit::Milliseconds, Unit::Seconds);
        let texts = [ms.format(-0.0001), ms.format(-0.1234), s.format(-0.01), s.format(-12.34)];
        assert_eq!(texts, ["0", "-123", "0.0", "-12"]);
        assert_eq!(shade(1.0), 0.0);
        assert_eq!((shade(0.01), shade(4.0)), (-1.0, 1.0));
    }
}
