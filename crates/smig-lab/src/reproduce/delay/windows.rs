//! Figure 1c: the congestion window of HTTP/2's connection over the sum of those of HTTP/1.1, over time.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use super::super::drawing::{Drawing, Shape};
use super::super::facts::Facts;
use super::super::finding::Finding;
use super::super::page_table::{PageAxis, PageCells};
use super::CONTROLS;
use crate::campaign::TrialResult;
use crate::timeline::{Column, Subject, Timeline, Track};
use crate::workload::PageMetric;
use smig_chart::svg::{
    Axis, Colour, Figure, Layer, Panel, Rule, Shape as Curve, Tint, VerticalRange,
};

const AXES: &[PageAxis] = &[PageAxis { key: "control", heading: "control", levels: CONTROLS }];
const CAMPAIGNS: [&str; 2] = ["delay-windows", "delay-windows-quick"];
/// The samples' own interval.
const STEP_US: u64 = 10_000;
const PANEL_HEIGHT: f64 = 200.0;

/// A pair of runs with the same seed.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct WindowRatio {
    pub(in super::super) control: String,
    /// Seconds since each run's first connection, and the ratio, while both were loading and all of HTTP/1.1's connections were open.
    pub(in super::super) points: Vec<(f64, f64)>,
}

impl WindowRatio {
    /// Returns the least and the largest ratio.
    pub(in super::super) fn extremes(&self) -> Option<(f64, f64)> {
        let ratios = || self.points.iter().map(|(_, ratio)| *ratio);
        Some((ratios().reduce(f64::min)?, ratios().reduce(f64::max)?))
    }

    fn new(control: &str, http1: &[Track], http2: &[Track]) -> Option<Self> {
        let first =
            |tracks: &[Track]| tracks.iter().filter_map(|track| track.at_us.first()).min().copied();
        let last =
            |tracks: &[Track]| tracks.iter().filter_map(|track| track.at_us.last()).max().copied();
        let (start1, start2) = (first(http1)?, first(http2)?);
        // Before, one of its connections would be compared with one.
        let all_open = http1.iter().filter_map(|track| track.at_us.first()).max()? - start1;
        let end = (last(http1)? - start1).min(last(http2)? - start2);
        let sum = |tracks: &[Track], at: u64| -> u64 {
            tracks.iter().filter_map(|track| track.value_at(Column::CwndBytes, at)).sum()
        };
        let point = |at: u64| {
            let six = sum(http1, start1 + at) as f64;
            (six > 0.0).then(|| (at as f64 / 1e6, sum(http2, start2 + at) as f64 / six))
        };
        let times = (all_open..=end).step_by(usize::try_from(STEP_US).unwrap_or(1));
        let points: Vec<_> = times.filter_map(point).collect();
        (!points.is_empty()).then(|| Self { control: control.to_owned(), points })
    }
}

/// Reads the timelines of the runs; the full campaign's if there is one.
pub(in super::super) fn window_ratios(
    dir: &Path,
    results: &[TrialResult],
) -> io::Result<Vec<WindowRatio>> {
    let of_campaign = |name: &str| {
        let runs = results.iter().filter(|result| result.id.campaign == name);
        runs.collect::<Vec<_>>()
    };
    let found = CAMPAIGNS.iter().map(|name| of_campaign(name)).find(|runs| !runs.is_empty());
    let mut pairs = Vec::new();
    let runs = found.unwrap_or_default();
    let level = |run: &TrialResult, axis: &str| run.id.condition.level(axis).map(str::to_owned);
    for http1 in runs.iter().filter(|run| level(run, "protocol").as_deref() == Some("http1")) {
        let is_other = |run: &&&TrialResult| {
            level(run, "protocol").as_deref() == Some("http2")
                && run.seed == http1.seed
                && level(run, "control") == level(http1, "control")
        };
        let (Some(http2), Some(control)) = (runs.iter().find(is_other), level(http1, "control"))
        else {
            continue;
        };
        let (Some(first), Some(second)) = (&http1.timeline, &http2.timeline) else { continue };
        let (first, second) = (dir.join(first), dir.join(second));
        // Results may have been copied without their timelines.
        if !first.exists() || !second.exists() {
            continue;
        }
        let (first, second) = (server_tracks(&first)?, server_tracks(&second)?);
        pairs.extend(WindowRatio::new(&control, &first, &second));
    }
    Ok(pairs)
}

/// Returns the server's samples of its connections.
fn server_tracks(path: &Path) -> io::Result<Vec<Track>> {
    let error =
        |cause: &dyn std::fmt::Display| io::Error::other(format!("{}: {cause}", path.display()));
    let file = File::open(path).map_err(|cause| error(&cause))?;
    let timeline = Timeline::read_from(&mut BufReader::new(file)).map_err(|cause| error(&cause))?;
    let is_servers = |track: &Track| matches!(&track.subject, Subject::Connection { host, .. } if host == "server");
    Ok(timeline.tracks.into_iter().filter(is_servers).collect())
}

/// Fills in the table of load times and the picture of ratios.
pub(super) fn fill(
    results: &[&TrialResult],
    finding: &mut Finding,
    facts: &mut Facts,
    windows: &[WindowRatio],
) {
    let pages = PageCells::new(results, AXES);
    pages.fill(PageMetric::SpeedIndex, finding, facts);
    if windows.is_empty() {
        finding.warnings.push("The timelines of these runs are not in this directory.".into());
        return;
    }
    finding.drawings.push(Drawing {
        name: finding.name.to_owned(),
        caption: "Lines: the median of all pairs of runs that are both still loading, at least half of them; areas: the least and \
                  the most. From when HTTP/1.1's last connection is open. Below 1 the single connection has the smaller window."
            .into(),
        shape: Shape::Curves(draw(windows)),
    });
}

fn draw(windows: &[WindowRatio]) -> Figure {
    let curves: Vec<_> =
        [("bbr", Colour::Blue), ("cubic", Colour::Vermilion), ("cubic-hystart", Colour::Purple)]
            .into_iter()
            .map(|(control, colour)| (control, colour, curve(windows, control)))
            .filter(|(.., points)| !points.is_empty())
            .collect();
    let all = || curves.iter().flat_map(|(.., points)| points);
    let end = all().map(|point| point.x).fold(0.0, f64::max);
    let most = all().map(|point| point.high).fold(1.0, f64::max);
    let mut layers = Vec::new();
    for (_, colour, points) in &curves {
        let areas = points.iter().map(|point| VerticalRange {
            x: point.x,
            low: point.low,
            high: point.high,
        });
        let shape = Curve::Area(Tint::Faint, areas.collect());
        layers.push(Layer { name: String::new(), colour: *colour, shape });
    }
    for (control, colour, points) in &curves {
        let line = points.iter().map(|point| (point.x, point.median)).collect();
        layers.push(Layer {
            name: (*control).to_owned(),
            colour: *colour,
            shape: Curve::Line(line),
        });
    }
    Figure {
        title: "HTTP/2's congestion window over the sum of HTTP/1.1's".into(),
        description: "The ratio over time since the first connection, for each congestion control"
            .into(),
        width: 860.0,
        x: Axis::linear_exact(end, "s"),
        panels: vec![Panel {
            title: "HTTP/2's congestion window over the sum of HTTP/1.1's".into(),
            y: Axis::linear(most, ""),
            height: PANEL_HEIGHT,
            layers,
            rules: vec![Rule { y: 1.0, label: "the same".into() }],
        }],
        event_lines: Vec::new(),
    }
}

/// The ratios of all pairs at one time.
struct CurvePoint {
    x: f64,
    low: f64,
    median: f64,
    high: f64,
}

fn curve(windows: &[WindowRatio], control: &str) -> Vec<CurvePoint> {
    let pairs: Vec<_> = windows.iter().filter(|pair| pair.control == control).collect();
    let bin = |at: f64| (at * 1e6 / STEP_US as f64).round() as u64;
    let mut by_time: std::collections::BTreeMap<u64, Vec<f64>> = std::collections::BTreeMap::new();
    for (at, ratio) in pairs.iter().flat_map(|pair| &pair.points) {
        by_time.entry(bin(*at)).or_default().push(*ratio);
    }
    let point = |(bin, ratios): (u64, Vec<f64>)| {
        if ratios.len() * 2 < pairs.len() {
            return None;
        }
        Some(CurvePoint {
            x: bin as f64 * STEP_US as f64 / 1e6,
            low: ratios.iter().copied().reduce(f64::min)?,
            median: smig_stats::median(&ratios)?,
            high: ratios.iter().copied().reduce(f64::max)?,
        })
    };
    by_time.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::ConnectionName;

    fn track(name: &str, points: &[(u64, u64)]) -> Track {
        let connection = ConnectionName(name.into());
        let mut track = Track::new(Subject::Connection { host: "server".into(), connection });
        for (at, window) in points {
            track.push(*at, &[(Column::CwndBytes, *window)]);
        }
        track
    }

    #[test]
    fn windows_are_summed_from_when_all_connections_are_open() {
        let http1 =
            [track("a", &[(5_000, 10), (45_000, 10)]), track("b", &[(25_000, 10), (45_000, 30)])];
        let http2 = [track("c", &[(1_000, 100), (21_000, 10), (31_000, 60), (61_000, 60)])];
        let ratio = WindowRatio::new("bbr", &http1, &http2).unwrap();
        assert_eq!(ratio.points, [(0.02, 0.5), (0.03, 3.0), (0.04, 1.5)]);
        assert_eq!(ratio.extremes(), Some((0.5, 3.0)));
        let figure = draw(&[ratio]).to_file();
        assert!(figure.contains("bbr"), "{figure}");
        assert_eq!(WindowRatio::new("bbr", &[], &http2), None);
    }
}
