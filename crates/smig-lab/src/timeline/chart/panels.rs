//! Panels of quantities over time.

use smig_chart::svg::{Axis, Colour, Layer, Panel, Rule, Shape, Tint, VerticalRange};
use smig_chart::{format_ms, format_number};

use super::connections::{Connection, Connections};
use super::downsample::downsample;
use super::{View, seconds};
use crate::timeline::{Column, ConnectionName, Direction, Subject, Timeline, Track};

/// Height of a plot in pixels.
pub(super) const PLOT_HEIGHT: f64 = 80.0;
/// Upper end of an axis, relative to the highest value.
pub(super) const HEADROOM_FACTOR: f64 = 1.08;

/// Prefix of a connection's name in a legend.
pub(super) const CONNECTION_PREFIX: &str = "on connection ";

/// An empty panel for the marks' labels, which need more lines in a narrow chart.
pub(super) fn mark_strip(view: &View) -> Panel {
    Panel {
        title: String::new(),
        y: Axis::categorical(Vec::new()),
        height: if view.width < 600.0 { 46.0 } else { 32.0 },
        layers: Vec::new(),
        rules: Vec::new(),
    }
}

/// Progress of long transfers, in the colour of the connection that carries their bytes.
pub(super) fn progress_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let mut layers: Vec<Layer> = Vec::new();
    let mut max_mb = 0.0_f64;
    for span in &timeline.spans {
        let mut lines: Vec<(Colour, Vec<(f64, f64)>)> = Vec::new();
        let samples = carried_samples(timeline, &span.name);
        if samples.len() < MIN_SAMPLES {
            continue;
        }
        let mut last_point = None;
        for (at_us, name, total) in samples {
            let colour = connections.by_name(name).map_or(Colour::Slate, |one| one.colour);
            let point = (seconds(at_us), total as f64 / 1e6);
            if lines.last().is_none_or(|(known, _)| *known != colour) {
                lines.push((colour, last_point.into_iter().collect()));
            }
            if let Some((_, line)) = lines.last_mut().filter(|_| view.contains(at_us)) {
                line.push(point);
                max_mb = max_mb.max(point.1);
            }
            last_point = view.contains(at_us).then_some(point);
        }
        let lines = lines.into_iter().filter(|(_, points)| points.len() > 1);
        layers.extend(lines.map(|(colour, line)| layer("", colour, Shape::Line(line))));
    }
    (!layers.is_empty()).then(|| Panel {
        title: "Long transfers, MB transferred".into(),
        y: Axis::linear_exact(max_mb * HEADROOM_FACTOR, ""),
        height: 60.0,
        layers,
        rules: Vec::new(),
    })
}

/// A transfer with fewer samples is too short to be drawn.
const MIN_SAMPLES: usize = 8;

/// Returns each sample of a stream: time, the connection whose bytes grew, and the total so far.
fn carried_samples<'a>(
    timeline: &'a Timeline,
    stream: &str,
) -> Vec<(u64, &'a ConnectionName, u64)> {
    let mut samples: Vec<(u64, &ConnectionName, u64)> = Vec::new();
    for track in &timeline.tracks {
        if let Subject::Stream { name, connection } = &track.subject
            && name == stream
        {
            let mut before = 0;
            for (at, total) in track.points(Column::CarriedBytes) {
                samples.push((at, connection, total.saturating_sub(before)));
                before = total;
            }
        }
    }
    samples.sort_by_key(|(at, ..)| *at);
    let mut total = 0;
    for step in &mut samples {
        total += step.2;
        step.2 = total;
    }
    samples
}

/// The queue towards the client by connection, with every drop.
pub(super) fn queue_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let subject_of = |connection| Subject::Link { direction: Direction::ToClient, connection };
    let total_subject = subject_of(None);
    let tracks = || timeline.tracks.iter().filter(|track| track.subject == total_subject);
    let lengths = tracks().find(|track| track.columns.contains_key(&Column::QueuePackets))?;
    let lengths = downsample(lengths.points(Column::QueuePackets), view);
    let mut floors = vec![0; lengths.len()];
    let mut layers = Vec::new();
    for connection in connections.used_connections() {
        let connection_subject = subject_of(Some(connection.name.clone()));
        let Some(track) = timeline.tracks.iter().find(|track| track.subject == connection_subject)
        else {
            continue;
        };
        let packets_at = |at| track.value_at(Column::QueuePackets, at).unwrap_or(0);
        let tops = lengths
            .iter()
            .zip(&floors)
            .map(|((at, all), floor)| (floor + packets_at(*at)).min(*all));
        let tops: Vec<u64> = tops.collect();
        if tops != floors {
            let area = Shape::Area(Tint::Full, ranges_between(&lengths, &floors, &tops));
            layers.push(layer(
                &format!("of connection {}", connection.number),
                connection.colour,
                area,
            ));
        }
        floors = tops;
    }
    let tops: Vec<u64> = lengths.iter().map(|(_, packets)| *packets).collect();
    if tops != floors {
        let name = if layers.is_empty() { "all packets" } else { "of others" };
        let area = Shape::Area(Tint::Full, ranges_between(&lengths, &floors, &tops));
        layers.push(layer(name, Colour::Slate, area));
    }
    let drops: Vec<f64> = tracks()
        .flat_map(|track| track.points(Column::DroppedBytes))
        .filter(|(at, _)| view.contains(*at))
        .map(|(at, _)| seconds(at))
        .collect();
    let max_packets = tops.into_iter().max().unwrap_or(0) as f64;
    let limit_rule = timeline.head.link.map(|link| {
        let drain_ms = link.queue_packets as f64 * 1_500.0 * 8.0 / link.bits_per_s as f64 * 1e3;
        let label = format!(
            "limit: {} packets, {} ms at link rate",
            link.queue_packets,
            format_ms(drain_ms)
        );
        Rule { y: link.queue_packets as f64, label }
    });
    // Omit the limit of a queue that never fills to 40 %: it would only compress the chart.
    let limit_rule = limit_rule.filter(|rule| rule.y <= max_packets * 2.5);
    let axis_end = max_packets.max(limit_rule.as_ref().map_or(0.0, |rule| rule.y * 1.3));
    if !drops.is_empty() {
        let name = format!("dropped ({})", drops.len());
        layers.push(layer(&name, Colour::Vermilion, Shape::Rug(drops)));
    }
    Some(Panel {
        title: "Queue of the link, packets".into(),
        y: Axis::linear_exact(axis_end * HEADROOM_FACTOR, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: limit_rule.into_iter().collect(),
    })
}

/// Returns ranges from `floors` to `tops` at the times of the points; each holds until the next.
fn ranges_between(points: &[(u64, u64)], floors: &[u64], tops: &[u64]) -> Vec<VerticalRange> {
    let mut ranges: Vec<VerticalRange> = Vec::new();
    for (((at, _), low), high) in points.iter().zip(floors).zip(tops) {
        let (x, low, high) = (seconds(*at), *low as f64, *high as f64);
        match ranges.last().copied() {
            // No change: extend the previous range.
            Some(last) if (last.low, last.high) == (low, high) => {}
            last => {
                ranges.extend(last.map(|last| VerticalRange { x, ..last }));
                ranges.push(VerticalRange { x, low, high });
            }
        }
    }
    let end = points.last().map(|(at, _)| seconds(*at));
    ranges.extend(ranges.last().copied().zip(end).map(|(last, x)| VerticalRange { x, ..last }));
    ranges
}

pub(super) fn layer(name: &str, colour: Colour, shape: Shape) -> Layer {
    Layer { name: name.to_owned(), colour, shape }
}

/// Data that one connection holds at its sender: in flight, and not sent yet.
pub(super) fn send_buffer_panel(
    timeline: &Timeline,
    connection: &Connection,
    view: &View,
) -> Option<Panel> {
    let track = connection.track(timeline)?;
    let in_flight_ranges: Vec<VerticalRange> = downsample(track.points(Column::UnackedBytes), view)
        .into_iter()
        .map(|(at, bytes)| VerticalRange { x: seconds(at), low: 0.0, high: kilobytes(bytes) })
        .collect();
    let unacked = |at| track.value_at(Column::UnackedBytes, at).unwrap_or(0);
    let unsent_ranges: Vec<VerticalRange> = downsample(track.points(Column::UnsentBytes), view)
        .into_iter()
        .map(|(at, bytes)| {
            let low = kilobytes(unacked(at));
            VerticalRange { x: seconds(at), low, high: low + kilobytes(bytes) }
        })
        .collect();
    let max_kb = unsent_ranges.iter().map(|range| range.high).fold(0.0, f64::max);
    if max_kb <= 0.0 {
        return None;
    }
    let windows = line(track, Column::CwndBytes, 1e-3, view);
    let (window, axis_end_kb) = window_layer("congestion window", windows, max_kb);
    let mut layers = vec![
        layer("not sent yet", connection.colour, Shape::Area(Tint::Faint, unsent_ranges)),
        layer(
            "sent, not acknowledged",
            connection.colour,
            Shape::Area(Tint::Full, in_flight_ranges),
        ),
        window,
    ];
    let retransmission_times = retransmissions(track, view);
    if !retransmission_times.is_empty() {
        layers.push(layer("retransmitted", Colour::Vermilion, Shape::Rug(retransmission_times)));
    }
    let title = format!("Connection {}: send buffer, kB", connection.title());
    Some(Panel {
        title,
        y: Axis::linear_exact(axis_end_kb * HEADROOM_FACTOR, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: Vec::new(),
    })
}

/// Data that all connections together hold at the sender, stacked: in flight opaque, unsent faint.
pub(super) fn combined_send_buffers_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let tracks: Vec<(&Connection, &Track)> = connections
        .used_connections()
        .filter_map(|one| Some((one, one.track(timeline)?)))
        .collect();
    // One list of times for all connections, so that their areas can be stacked.
    let mut times: Vec<u64> = tracks
        .iter()
        .flat_map(|(_, track)| downsample(track.points(Column::UnsentBytes), view))
        .map(|(at, _)| at)
        .collect();
    times.sort_unstable();
    times.dedup();
    let mut floors = vec![0.0; times.len()];
    let mut layers = Vec::new();
    for (column, tint) in [(Column::UnackedBytes, Tint::Full), (Column::UnsentBytes, Tint::Faint)] {
        for (connection, track) in &tracks {
            let ranges = times.iter().zip(&mut floors).map(|(at, floor)| {
                let low = *floor;
                *floor += kilobytes(track.value_at(column, *at).unwrap_or(0));
                VerticalRange { x: seconds(*at), low, high: *floor }
            });
            // The panel above has their legend.
            layers.push(layer("", connection.colour, Shape::Area(tint, ranges.collect())));
        }
    }
    let max_kb = floors.into_iter().fold(0.0, f64::max);
    if max_kb <= 0.0 {
        return None;
    }
    let windows = times.iter().map(|at| {
        let each = tracks.iter().filter_map(|(_, track)| track.value_at(Column::CwndBytes, *at));
        (seconds(*at), kilobytes(each.sum()))
    });
    let (window, axis_end_kb) =
        window_layer("congestion windows together", windows.collect(), max_kb);
    layers.push(window);
    Some(Panel {
        title: "Send buffer, kB (pale: not sent yet)".into(),
        y: Axis::linear_exact(axis_end_kb * HEADROOM_FACTOR, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: Vec::new(),
    })
}

/// Returns the line of congestion windows beside data of at most `max_kb`, and the end of the axis of both.
fn window_layer(name: &str, points: Vec<(f64, f64)>, max_kb: f64) -> (Layer, f64) {
    let max_window_kb = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    // A window that is far from being used would compress the other values.
    let axis_end_kb = max_window_kb.min(max_kb * 3.0).max(max_kb);
    let name = if max_window_kb > axis_end_kb {
        format!("{name} (up to {} kB)", format_number(max_window_kb))
    } else {
        name.to_owned()
    };
    (layer(&name, Colour::Ink, Shape::Line(points)), axis_end_kb)
}

fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

pub(super) fn line(track: &Track, column: Column, scale: f64, view: &View) -> Vec<(f64, f64)> {
    downsample(track.points(column), view)
        .into_iter()
        .map(|(at, value)| (seconds(at), value as f64 * scale))
        .collect()
}

/// Returns the times of retransmissions.
fn retransmissions(track: &Track, view: &View) -> Vec<f64> {
    let points: Vec<(u64, u64)> = track.points(Column::RetransmittedBytes).collect();
    points
        .windows(2)
        .filter(|pair| pair[1].1 > pair[0].1 && view.contains(pair[1].0))
        .map(|pair| seconds(pair[1].0))
        .collect()
}
