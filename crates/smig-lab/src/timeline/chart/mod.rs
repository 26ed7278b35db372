//! Renders the samples of a run as one chart on one time axis: each request, the data that arrives
//! by connection, the link's queue, the data that each connection holds, and its round-trip times.
//!
//! Owns the presentation of a [`Timeline`]. It computes only what is drawn, and omits panels
//! without values.

mod connections;
mod downsample;
mod page;
mod panels;
mod received;
mod requests;
mod round_trips;
mod screen;
mod side_by_side;
mod svg_file;
#[cfg(test)]
mod tests;
mod waterfall;

use smig_chart::svg::{Axis, EventLine, Figure};

use crate::timeline::{AnnotationKind, Timeline};
use connections::Connections;

pub use page::render_html;
pub(crate) use screen::FILMSTRIP_HINT;
pub use side_by_side::render_side_by_side;
pub use svg_file::render_svg;
pub use waterfall::{filmstrips_figure, page_figure};

/// The visible part of the time axis, and its width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Start, in microseconds since the timeline's origin.
    pub from_us: u64,
    /// End, in microseconds since the timeline's origin.
    pub to_us: u64,
    /// Width in CSS pixels.
    pub width: f64,
}

impl View {
    /// Returns a view of the complete timeline.
    #[must_use]
    pub fn of_timeline(timeline: &Timeline, width: f64) -> Self {
        Self { from_us: 0, to_us: timeline.end_us().max(1), width }
    }

    const fn contains(&self, at_us: u64) -> bool {
        self.from_us <= at_us && at_us <= self.to_us
    }

    const fn length_us(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }

    /// Returns the number of points that a line across the plot can show.
    fn column_count(&self) -> usize {
        self.width.max(100.0) as usize
    }
}

/// Converts microseconds to the axis' seconds.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Builds the chart.
#[must_use]
pub fn figure(timeline: &Timeline, view: &View) -> Figure {
    let connections = Connections::of(timeline);
    let marks = action_marks(timeline, &connections, view);
    let strip = (!marks.is_empty()).then(|| panels::mark_strip(view));
    let panels = strip
        .into_iter()
        .chain(requests::requests_panel(timeline, &connections, view, 0))
        .chain(requests::durations_panel(timeline, &connections, view))
        .chain(panels::progress_panel(timeline, &connections, view))
        .chain(received::received_panel(timeline, &connections, view))
        .chain(panels::queue_panel(timeline, &connections, view))
        .chain(
            connections
                .used_connections()
                .filter_map(|one| panels::send_buffer_panel(timeline, one, view)),
        )
        .chain(round_trips::round_trips_panel(timeline, &connections, view))
        .collect();
    Figure {
        title: timeline.head.title.clone(),
        description: connections.describe(),
        width: view.width,
        x: Axis::between(seconds(view.from_us), seconds(view.to_us), "s"),
        panels,
        event_lines: marks,
    }
}

/// Returns joins, migrations, resets and declines as marks. Marks of one kind too close to be
/// distinguishable are merged.
fn action_marks(timeline: &Timeline, connections: &Connections, view: &View) -> Vec<EventLine> {
    let action_kinds = [
        AnnotationKind::Join,
        AnnotationKind::Migrate,
        AnnotationKind::Reset,
        AnnotationKind::Declined,
    ];
    let min_distance_us = (view.length_us() as f64 * 5.0 / view.width) as u64;
    let mut groups: Vec<(u64, AnnotationKind, String, usize)> = Vec::new();
    for mark in timeline.annotations.iter().filter(|mark| action_kinds.contains(&mark.kind)) {
        if !view.contains(mark.at_us) {
            continue;
        }
        match groups.last_mut() {
            Some((at, kind, _, count))
                if *kind == mark.kind && mark.at_us <= *at + min_distance_us =>
            {
                *count += 1;
            }
            _ => {
                let number = mark.connection.as_ref().and_then(|name| connections.number(name));
                let word = match mark.kind {
                    AnnotationKind::Join => " of",
                    AnnotationKind::Migrate => " to",
                    _ => " on",
                };
                let target = number.map_or_else(String::new, |n| format!("{word} connection {n}"));
                groups.push((mark.at_us, mark.kind, target, 1));
            }
        }
    }
    groups
        .into_iter()
        .map(|(at_us, kind, target, count)| {
            let label =
                if count > 1 { format!("{count} {kind}") } else { format!("{kind}{target}") };
            EventLine { x: seconds(at_us), label }
        })
        .collect()
}
