//! Loads of pages as a table: a row for each setting and way to load a page, with its times relative to HTTP/1.1.

use std::collections::BTreeMap;

use super::data_table::{DataCell, DataColumn, number_column, text_column};
use super::facts::{FactNames, Facts};
use super::finding::Finding;
use super::measure::{Sample, page_times};
use crate::campaign::TrialResult;
use crate::workload::PageMetric;
use smig_chart::svg::Colour;
use smig_stats::Statistic;

/// The values that reports on pages can use.
pub(super) const PAGE_FACTS: FactNames = &[("", &["failed"])];

/// The level that all others are compared with.
pub(super) const BASELINE: &str = "http1";

/// Ways to load a page: their levels, names and colours.
const PROTOCOLS: [(&str, &str, Colour); 6] = [
    (BASELINE, "HTTP/1.1", Colour::Slate),
    ("http2", "HTTP/2", Colour::Vermilion),
    ("httpx", "HTTPX", Colour::Amber),
    ("paced", "smig serve", Colour::Teal),
    ("smig", "SMig", Colour::Blue),
    ("http3", "HTTP/3", Colour::Purple),
];

/// An axis of a table of pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageAxis {
    /// Its name in the scenario.
    pub(super) key: &'static str,
    /// Its name for readers.
    pub(super) heading: &'static str,
    /// The order of its levels; others come after.
    pub(super) levels: &'static [&'static str],
}

/// The loads of one setting by one protocol.
#[derive(Debug)]
pub(super) struct PageCell {
    /// A level for each axis of the table.
    pub(super) levels: Vec<String>,
    pub(super) protocol: String,
    /// Each of [`PageMetric::ALL`].
    times: BTreeMap<PageMetric, Sample>,
}

impl PageCell {
    pub(super) fn times(&self, time: PageMetric) -> &Sample {
        &self.times[&time]
    }
}

/// All cells of a figure, in the order of its axes, protocols last.
#[derive(Debug)]
pub(super) struct PageCells {
    pub(super) axes: &'static [PageAxis],
    pub(super) cells: Vec<PageCell>,
}

pub(super) fn protocol_label(protocol: &str) -> &str {
    let known = PROTOCOLS.iter().find(|(key, ..)| *key == protocol);
    known.map_or(protocol, |(_, label, _)| label)
}

pub(super) fn protocol_colour(protocol: &str) -> Colour {
    let known = PROTOCOLS.iter().find(|(key, ..)| *key == protocol);
    known.map_or(Colour::Ink, |(.., colour)| *colour)
}

/// Formats `2300kB` as 2.3 MB.
pub(super) fn size_label(level: &str) -> String {
    let bytes = crate::scenario::Size::parse(level);
    bytes.map_or_else(|| level.to_owned(), |bytes| smig_chart::format_bytes(bytes.0))
}

impl PageCells {
    /// Sorts results into cells.
    pub(super) fn new(results: &[&TrialResult], axes: &'static [PageAxis]) -> Self {
        let rank = |order: &[&str], level: &str| {
            order.iter().position(|known| *known == level).unwrap_or(usize::MAX)
        };
        let protocols = PROTOCOLS.map(|(key, ..)| key);
        let mut by_levels: BTreeMap<Vec<(usize, String)>, Vec<&TrialResult>> = BTreeMap::new();
        for result in results {
            let level = |axis: &str| result.id.condition.level(axis).unwrap_or_default().to_owned();
            let mut key: Vec<_> = axes
                .iter()
                .map(|axis| {
                    let level = level(axis.key);
                    (rank(axis.levels, &level), level)
                })
                .collect();
            let protocol = level("protocol");
            key.push((rank(&protocols, &protocol), protocol));
            by_levels.entry(key).or_default().push(result);
        }
        let cell = |(key, results): (Vec<(usize, String)>, Vec<&TrialResult>)| {
            let mut levels: Vec<String> = key.into_iter().map(|(_, level)| level).collect();
            let protocol = levels.pop()?;
            Some(PageCell {
                levels,
                protocol,
                times: PageMetric::ALL
                    .into_iter()
                    .map(|time| (time, page_times(&results, time)))
                    .collect(),
            })
        };
        Self { axes, cells: by_levels.into_iter().filter_map(cell).collect() }
    }

    /// Returns a cell by its levels and protocol.
    pub(super) fn find(&self, levels: &[&str], protocol: &str) -> Option<&PageCell> {
        let same = |cell: &&PageCell| {
            cell.protocol == protocol
                && cell.levels.iter().map(String::as_str).eq(levels.iter().copied())
        };
        self.cells.iter().find(same)
    }

    /// Returns the cell of the same setting by HTTP/1.1.
    pub(super) fn baseline(&self, cell: &PageCell) -> Option<&PageCell> {
        let same = |other: &&PageCell| other.protocol == BASELINE && other.levels == cell.levels;
        self.cells.iter().find(same)
    }

    /// Returns the levels of an axis that occur, in order.
    pub(super) fn levels_of(&self, key: &str) -> Vec<&str> {
        let Some(index) = self.axes.iter().position(|axis| axis.key == key) else {
            return Vec::new();
        };
        let occurs = |level: &&str| self.cells.iter().any(|cell| cell.levels[index] == **level);
        let known = self.axes[index].levels.iter().copied().filter(occurs);
        known.collect()
    }

    /// Fills in the table of a finding and its warning of loads that failed.
    pub(super) fn fill(&self, time: PageMetric, finding: &mut Finding, facts: &mut Facts) {
        let axis_columns = self.axes.iter().map(|axis| text_column(axis.key, axis.heading));
        finding.table.columns = axis_columns.chain(COLUMNS).collect();
        finding.table.rows = self.cells.iter().map(|cell| self.row(cell, time)).collect();
        facts.set_failed(
            self.cells.iter().map(|cell| cell.times(PageMetric::Loaded).failed_count).sum(),
        );
    }

    fn row(&self, cell: &PageCell, time: PageMetric) -> Vec<DataCell> {
        let ms = |sample: &Sample, statistic: Statistic| {
            DataCell::of(statistic.compute(&sample.values()).map(|seconds| seconds * 1e3))
        };
        let baseline = self.baseline(cell).filter(|_| cell.protocol != BASELINE);
        let of_baseline = baseline.map(|baseline| baseline.times(time));
        let ratio =
            of_baseline.and_then(|other| cell.times(time).ratio_by(other, Statistic::Median));
        let interval = ratio.and_then(|ratio| ratio.interval);
        let difference = baseline.and_then(|other| difference_s(other, cell, time));
        let levels = cell.levels.iter().map(DataCell::text);
        let loaded = cell.times(PageMetric::Loaded);
        let mut row: Vec<_> = levels.collect();
        row.extend([
            DataCell::text(protocol_label(&cell.protocol)),
            ms(cell.times(PageMetric::FirstRendered), Statistic::Median),
            ms(cell.times(PageMetric::SpeedIndex), Statistic::Median),
            ms(loaded, Statistic::Median),
            ms(loaded, Statistic::Quantile(0.99)),
            DataCell::of(ratio.map(|ratio| ratio.value)),
            DataCell::of(interval.map(|(low, _)| low)),
            DataCell::of(interval.map(|(_, high)| high)),
            DataCell::of(difference.map(|seconds| seconds * 1e3)),
            DataCell::Number(loaded.value_count() as f64),
            DataCell::Number(loaded.run_count() as f64),
        ]);
        row
    }
}

/// Returns the median of the first cell minus that of the second, in seconds.
pub(super) fn difference_s(first: &PageCell, second: &PageCell, time: PageMetric) -> Option<f64> {
    let median = |cell: &PageCell| Statistic::Median.compute(&cell.times(time).values());
    Some(median(first)? - median(second)?)
}

const COLUMNS: [DataColumn; 11] = [
    text_column("protocol", "loaded by"),
    number_column("first_rendered_ms", "first rendered, ms", 0),
    number_column("speed_index_ms", "speed index, ms", 0),
    number_column("loaded_ms", "loaded, ms", 0),
    number_column("loaded_p99_ms", "loaded, p99, ms", 0),
    number_column("ratio", "over HTTP/1.1", 2),
    number_column("ratio_low", "95 % from", 2),
    number_column("ratio_high", "to", 2),
    number_column("http1_minus_this_ms", "HTTP/1.1 minus this, ms", 0),
    number_column("loads", "loads", 0),
    number_column("runs", "runs", 0),
];
