//! Panels of quantities over time.

use smig_chart::svg::{Axis, Block, Colour, Layer, Panel, Rule, Shape, Tint, VerticalRange};
use smig_chart::{format_ms, format_number};

use super::connections::{Connection, Connections};
use super::downsample::downsample;
use super::{View, seconds};
use crate::timeline::{Column, ConnectionName, Direction, Subject, Timeline, Track};

/// Height of a plot in pixels.
const PLOT_HEIGHT: f64 = 80.0;
/// Upper end of an axis, relative to the highest value.
const HEADROOM: f64 = 1.08;

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

/// Data that arrived on each connection, stacked.
pub(super) fn received(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let bin = bin_us(view);
    let bins = usize::try_from(view.length_us().div_ceil(bin)).unwrap_or(0);
    let mut floors = vec![0.0; bins];
    let mut layers = Vec::new();
    for one in connections.used() {
        let rates = rates(timeline, connections, &one.name, view, bin, bins);
        let mut blocks = Vec::new();
        for (index, rate) in rates.into_iter().enumerate().filter(|(_, rate)| *rate > 0.0) {
            let from = view.from_us + index as u64 * bin;
            let to = (from + bin).min(view.to_us);
            let floor = floors[index];
            floors[index] = floor + rate;
            blocks.push(Block { x: (seconds(from), seconds(to)), y: (floor, floor + rate) });
        }
        if !blocks.is_empty() {
            let (name, shape) =
                (format!("{CONNECTION_PREFIX}{}", one.title()), Shape::Blocks(blocks));
            layers.push(Layer { name, colour: one.colour, shape });
        }
    }
    let highest = floors.into_iter().fold(0.0, f64::max);
    let link = timeline.head.link.map(|link| link.bits_per_s as f64 / 1e6);
    let rule = link.map(|rate| Rule { y: rate, label: String::new() });
    (!layers.is_empty()).then(|| Panel {
        title: "Received by the client, Mbit/s (dotted: link rate)".into(),
        // A burst out of a full buffer may exceed the link's rate briefly.
        y: Axis::linear_exact(highest.max(link.unwrap_or(0.0)) * HEADROOM, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: rule.into_iter().collect(),
    })
}

/// Returns a round bin length that gives about a hundred bins.
fn bin_us(view: &View) -> u64 {
    let rough = view.length_us() / 100;
    let mut bin = 1_000;
    for factor in [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000, 60_000] {
        if rough > bin {
            bin = factor * 1_000;
        }
    }
    bin
}

/// Returns the rate in Mbit/s that arrived on a connection, by bin: from the receiver's kernel, or
/// from the bodies of streams if that was not sampled.
fn rates(
    timeline: &Timeline,
    connections: &Connections,
    connection: &ConnectionName,
    view: &View,
    bin: u64,
    bins: usize,
) -> Vec<f64> {
    let kernel = timeline.tracks.iter().find(|track| {
        matches!(&track.subject, Subject::Connection { host, connection: name }
            if *host != connections.sender && name == connection)
    });
    let mut bytes = vec![0.0; bins];
    match kernel {
        Some(track) => {
            distribute(track.points(Column::ReceivedBytes), view.from_us, bin, &mut bytes)
        }
        None => {
            for track in &timeline.tracks {
                let of = &track.subject;
                if matches!(of, Subject::Stream { connection: by, .. } if by == connection) {
                    distribute(track.points(Column::CarriedBytes), view.from_us, bin, &mut bytes);
                }
            }
        }
    }
    bytes.into_iter().map(|bytes| bytes * 8.0 / bin as f64).collect()
}

/// Adds a counter's growth to bins, distributed evenly between two samples.
fn distribute(counter: impl Iterator<Item = (u64, u64)>, origin: u64, bin: u64, into: &mut [f64]) {
    let mut before: Option<(u64, u64)> = None;
    for (at, total) in counter {
        let (since, from) = before.unwrap_or((at, 0));
        before = Some((at, total));
        let growth = total.saturating_sub(from) as f64;
        let length = (at - since).max(1) as f64;
        let end = origin + into.len() as u64 * bin;
        // The bins that the interval overlaps, within the view.
        let mut begin = since.max(origin);
        while growth > 0.0 && begin < at.max(since + 1).min(end) {
            let index = (begin - origin) / bin;
            let next = (origin + (index + 1) * bin).min(at.max(since + 1));
            if let Some(value) = into.get_mut(index as usize) {
                *value += growth * (next - begin) as f64 / length;
            }
            begin = next;
        }
    }
}

/// Progress of long transfers, in the colour of the connection that carries their bytes.
pub(super) fn progress(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let mut layers: Vec<Layer> = Vec::new();
    let mut highest = 0.0_f64;
    for span in &timeline.spans {
        let mut lines: Vec<(Colour, Vec<(f64, f64)>)> = Vec::new();
        let samples = carried_samples(timeline, &span.name);
        if samples.len() < MIN_SAMPLES {
            continue;
        }
        let mut last = None;
        for (at, name, total) in samples {
            let colour = connections.by_name(name).map_or(Colour::Slate, |one| one.colour);
            let point = (seconds(at), total as f64 / 1e6);
            if lines.last().is_none_or(|(known, _)| *known != colour) {
                lines.push((colour, last.into_iter().collect()));
            }
            if let Some((_, line)) = lines.last_mut().filter(|_| view.contains(at)) {
                line.push(point);
                highest = highest.max(point.1);
            }
            last = view.contains(at).then_some(point);
        }
        let lines = lines.into_iter().filter(|(_, points)| points.len() > 1);
        layers.extend(lines.map(|(colour, line)| layer("", colour, Shape::Line(line))));
    }
    (!layers.is_empty()).then(|| Panel {
        title: "Long transfers, MB transferred".into(),
        y: Axis::linear_exact(highest * HEADROOM, ""),
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
    let mut steps: Vec<(u64, &ConnectionName, u64)> = Vec::new();
    for track in &timeline.tracks {
        if let Subject::Stream { name, connection } = &track.subject
            && name == stream
        {
            let mut before = 0;
            for (at, total) in track.points(Column::CarriedBytes) {
                steps.push((at, connection, total.saturating_sub(before)));
                before = total;
            }
        }
    }
    steps.sort_by_key(|(at, ..)| *at);
    let mut total = 0;
    for step in &mut steps {
        total += step.2;
        step.2 = total;
    }
    steps
}

/// The queue towards the client by connection, with every drop.
pub(super) fn queue(timeline: &Timeline, connections: &Connections, view: &View) -> Option<Panel> {
    let of = |connection| Subject::Link { direction: Direction::ToClient, connection };
    let all = of(None);
    let tracks = || timeline.tracks.iter().filter(|track| track.subject == all);
    let lengths = tracks().find(|track| track.columns.contains_key(&Column::QueuePackets))?;
    let lengths = downsample(lengths.points(Column::QueuePackets), view);
    let mut floors = vec![0; lengths.len()];
    let mut layers = Vec::new();
    for one in connections.used() {
        let part = of(Some(one.name.clone()));
        let Some(track) = timeline.tracks.iter().find(|track| track.subject == part) else {
            continue;
        };
        let part = |at| track.value_at(Column::QueuePackets, at).unwrap_or(0);
        let tops =
            lengths.iter().zip(&floors).map(|((at, all), floor)| (floor + part(*at)).min(*all));
        let tops: Vec<u64> = tops.collect();
        if tops != floors {
            let area = Shape::Area(Tint::Full, steps(&lengths, &floors, &tops));
            layers.push(layer(&format!("of connection {}", one.number), one.colour, area));
        }
        floors = tops;
    }
    let tops: Vec<u64> = lengths.iter().map(|(_, packets)| *packets).collect();
    if tops != floors {
        let name = if layers.is_empty() { "all packets" } else { "of others" };
        let area = Shape::Area(Tint::Full, steps(&lengths, &floors, &tops));
        layers.push(layer(name, Colour::Slate, area));
    }
    let drops: Vec<f64> = tracks()
        .flat_map(|track| track.points(Column::DroppedBytes))
        .filter(|(at, _)| view.contains(*at))
        .map(|(at, _)| seconds(at))
        .collect();
    let highest = tops.into_iter().max().unwrap_or(0) as f64;
    let limit = timeline.head.link.map(|link| {
        let drain = link.queue_packets as f64 * 1_500.0 * 8.0 / link.bits_per_s as f64 * 1e3;
        let label =
            format!("limit: {} packets, {} ms at link rate", link.queue_packets, format_ms(drain));
        Rule { y: link.queue_packets as f64, label }
    });
    // Omit the limit of a queue that never fills to 40 %: it would only compress the chart.
    let limit = limit.filter(|rule| rule.y <= highest * 2.5);
    let axis = highest.max(limit.as_ref().map_or(0.0, |rule| rule.y * 1.3));
    if !drops.is_empty() {
        let name = format!("dropped ({})", drops.len());
        layers.push(layer(&name, Colour::Vermilion, Shape::Rug(drops)));
    }
    Some(Panel {
        title: "Queue of the link, packets".into(),
        y: Axis::linear_exact(axis * HEADROOM, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: limit.into_iter().collect(),
    })
}

/// Returns ranges from `floors` to `tops` at the times of the points; each holds until the next.
fn steps(points: &[(u64, u64)], floors: &[u64], tops: &[u64]) -> Vec<VerticalRange> {
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

fn layer(name: &str, colour: Colour, shape: Shape) -> Layer {
    Layer { name: name.to_owned(), colour, shape }
}

/// Data that one connection holds at its sender: in flight, and not sent yet.
pub(super) fn send_buffer(timeline: &Timeline, one: &Connection, view: &View) -> Option<Panel> {
    let track = one.track(timeline)?;
    let flight: Vec<VerticalRange> = downsample(track.points(Column::UnackedBytes), view)
        .into_iter()
        .map(|(at, bytes)| VerticalRange { x: seconds(at), low: 0.0, high: kilobytes(bytes) })
        .collect();
    let unacked = |at| track.value_at(Column::UnackedBytes, at).unwrap_or(0);
    let unsent: Vec<VerticalRange> = downsample(track.points(Column::UnsentBytes), view)
        .into_iter()
        .map(|(at, bytes)| {
            let low = kilobytes(unacked(at));
            VerticalRange { x: seconds(at), low, high: low + kilobytes(bytes) }
        })
        .collect();
    let highest = unsent.iter().map(|range| range.high).fold(0.0, f64::max);
    let window = line(track, Column::CwndBytes, 1e-3, view);
    let widest = window.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    // A window that is far from being used would compress the other values.
    let top = widest.min(highest * 3.0).max(highest);
    if highest <= 0.0 {
        return None;
    }
    let window_name = if widest > top {
        format!("congestion window (up to {} kB)", format_number(widest))
    } else {
        "congestion window".into()
    };
    let mut layers = vec![
        layer("not sent yet", one.colour, Shape::Area(Tint::Faint, unsent)),
        layer("sent, not acknowledged", one.colour, Shape::Area(Tint::Full, flight)),
        layer(&window_name, Colour::Ink, Shape::Line(window)),
    ];
    let retransmitted = retransmissions(track, view);
    if !retransmitted.is_empty() {
        layers.push(layer("retransmitted", Colour::Vermilion, Shape::Rug(retransmitted)));
    }
    let title = format!("Connection {}: send buffer, kB", one.title());
    Some(Panel {
        title,
        y: Axis::linear_exact(top * HEADROOM, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: Vec::new(),
    })
}

/// Data that all connections together hold at the sender, stacked: in flight opaque, unsent faint.
pub(super) fn send_buffers(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let tracks: Vec<(&Connection, &Track)> =
        connections.used().filter_map(|one| Some((one, one.track(timeline)?))).collect();
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
        for (one, track) in &tracks {
            let ranges = times.iter().zip(&mut floors).map(|(at, floor)| {
                let low = *floor;
                *floor += kilobytes(track.value_at(column, *at).unwrap_or(0));
                VerticalRange { x: seconds(*at), low, high: *floor }
            });
            layers.push(layer("", one.colour, Shape::Area(tint, ranges.collect())));
        }
    }
    let highest = floors.into_iter().fold(0.0, f64::max);
    (highest > 0.0).then(|| Panel {
        title: "Send buffer, kB (pale: not sent yet)".into(),
        y: Axis::linear_exact(highest * HEADROOM, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: Vec::new(),
    })
}

fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

fn line(track: &Track, column: Column, scale: f64, view: &View) -> Vec<(f64, f64)> {
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

/// The smoothed round-trip time of each connection, as measured by its sender.
pub(super) fn round_trips(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let layers: Vec<Layer> = connections
        .used()
        .filter_map(|one| {
            let points = line(one.track(timeline)?, Column::SrttUs, 1e-3, view);
            let known: Vec<_> = points.into_iter().filter(|(_, ms)| *ms > 0.0).collect();
            let name = format!("connection {}", one.number);
            (!known.is_empty()).then(|| layer(&name, one.colour, Shape::Line(known)))
        })
        .collect();
    let values = layers.iter().flat_map(|layer| match &layer.shape {
        Shape::Line(points) => points.iter().map(|(_, y)| *y).collect(),
        _ => Vec::new(),
    });
    let highest = values.fold(0.0, f64::max);
    let idle = timeline.head.link.map(|link| link.round_trip_ms);
    let title = "Round-trip time, ms";
    (!layers.is_empty()).then(|| Panel {
        title: idle.map_or_else(
            || title.to_owned(),
            |idle| format!("{title} (dotted: idle, {})", format_number(idle)),
        ),
        y: Axis::linear_exact(highest.max(idle.unwrap_or(0.0)) * HEADROOM, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: idle.map(|y| Rule { y, label: String::new() }).into_iter().collect(),
    })
}
