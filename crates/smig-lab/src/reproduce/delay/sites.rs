//! Figure 2c: the share of a site's bytes whose senders go by delays, against how much sooner HTTP/2 is than HTTP/1.1.

use std::collections::BTreeMap;

use smig_chart::svg::{Axis, Figure, Layer, Marker, Panel, Point, Shape as Curve};
use smig_stats::Statistic;

use super::super::drawing::{Drawing, Shape};
use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::page_table::{
    BASELINE, PageAxis, PageCell, PageCells, protocol_colour, protocol_label,
};
use crate::campaign::TrialResult;
use crate::scenario::Scenario;
use crate::workload::PageMetric;

const AXES: &[PageAxis] = &[
    PageAxis {
        key: "site",
        heading: "site",
        levels: &["app", "blog", "docs", "front", "news", "photos", "shop", "video"],
    },
    PageAxis { key: "delay", heading: "by delays", levels: &["none", "ads", "cdn", "all"] },
];

/// The sender of the scenario that goes by delays. The scenario has this one and CUBIC without HyStart, whose families are claims of their own
/// (`delay-senders`): a report is made of results alone, and probes nothing.
const DELAY_BASED: &str = "bbr";

/// What HTTP/1.1 is compared with.
const LAYERS: [(&str, Marker); 3] =
    [("http2", Marker::Circle), ("httpx", Marker::Triangle), ("smig", Marker::Ring)];

/// Fills in table and picture.
pub(super) fn fill(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pages = PageCells::new(results, AXES);
    pages.fill(PageMetric::SpeedIndex, finding, facts);
    let shares = shares(results);
    let points = |protocol: &str| -> Vec<Point> {
        let own = pages.cells.iter().filter(|cell| cell.protocol == protocol);
        own.filter_map(|cell| point(&pages, cell, &shares)).collect()
    };
    let layers: Vec<Layer> = LAYERS
        .into_iter()
        .map(|(protocol, marker)| Layer {
            name: protocol_label(protocol).to_owned(),
            colour: protocol_colour(protocol),
            shape: Curve::Dots(marker, points(protocol)),
        })
        .collect();
    let all = LAYERS.iter().flat_map(|(protocol, _)| points(protocol));
    let most = all.map(|point| point.y.abs()).fold(0.0, f64::max);
    if most == 0.0 {
        return;
    }
    finding.drawings.push(Drawing {
        name: finding.name.to_owned(),
        caption: "As the paper's Figure 2c: each dot is a site with one choice of senders, medians of its loads. Above 0 HTTP/1.1 was slower than what the dot is of, \
                  below it faster."
            .into(),
        shape: Shape::Curves(Figure {
            title: "HTTP/1.1's speed index minus that of others, by senders".into(),
            description: "Dots by the share of bytes whose senders go by delays".into(),
            width: 860.0,
            x: Axis::linear_exact(100.0, "% of the bytes by delays"),
            panels: vec![Panel {
                title: "speed index of HTTP/1.1 minus that of others, s".into(),
                y: Axis::between(-most, most, "s"),
                height: 260.0,
                layers,
                rules: Vec::new(),
            }],
            event_lines: Vec::new(),
        }),
    });
}

fn point(
    pages: &PageCells,
    cell: &PageCell,
    shares: &BTreeMap<(String, String), f64>,
) -> Option<Point> {
    if cell.protocol == BASELINE {
        return None;
    }
    let median =
        |cell: &PageCell| Statistic::Median.compute(&cell.times(PageMetric::SpeedIndex).values());
    let (baseline, own) = (median(pages.baseline(cell)?)?, median(cell)?);
    let share = shares.get(&(cell.levels[0].clone(), cell.levels[1].clone()))?;
    let tooltip = format!(
        "{} ({} by delays), {}: {:.2} s, HTTP/1.1: {baseline:.2} s",
        cell.levels[0],
        cell.levels[1],
        protocol_label(&cell.protocol),
        own
    );
    Some(Point { x: 100.0 * share, y: baseline - own, tooltip })
}

/// Returns the share of the bytes whose senders go by delays, by site and level.
fn shares(results: &[&TrialResult]) -> BTreeMap<(String, String), f64> {
    let share = |result: &&TrialResult| {
        let level = |axis: &str| result.id.condition.level(axis).map(str::to_owned);
        Some(((level("site")?, level("delay")?), delay_based_share(&result.scenario)?))
    };
    results.iter().filter_map(share).collect()
}

fn delay_based_share(scenario: &Scenario) -> Option<f64> {
    let page = scenario.workload.pages.values().next()?;
    let client = scenario.clients.get(scenario.client_of(page.client.as_deref())?)?;
    let own = scenario.server_of(client)?;
    let control_of = |host: Option<&String>| {
        let server = host.and_then(|host| page.server_of_host(host)).unwrap_or(own);
        let server = scenario.servers.get(server)?;
        server.congestion_control.as_ref().or(scenario.hosts.server.congestion_control.as_ref())
    };
    let (mut of_delay_based, mut all) = (0, 0);
    for resource in page.resources() {
        all += resource.size;
        if control_of(resource.host.as_ref()).is_some_and(|control| control == DELAY_BASED) {
            of_delay_based += resource.size;
        }
    }
    Some(of_delay_based as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_bytes_is_that_of_the_servers() {
        let scenario = |delay: &str| -> Scenario {
            let text = format!(
                "link = 'jitter'\n[hosts.server]\ncongestion_control = 'cubic'\n[servers.own]\nkind = 'nginx'\n[servers.cdn]\nkind = 'nginx'\n{delay}\n\
                 [clients.c]\nkind = 'h2'\nserver = 'own'\n[workload.pages.p]\ndocument = 100\nhosts.'cdn.example' = {{ server = 'cdn' }}\n\
                 resources.a = {{ kind = 'image', size = 300, host = 'cdn.example' }}\n"
            );
            toml::from_str(&text).unwrap()
        };
        assert_eq!(delay_based_share(&scenario("")), Some(0.0));
        assert_eq!(delay_based_share(&scenario("congestion_control = 'bbr'")), Some(0.75));
    }
}
