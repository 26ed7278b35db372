//! What was sampled of a run, in one picture on one time axis: each request, what arrives by which
//! connection, the queue before the link, what each connection holds, and its round trips.
//!
//! Owns what is shown of a [`Timeline`] and how. It computes nothing that is not drawn, and it
//! shows what the timeline has: panels without values are left out.

mod beside;
mod connections;
mod page;
mod panels;
mod poster;
mod requests;
#[cfg(test)]
mod tests;
mod thin;

use crate::report::svg::{Axis, Figure, Mark};
use crate::sample::{MarkKind, Timeline};
use connections::Connections;

pub use beside::render_beside;
pub use page::render_html;
pub use poster::render_svg;

/// The part of the time axis that is shown, and how wide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Microseconds after the timeline's origin.
    pub from_us: u64,
    /// The same.
    pub to_us: u64,
    /// In CSS pixels.
    pub width: f64,
}

impl View {
    /// All of it.
    #[must_use]
    pub fn whole(timeline: &Timeline, width: f64) -> Self {
        Self { from_us: 0, to_us: timeline.end_us().max(1), width }
    }

    const fn holds(&self, at_us: u64) -> bool {
        self.from_us <= at_us && at_us <= self.to_us
    }

    const fn length_us(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }

    /// Points that a line across the plot can show.
    fn columns(&self) -> usize {
        self.width.max(100.0) as usize
    }
}

/// Seconds on the axis.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The picture as a chart.
#[must_use]
pub fn figure(timeline: &Timeline, view: &View) -> Figure {
    let connections = Connections::of(timeline);
    let moves = moves(timeline, &connections, view);
    let strip = (!moves.is_empty()).then(|| panels::strip(view));
    let panels = strip
        .into_iter()
        .chain(requests::panel(timeline, &connections, view, 0))
        .chain(requests::times(timeline, &connections, view))
        .chain(panels::progress(timeline, &connections, view))
        .chain(panels::arriving(timeline, &connections, view))
        .chain(panels::queue(timeline, &connections, view))
        .chain(connections.used().filter_map(|one| panels::sender(timeline, one, view)))
        .chain(panels::round_trips(timeline, &connections, view))
        .collect();
    Figure {
        title: timeline.head.title.clone(),
        description: connections.describe(),
        width: view.width,
        x: Axis::between(seconds(view.from_us), seconds(view.to_us), "s"),
        panels,
        marks: moves,
    }
}

/// What SMig did, as words at lines through all panels. Those that are too close to be told apart
/// become one.
fn moves(timeline: &Timeline, connections: &Connections, view: &View) -> Vec<Mark> {
    let shown = [MarkKind::Join, MarkKind::Migrate, MarkKind::Reset, MarkKind::Declined];
    let close_us = (view.length_us() as f64 * 5.0 / view.width) as u64;
    let mut groups: Vec<(u64, MarkKind, String, usize)> = Vec::new();
    for mark in timeline.marks.iter().filter(|mark| shown.contains(&mark.kind)) {
        if !view.holds(mark.at_us) {
            continue;
        }
        match groups.last_mut() {
            Some((at, kind, _, count)) if *kind == mark.kind && mark.at_us <= *at + close_us => {
                *count += 1;
            }
            _ => {
                let number = mark.connection.as_ref().and_then(|name| connections.number(name));
                let word = match mark.kind {
                    MarkKind::Join => " of",
                    MarkKind::Migrate => " to",
                    _ => " on",
                };
                let place = number.map_or_else(String::new, |n| format!("{word} connection {n}"));
                groups.push((mark.at_us, mark.kind, place, 1));
            }
        }
    }
    groups
        .into_iter()
        .map(|(at_us, kind, place, count)| {
            let label =
                if count > 1 { format!("{count} {kind}") } else { format!("{kind}{place}") };
            Mark { x: seconds(at_us), label }
        })
        .collect()
}
