//! Renders several runs side by side, panel by panel on the same scales, so that differences are
//! visible.

use std::fmt::Write;

use smig_chart::html::escape;
use smig_chart::svg::{Axis, Figure, Panel, STYLE, with_colour_fallbacks};

use super::connections::Connections;
use super::svg_file::{HEAD_STYLE, LINE_HEIGHT, facts, wrap_facts};
use super::{View, action_marks, panels, received, requests, round_trips};
use crate::timeline::Timeline;

const MARGIN: f64 = 14.0;
const GAP: f64 = 18.0;
/// Space above the panels for the run's name.
const HEAD_HEIGHT: f64 = 34.0;

/// Renders the charts of several runs as one SVG file with the same panels: requests, their
/// durations, arriving data, the queue, data held at senders, round-trip times. The time axis
/// starts with each run and has the same length in all.
#[must_use]
pub fn render_side_by_side(timelines: &[&Timeline], width: f64) -> String {
    let count = timelines.len().max(1) as f64;
    let column_width = ((width - 2.0 * MARGIN + GAP) / count - GAP).max(100.0);
    let to_us = timelines.iter().map(|timeline| timeline.end_us()).max().unwrap_or(0).max(1);
    let view = View { from_us: 0, to_us, width: column_width };
    let min_rows = timelines.iter().map(|one| requests::row_count(one, &view)).max().unwrap_or(0);
    let mut panels: Vec<_> =
        timelines.iter().map(|timeline| run_panels(timeline, &view, min_rows)).collect();
    add_missing_panels(&mut panels);
    let mut figures: Vec<Figure> = timelines
        .iter()
        .zip(panels)
        .map(|(timeline, panels)| figure(timeline, &view, panels))
        .collect();
    share_scales(&mut figures);
    let fact_lines: Vec<Vec<String>> =
        timelines.iter().map(|timeline| wrap_facts(facts(timeline), column_width)).collect();
    let head_height =
        HEAD_HEIGHT + LINE_HEIGHT * fact_lines.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let mut body = String::new();
    let mut max_figure_height = 0.0_f64;
    for (index, (timeline, figure)) in timelines.iter().zip(&figures).enumerate() {
        let left = MARGIN + (column_width + GAP) * index as f64;
        let title = escape(&timeline.head.title);
        let _ = write!(body, "<text class=\"run\" x=\"{left}\" y=\"28\">{title}</text>");
        for (line, text) in fact_lines[index].iter().enumerate() {
            let (y, text) = (46.0 + LINE_HEIGHT * line as f64, escape(text));
            let _ = write!(body, "<text class=\"found\" x=\"{left}\" y=\"{y}\">{text}</text>");
        }
        let element = figure.to_element();
        let _ = write!(body, "<g transform=\"translate({left} {head_height})\">{element}</g>");
        max_figure_height = max_figure_height.max(figure.height());
    }
    let height = head_height + max_figure_height + MARGIN;
    let name = escape(
        &timelines.iter().map(|one| one.head.title.as_str()).collect::<Vec<_>>().join(" / "),
    );
    with_colour_fallbacks(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" \
         viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\
         <title>{name}</title><style>{STYLE}{HEAD_STYLE}</style>\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>{body}</svg>\n"
    ))
}

/// The panels of a run, from the top; `None` for those without values.
type RunPanels = [Option<Panel>; 7];

/// Builds the panels of a run; the strip of the marks always exists.
fn run_panels(timeline: &Timeline, view: &View, min_rows: usize) -> RunPanels {
    let connections = Connections::of(timeline);
    [
        Some(panels::mark_strip(view)),
        requests::requests_panel(timeline, &connections, view, min_rows).map(without_names),
        requests::durations_panel(timeline, &connections, view).map(without_names),
        received::received_panel(timeline, &connections, view)
            .map(with_short_names)
            .map(with_title("Received, Mbit/s, by connection")),
        panels::queue_panel(timeline, &connections, view)
            .map(without_names)
            .map(with_title("Queue of the link (red: dropped)")),
        panels::combined_send_buffers_panel(timeline, &connections, view),
        round_trips::round_trips_panel(timeline, &connections, view).map(without_names),
    ]
}

/// Gives a run without values an empty panel where another run has them, so that the panels below are at the same
/// heights in all runs.
fn add_missing_panels(runs: &mut [RunPanels]) {
    for row in 0..runs.first().map_or(0, |panels| panels.len()) {
        let Some(model) = runs.iter().find_map(|panels| panels[row].clone()) else { continue };
        let empty = Panel { layers: Vec::new(), rules: Vec::new(), ..model };
        for panels in runs.iter_mut() {
            panels[row].get_or_insert_with(|| empty.clone());
        }
    }
}

fn figure(timeline: &Timeline, view: &View, panels: RunPanels) -> Figure {
    let connections = Connections::of(timeline);
    Figure {
        title: timeline.head.title.clone(),
        description: connections.describe(),
        width: view.width,
        x: Axis::between(0.0, view.to_us as f64 / 1e6, "s"),
        panels: panels.into_iter().flatten().collect(),
        event_lines: action_marks(timeline, &connections, view),
    }
}

/// Removes the legend, whose lines would misalign the panels.
fn without_names(mut panel: Panel) -> Panel {
    for layer in &mut panel.layers {
        layer.name.clear();
    }
    panel
}

/// Replaces the title, to state what the legend would.
fn with_title(title: &str) -> impl Fn(Panel) -> Panel {
    move |panel| Panel { title: title.to_owned(), ..panel }
}

/// Shortens the legend to one line: the title states that the numbers are connections.
fn with_short_names(mut panel: Panel) -> Panel {
    for layer in &mut panel.layers {
        if let Some(short) = layer.name.strip_prefix(panels::CONNECTION_PREFIX) {
            layer.name = short.to_owned();
        }
    }
    panel
}

/// Gives panels with the same title the same y axis: the longest.
fn share_scales(figures: &mut [Figure]) {
    let axes: Vec<(String, Axis)> = figures
        .iter()
        .flat_map(|figure| &figure.panels)
        .map(|panel| (panel.title.clone(), panel.y.clone()))
        .collect();
    for panel in figures.iter_mut().flat_map(|figure| &mut figure.panels) {
        let alike = axes.iter().filter(|(title, _)| *title == panel.title);
        let longest = alike.max_by(|(_, a), (_, b)| a.end().total_cmp(&b.end()));
        if let Some((_, axis)) = longest.filter(|_| !panel.y.is_categorical()) {
            panel.y = axis.clone();
        }
    }
}
