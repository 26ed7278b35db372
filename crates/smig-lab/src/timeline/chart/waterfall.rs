//! The load of a page: each request with its phases, and the critical path through them.

use smig_chart::svg::{Axis, Bar, Block, Colour, Figure, Layer, Panel, Shape, Tint};
use smig_chart::{format_bytes, format_ms};

use super::connections::Connections;
use super::screen::{complete_us, filmstrip_panel, screen_panels};
use super::{View, panels, received, round_trips, seconds};
use crate::timeline::page_load::{
    Phase, Step, StepKind, critical_path, end_us, phases, requests_of,
};
use crate::timeline::{PageSpan, Span, Timeline};

/// Height of a row, if there are few.
const MAX_ROW_HEIGHT: f64 = 15.0;
/// Distance that the names of two rows need.
const NAME_HEIGHT: f64 = 12.0;
/// Height of all rows together: 50 can have names.
const MAX_PANEL_HEIGHT: f64 = 600.0;
/// Number of rows up to which each bar has a tooltip.
const MAX_ROWS_WITH_TOOLTIPS: usize = 1_000;
/// Gap between rows, as a share of a row.
const ROW_GAP: f64 = 0.14;
/// Longest name that stands beside a row, in characters; longer ones keep their ends.
const MAX_NAME_CHARS: usize = 18;
/// Connections up to which each has a panel of its own.
const MAX_CONNECTION_PANELS: usize = 2;
/// A chart shows this part of a load more, so that its end is visible.
const VIEW_MARGIN: f64 = 0.02;

/// Builds the chart of a load: requests with their phases and the critical path, what can be seen, and the network, all on one
/// clock. `to_us` is the end of the axis, for charts that are compared; the load's end if it is earlier.
#[must_use]
pub fn page_figure(timeline: &Timeline, page: &PageSpan, to_us: u64, width: f64) -> Figure {
    let view = view_of(timeline, page, to_us, width);
    let connections = Connections::of(timeline);
    let path = critical_path(timeline, page);
    let requests = requests_of(timeline, page);
    let single: Vec<_> = if connections.used_connections().count() <= MAX_CONNECTION_PANELS {
        let panels = connections.used_connections();
        panels.filter_map(|one| panels::send_buffer_panel(timeline, one, &view)).collect()
    } else {
        panels::combined_send_buffers_panel(timeline, &connections, &view).into_iter().collect()
    };
    let panels = waterfall_panel(&requests, &path, &connections)
        .into_iter()
        .chain(screen_panels(timeline, (page, &requests), &view))
        .chain(received::received_panel(timeline, &connections, &view))
        .chain(panels::queue_panel(timeline, &connections, &view))
        .chain(single)
        .chain(round_trips::round_trips_panel(timeline, &connections, &view))
        .map(|panel| shifted(panel, page.from_us))
        .collect();
    Figure {
        title: format!("{}: {}", timeline.head.title, page.name),
        description: describe(&requests, page),
        width,
        x: Axis::between(0.0, seconds(view.to_us - page.from_us), "s"),
        panels,
        event_lines: Vec::new(),
    }
}

/// Builds the filmstrips of loads as panels with these titles, at equal times since their navigations. `length_us` is the length of the axis.
#[must_use]
pub fn filmstrips_figure(
    loads: &[(String, &Timeline, &PageSpan)],
    length_us: u64,
    width: f64,
) -> Figure {
    let panel = |(title, timeline, page): &(String, &Timeline, &PageSpan)| {
        let view =
            View { from_us: page.from_us, to_us: page.from_us.saturating_add(length_us), width };
        let panel = filmstrip_panel(timeline, page, &view);
        shifted(Panel { title: title.clone(), ..panel }, page.from_us)
    };
    Figure {
        title: "What the screens showed".to_owned(),
        description: "Filmstrips side by side, at equal times since the navigation.".to_owned(),
        width,
        x: Axis::between(0.0, seconds(length_us), "s"),
        panels: loads.iter().map(panel).collect(),
        event_lines: Vec::new(),
    }
}

/// Returns what a chart of a load shows: until everything had arrived and could be seen, or until a later time.
fn view_of(timeline: &Timeline, page: &PageSpan, to_us: u64, width: f64) -> View {
    let complete_us = complete_us(timeline, page).unwrap_or(0);
    let length_us = page.to_us.max(complete_us).max(to_us).saturating_sub(page.from_us).max(1);
    let to_us = page.from_us + (length_us as f64 * (1.0 + VIEW_MARGIN)) as u64;
    View { from_us: page.from_us, to_us, width }
}

fn describe(requests: &[&Span], page: &PageSpan) -> String {
    let loaded_ms = page.to_us.saturating_sub(page.from_us) as f64 / 1e3;
    format!("{} requests in {} ms.", requests.len(), format_ms(loaded_ms))
}

/// Moves a panel's times so that they count from the navigation.
fn shifted(mut panel: Panel, from_us: u64) -> Panel {
    let by = seconds(from_us);
    for layer in &mut panel.layers {
        match &mut layer.shape {
            Shape::Dots(_, points) => points.iter_mut().for_each(|point| point.x -= by),
            Shape::Line(points) | Shape::Steps(points) | Shape::Reference(points) => {
                points.iter_mut().for_each(|(x, _)| *x -= by);
            }
            Shape::Blocks(blocks) => {
                blocks.iter_mut().for_each(|block| block.x = (block.x.0 - by, block.x.1 - by));
            }
            Shape::Bars(bars) => bars.iter_mut().for_each(|bar| {
                bar.block.x = (bar.block.x.0 - by, bar.block.x.1 - by);
            }),
            Shape::Area(_, ranges) | Shape::Whiskers(ranges) => {
                ranges.iter_mut().for_each(|range| range.x -= by);
            }
            Shape::Rug(times) => times.iter_mut().for_each(|x| *x -= by),
            Shape::Levels(levels) => {
                levels.iter_mut().for_each(|level| level.x = (level.x.0 - by, level.x.1 - by));
            }
            Shape::Labels(labels) => labels.iter_mut().for_each(|label| label.x -= by),
            Shape::Pictures(pictures) => pictures.iter_mut().for_each(|picture| {
                picture.block.x = (picture.block.x.0 - by, picture.block.x.1 - by);
            }),
        }
    }
    panel
}

const fn style(phase: Phase) -> (&'static str, Colour, Tint) {
    match phase {
        Phase::Queued => ("queued in the client", Colour::Brown, Tint::Half),
        Phase::Connecting => ("connecting", Colour::Amber, Tint::Full),
        Phase::Waiting => ("waiting for the response", Colour::Blue, Tint::Half),
        Phase::Receiving => ("receiving", Colour::Blue, Tint::Full),
        Phase::Running => ("running", Colour::Teal, Tint::Full),
    }
}

fn waterfall_panel(
    requests: &[&Span],
    path: &[Step<'_>],
    connections: &Connections,
) -> Option<Panel> {
    if requests.is_empty() {
        return None;
    }
    let count = requests.len();
    let row_middle = |index: usize| (count - index) as f64 - 0.5;
    let mut layers: Vec<(Phase, Vec<Bar>)> = Vec::new();
    for (index, span) in requests.iter().enumerate() {
        let y = (row_middle(index) - 0.5 + ROW_GAP, row_middle(index) + 0.5 - ROW_GAP);
        let all = phases(span);
        let ends = all.iter().skip(1).map(|(_, from_us)| *from_us).chain([end_us(span)]);
        for ((phase, from_us), to_us) in all.into_iter().zip(ends) {
            if from_us >= to_us {
                continue;
            }
            let block = Block { x: (seconds(from_us), seconds(to_us)), y };
            let has_tooltip = count <= MAX_ROWS_WITH_TOOLTIPS;
            let tooltip = if has_tooltip {
                tooltip(span, (phase, to_us - from_us), connections)
            } else {
                String::new()
            };
            let bar = Bar { block, tint: style(phase).2, tooltip };
            match layers.iter_mut().find(|(known, _)| *known == phase) {
                Some((_, bars)) => bars.push(bar),
                None => layers.push((phase, vec![bar])),
            }
        }
    }
    layers.sort_by_key(|(phase, _)| *phase);
    let layer = |(phase, bars)| {
        let (name, colour, _) = style(phase);
        Layer { name: name.to_owned(), colour, shape: Shape::Bars(bars) }
    };
    let mut layers: Vec<Layer> = layers.into_iter().map(layer).collect();
    let line = path_line(requests, path, &row_middle);
    layers.push(Layer {
        name: "critical path".into(),
        colour: Colour::Ink,
        shape: Shape::Line(line),
    });
    let row_height = (MAX_PANEL_HEIGHT / count as f64).min(MAX_ROW_HEIGHT);
    let names_step = (NAME_HEIGHT / row_height).ceil() as usize;
    let name = |(index, span): (usize, &&Span)| {
        if index.is_multiple_of(names_step) { row_name(span, connections) } else { String::new() }
    };
    let mut names: Vec<String> = requests.iter().enumerate().map(name).collect();
    names.reverse();
    // Short enough for a narrow chart.
    let title = match (names_step, connections.used_connections().count() > 1) {
        (1, false) => format!("Requests, in their order: {count}"),
        (1, true) => format!("Requests: {count} (in brackets: connection)"),
        (step, false) => format!("Requests: {count}, one of {step} named"),
        (step, true) => format!("Requests: {count}, one of {step} named (connection)"),
    };
    Some(Panel {
        title,
        y: Axis::categorical(names),
        height: row_height * count as f64,
        layers,
        rules: Vec::new(),
    })
}

/// Returns the critical path as a line through the rows of its requests.
fn path_line(
    requests: &[&Span],
    path: &[Step<'_>],
    row_middle: &dyn Fn(usize) -> f64,
) -> Vec<(f64, f64)> {
    let row_of = |step: &Step<'_>| match step.kind {
        StepKind::Request(span, _) => requests.iter().position(|one| one.name == span.name),
        StepKind::Client => None,
    };
    let mut row = path.iter().find_map(row_of).unwrap_or(0);
    let mut line = Vec::new();
    for step in path {
        row = row_of(step).unwrap_or(row);
        line.extend([step.from_us, step.to_us].map(|at_us| (seconds(at_us), row_middle(row))));
    }
    line
}

/// Returns the end of a resource's name, which tells it apart, and the number of its connection if there are several.
fn row_name(span: &Span, connections: &Connections) -> String {
    let name = resource_name(span);
    let count = name.chars().count();
    let name = if count <= MAX_NAME_CHARS {
        name
    } else {
        format!("…{}", name.chars().skip(count - MAX_NAME_CHARS + 1).collect::<String>())
    };
    match span.connection.as_ref().and_then(|one| connections.number(one)) {
        Some(number) if connections.used_connections().count() > 1 => format!("{name} ({number})"),
        _ => name,
    }
}

/// Returns the name of a resource; that of a tile is a number.
fn resource_name(span: &Span) -> String {
    let Some(part) = &span.part else { return span.name.clone() };
    if part.resource.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{} {}", part.kind, part.resource)
    } else {
        part.resource.clone()
    }
}

/// Returns what a bar is: its phase, with its length, and the request.
fn tooltip(span: &Span, (phase, phase_us): (Phase, u64), connections: &Connections) -> String {
    let part = span.part.as_ref();
    let kind = part.map_or("", |part| &part.kind);
    let ms = |us: u64| format_ms(us as f64 / 1e3);
    let connection = span.connection.as_ref().map(|name| match connections.number(name) {
        Some(number) => format!(", connection {number} ({name})"),
        None => format!(", connection {name}"),
    });
    let found = part.and_then(|part| part.found_in.as_ref());
    let found = found.map(|parent| format!(", found in {parent}"));
    format!(
        "{} ({kind}): {} {} ms; {} in {} ms{}{}",
        resource_name(span),
        style(phase).0,
        ms(phase_us),
        format_bytes(span.bytes),
        ms(end_us(span).saturating_sub(span.from_us)),
        connection.unwrap_or_default(),
        found.unwrap_or_default()
    )
}
