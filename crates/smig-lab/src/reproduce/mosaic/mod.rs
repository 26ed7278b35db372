//! The mosaic (2015): a page of many small pictures, and its counter-example of few large ones.

use super::facts::Facts;
use super::finding::Finding;
use super::page_dots::add_dots;
use super::page_table::{PageAxis, PageCell, PageCells};
use crate::campaign::TrialResult;
use crate::workload::PageMetric;

const TABLE_AXES: &[PageAxis] =
    &[PageAxis { key: "network", heading: "network", levels: &["3g", "wifi", "ftth"] }];

const LARGE_AXES: &[PageAxis] = &[
    PageAxis { key: "network", heading: "network", levels: &["3g", "wifi", "ftth", "lossy"] },
    PageAxis { key: "objects", heading: "objects", levels: &["6", "12"] },
];

/// The medians of the post's table, in seconds, of HTTP/1.1 and HTTP/2.
const PUBLISHED_S: [(&str, f64, f64); 3] =
    [("3g", 5.21, 1.30), ("wifi", 1.88, 0.892), ("ftth", 1.72, 0.308)];

fn network_label(network: &str) -> &str {
    match network {
        "3g" => "3G, 780 kbit/s, 100 ms",
        "wifi" => "Wi-Fi, 8 Mbit/s, 43 ms",
        "ftth" => "fiber, 30 Mbit/s, 40 ms",
        "lossy" => "fiber, 1 % loss",
        other => other,
    }
}

/// Fills in table and chart of a figure.
pub(super) fn fill(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let is_table = finding.name == "mosaic-table";
    let pages = PageCells::new(results, if is_table { TABLE_AXES } else { LARGE_AXES });
    pages.fill(PageMetric::Loaded, finding, facts);
    let title = |cell: &PageCell| {
        let network = network_label(&cell.levels[0]);
        let objects = cell.levels.get(1).map(|objects| format!("; {objects} objects"));
        format!("{network}{}", objects.unwrap_or_default())
    };
    let published = |cell: &PageCell| {
        let (_, http1, http2) =
            PUBLISHED_S.iter().find(|(network, ..)| is_table && cell.levels[0] == *network)?;
        match cell.protocol.as_str() {
            "http1" => Some(*http1),
            "http2" => Some(*http2),
            _ => None,
        }
    };
    add_dots(&pages, PageMetric::Loaded, finding, title, published);
}
