//! Round-trip times: of the connections, and of the path without a queue.

use smig_chart::format_number;
use smig_chart::svg::{Axis, Colour, Label, Layer, Panel, Shape};

use super::connections::Connections;
use super::panels::{HEADROOM_FACTOR, PLOT_HEIGHT, layer, line};
use super::{View, seconds};
use crate::timeline::{AddedDelay, Column, LinkFacts, Timeline};

/// Beginning of a line's name.
const CONNECTION: &str = "connection ";

/// The smoothed round-trip time of each connection, as measured by its sender.
pub(super) fn round_trips_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let mut layers: Vec<Layer> = connections
        .used_connections()
        .filter_map(|one| {
            let points = line(one.track(timeline)?, Column::SrttUs, 1e-3, view);
            let measured_points: Vec<_> = points.into_iter().filter(|(_, ms)| *ms > 0.0).collect();
            let name = format!("{CONNECTION}{}", one.number);
            (!measured_points.is_empty())
                .then(|| layer(&name, one.colour, Shape::Line(measured_points)))
        })
        .collect();
    let values = layers.iter().flat_map(|layer| match &layer.shape {
        Shape::Line(points) => points.iter().map(|(_, y)| *y).collect(),
        _ => Vec::new(),
    });
    let max_ms = values.fold(0.0, f64::max);
    layers.extend(number_labels(&layers));
    if layers.is_empty() {
        return None;
    }
    let mut title = "Round-trip time, ms".to_owned();
    let mut max_ms = max_ms;
    if let Some(link) = timeline.head.link {
        title = format!("{title} (dotted: {})", about_idle_round_trip(&link));
        let idle_ms = idle_round_trips(&link, view);
        max_ms = idle_ms.iter().map(|(_, ms)| *ms).fold(max_ms, f64::max);
        layers.push(layer("", Colour::Ink, Shape::Reference(idle_ms)));
    }
    Some(Panel {
        title,
        y: Axis::linear_exact(max_ms * HEADROOM_FACTOR, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: Vec::new(),
    })
}

/// Returns what is known of the round-trip time of the link without a queue, shortly: titles of narrow charts have no second line.
fn about_idle_round_trip(link: &LinkFacts) -> String {
    let idle = format_number(link.round_trip_ms);
    match link.added_delay {
        AddedDelay::None => format!("idle, {idle}"),
        AddedDelay::Ramp { up_to_us, .. } => {
            let grown = format_number(link.round_trip_ms + up_to_us as f64 / 1e3);
            format!("idle, {idle} to {grown}")
        }
        AddedDelay::Random => format!("idle, {idle} on average"),
    }
}

/// Returns the round-trip time of the link without a queue over a view, in ms; its mean if it is random.
fn idle_round_trips(link: &LinkFacts, view: &View) -> Vec<(f64, f64)> {
    let at = |at_us| link.round_trip_ms + link.added_delay.at(at_us).unwrap_or(0) as f64 / 1e3;
    let columns = view.column_count() as u64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for column in 0..columns {
        let at_us = view.from_us
            + (u128::from(view.length_us()) * u128::from(column) / u128::from(columns)) as u64;
        if points.last().is_none_or(|(_, ms)| *ms != at(at_us)) {
            points.push((seconds(at_us), at(at_us)));
        }
    }
    points.push((seconds(view.to_us), at(view.to_us)));
    points
}

/// Labels of lines that cross, with the numbers of their connections: each at another time, so that they do not overlap.
fn number_labels(lines: &[Layer]) -> Option<Layer> {
    let label = |(index, layer): (usize, &Layer)| {
        let Shape::Line(points) = &layer.shape else { return None };
        let (x, y) = *points.get(points.len() * (2 * index + 1) / (2 * lines.len()))?;
        let number = layer.name.strip_prefix(CONNECTION)?.to_owned();
        Some(Label { x, y, text: number })
    };
    let labels = lines.iter().enumerate().filter_map(label).collect();
    (lines.len() > 1).then(|| layer("", Colour::Ink, Shape::Labels(labels)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_round_trip_is_drawn_as_it_grows() {
        let view = View { from_us: 500_000, to_us: 2_000_000, width: 800.0 };
        let added_delay =
            AddedDelay::Ramp { step_us: 15_000, every_us: 100_000, up_to_us: 150_000 };
        let of = |added_delay| LinkFacts {
            bits_per_s: 10_000_000,
            round_trip_ms: 50.0,
            queue_packets: 75,
            added_delay,
        };
        let ramp = of(added_delay);
        assert_eq!(about_idle_round_trip(&ramp), "idle, 50 to 200");
        let points = idle_round_trips(&ramp, &view);
        let values: Vec<_> = points.iter().map(|(_, ms)| *ms).collect();
        assert_eq!(values, [125.0, 140.0, 155.0, 170.0, 185.0, 200.0, 200.0]);
        assert!((points[5].0 - 1.0).abs() < 0.002, "{points:?}");
        let random = of(AddedDelay::Random);
        let about = about_idle_round_trip(&random);
        assert_eq!(about, "idle, 50 on average");
        assert_eq!(idle_round_trips(&random, &view), [(0.5, 50.0), (2.0, 50.0)]);
    }
}
