//! Loads of pages as dots: a group for each setting, a dot for each way to load the page.

use super::finding::{AxisScale, Dot, DotGroup, Finding};
use super::page_table::{PageCell, PageCells, protocol_colour, protocol_label};
use crate::workload::PageMetric;
use smig_stats::{Bootstrap, Statistic};

/// Adds the figure's chart: medians with their intervals, and 95th percentiles. `title` names a setting; `published` is the
/// study's own median in seconds, if it gives one.
pub(super) fn add_dots(
    pages: &PageCells,
    time: PageMetric,
    finding: &mut Finding,
    title: impl Fn(&PageCell) -> String,
    published: impl Fn(&PageCell) -> Option<f64>,
) {
    let ms = |seconds: f64| seconds * 1e3;
    let mut groups: Vec<DotGroup> = Vec::new();
    for cell in &pages.cells {
        let title = title(cell);
        if groups.last().is_none_or(|group| group.title != title) {
            groups.push(DotGroup { title, dots: Vec::new() });
        }
        let sample = cell.times(time);
        let Some(median) = Statistic::Median.compute(&sample.values()) else { continue };
        let interval = Bootstrap::default().interval(&sample.runs, Statistic::Median);
        let dot = Dot {
            label: protocol_label(&cell.protocol).to_owned(),
            colour: protocol_colour(&cell.protocol),
            value: ms(median),
            interval: interval.map(|interval| (ms(interval.low), ms(interval.high))),
            // Of one value it would be that value again.
            p95: sample.p95().filter(|_| sample.value_count() > 1).map(ms),
            paper_value: published(cell).map(ms),
        };
        if let Some(group) = groups.last_mut() {
            group.dots.push(dot);
        }
    }
    groups.retain(|group| !group.dots.is_empty());
    finding.add_chart("ms", groups, None, AxisScale::Log);
}
