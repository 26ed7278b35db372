//! Figure 2b: the distribution, over twelve mobile links, of how much sooner HTTP/2 is than HTTP/1.1.

use super::super::drawing::{Drawing, Shape};
use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::page_table::{BASELINE, PageAxis, PageCells};
use crate::campaign::TrialResult;
use crate::workload::PageMetric;
use smig_chart::svg::{Axis, Colour, Figure, Layer, Panel, Shape as Curve};
use smig_stats::Statistic;

const AXES: &[PageAxis] = &[PageAxis {
    key: "place",
    heading: "place",
    levels: &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"],
}];

const METRICS: [(&str, PageMetric, Colour); 3] = [
    ("first rendered", PageMetric::FirstRendered, Colour::Slate),
    ("speed index", PageMetric::SpeedIndex, Colour::Blue),
    ("loaded", PageMetric::Loaded, Colour::Vermilion),
];

/// Fills in table and picture.
pub(super) fn fill(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pages = PageCells::new(results, AXES);
    pages.fill(PageMetric::SpeedIndex, finding, facts);
    let layer = |(name, time, colour): (&str, PageMetric, Colour)| Layer {
        name: name.to_owned(),
        colour,
        shape: Curve::Steps(distribution(&differences(&pages, time))),
    };
    let layers = METRICS.map(layer).to_vec();
    let all = METRICS.iter().flat_map(|(_, time, _)| differences(&pages, *time));
    let most = all.map(f64::abs).fold(0.0, f64::max);
    if most == 0.0 {
        return;
    }
    finding.drawings.push(Drawing {
        name: finding.name.to_owned(),
        caption: "Each step is a pair of loads with the same link and repetition. Left of 0 HTTP/1.1 was sooner, right of it \
                  HTTP/2."
            .into(),
        shape: Shape::Curves(Figure {
            title: "HTTP/1.1's time minus HTTP/2's, over twelve mobile links".into(),
            description: "Cumulative distributions for first rendering, speed index and load".into(),
            width: 860.0,
            x: Axis::between(-most, most, "s"),
            panels: vec![Panel {
                title: "share of the pairs of loads below, %".into(),
                y: Axis::linear_exact(100.0, "%"),
                height: 200.0,
                layers,
                rules: Vec::new(),
            }],
            event_lines: Vec::new(),
        }),
    });
}

/// Returns, of each pair of runs of the same place and seed, HTTP/1.1's time minus HTTP/2's in seconds, in ascending order.
fn differences(pages: &PageCells, time: PageMetric) -> Vec<f64> {
    let mut differences = Vec::new();
    for http2 in pages.cells.iter().filter(|cell| cell.protocol != BASELINE) {
        let Some(http1) = pages.baseline(http2) else { continue };
        for run in &http2.times(time).runs {
            let same = http1.times(time).runs.iter().find(|other| other.seed == run.seed);
            let median = |values: &[f64]| Statistic::Median.compute(values);
            let pair = same.and_then(|other| Some((median(&other.values)?, median(&run.values)?)));
            differences.extend(pair.map(|(first, second)| first - second));
        }
    }
    differences.sort_by(f64::total_cmp);
    differences
}

/// Returns the steps of a cumulative distribution in percent.
fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let count = sorted.len() as f64;
    let steps = (1..).zip(sorted).map(|(rank, value)| (*value, f64::from(rank) / count * 100.0));
    sorted.first().map(|first| (*first, 0.0)).into_iter().chain(steps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_ends_at_everything() {
        assert_eq!(distribution(&[-1.0, 3.0]), [(-1.0, 0.0), (-1.0, 50.0), (3.0, 100.0)]);
        assert!(distribution(&[]).is_empty());
    }
}
