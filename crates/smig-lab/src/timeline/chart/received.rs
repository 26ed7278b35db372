//! What arrived at the client over time.

use smig_chart::svg::{Axis, Block, Layer, Panel, Rule, Shape};

use super::connections::Connections;
use super::panels::{CONNECTION_PREFIX, HEADROOM_FACTOR, PLOT_HEIGHT};
use super::{View, seconds};
use crate::timeline::{Column, ConnectionName, Subject, Timeline};

/// Data that arrived on each connection, stacked.
pub(super) fn received_panel(
    timeline: &Timeline,
    connections: &Connections,
    view: &View,
) -> Option<Panel> {
    let bin_length_us = choose_bin_length_us(view);
    let bin_count = usize::try_from(view.length_us().div_ceil(bin_length_us)).unwrap_or(0);
    let mut floors = vec![0.0; bin_count];
    let mut layers = Vec::new();
    for connection in connections.used_connections() {
        let rates = rates(timeline, connections, &connection.name, view, bin_length_us, bin_count);
        let mut blocks = Vec::new();
        for (index, rate) in rates.into_iter().enumerate().filter(|(_, rate)| *rate > 0.0) {
            let from = view.from_us + index as u64 * bin_length_us;
            let to = (from + bin_length_us).min(view.to_us);
            let floor = floors[index];
            floors[index] = floor + rate;
            blocks.push(Block { x: (seconds(from), seconds(to)), y: (floor, floor + rate) });
        }
        if !blocks.is_empty() {
            let (name, shape) =
                (format!("{CONNECTION_PREFIX}{}", connection.title()), Shape::Blocks(blocks));
            layers.push(Layer { name, colour: connection.colour, shape });
        }
    }
    let max_mbit_s = floors.into_iter().fold(0.0, f64::max);
    let link_mbit_s = timeline.head.link.map(|link| link.bits_per_s as f64 / 1e6);
    let rule = link_mbit_s.map(|rate| Rule { y: rate, label: String::new() });
    (!layers.is_empty()).then(|| Panel {
        title: "Received by the client, Mbit/s (dotted: link rate)".into(),
        // A burst out of a full buffer may exceed the link's rate briefly.
        y: Axis::linear_exact(max_mbit_s.max(link_mbit_s.unwrap_or(0.0)) * HEADROOM_FACTOR, ""),
        height: PLOT_HEIGHT,
        layers,
        rules: rule.into_iter().collect(),
    })
}

/// Returns a round bin length that gives about a hundred bins.
fn choose_bin_length_us(view: &View) -> u64 {
    let approximate_us = view.length_us() / 100;
    let mut bin_length_us = 1_000;
    for factor in [2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000, 60_000] {
        if approximate_us > bin_length_us {
            bin_length_us = factor * 1_000;
        }
    }
    bin_length_us
}

/// Returns the rate in Mbit/s that arrived on a connection, by bin: from the receiver's kernel, or
/// from the bodies of streams if that was not sampled.
fn rates(
    timeline: &Timeline,
    connections: &Connections,
    connection: &ConnectionName,
    view: &View,
    bin_length_us: u64,
    bin_count: usize,
) -> Vec<f64> {
    let kernel_track = timeline.tracks.iter().find(|track| {
        matches!(&track.subject, Subject::Connection { host, connection: name }
            if *host != connections.sender && name == connection)
    });
    let mut bytes = vec![0.0; bin_count];
    match kernel_track {
        Some(track) => distribute(
            track.points(Column::ReceivedBytes),
            first_seen_us(timeline, connection),
            (view.from_us, bin_length_us),
            &mut bytes,
        ),
        None => {
            for track in &timeline.tracks {
                let Subject::Stream { name, connection: by } = &track.subject else { continue };
                if by == connection {
                    let span = timeline.spans.iter().find(|span| span.name == *name);
                    distribute(
                        track.points(Column::CarriedBytes),
                        span.and_then(|span| span.first_byte_us),
                        (view.from_us, bin_length_us),
                        &mut bytes,
                    );
                }
            }
        }
    }
    bytes.into_iter().map(|bytes| bytes * 8.0 / bin_length_us as f64).collect()
}

/// Returns when anything was first seen of a connection: packets in the queue, or a host's socket.
fn first_seen_us(timeline: &Timeline, connection: &ConnectionName) -> Option<u64> {
    let of_connection = timeline.tracks.iter().filter(|track| match &track.subject {
        Subject::Link { connection: of, .. } => of.as_ref() == Some(connection),
        Subject::Connection { connection: of, .. } | Subject::Stream { connection: of, .. } => {
            of == connection
        }
    });
    of_connection.filter_map(|track| track.at_us.first().copied()).min()
}

/// Adds a counter's growth to bins, distributed evenly between two samples. What it had at the first sample came since `began_us`: all at
/// once it would be more than a link can carry.
fn distribute(
    counter: impl Iterator<Item = (u64, u64)>,
    began_us: Option<u64>,
    (view_start_us, bin_length_us): (u64, u64),
    bins: &mut [f64],
) {
    let mut previous: Option<(u64, u64)> = None;
    for (at_us, total) in counter {
        let first_at_us = || began_us.unwrap_or(at_us).min(at_us);
        let (previous_at_us, previous_total) = previous.unwrap_or_else(|| (first_at_us(), 0));
        previous = Some((at_us, total));
        let growth = total.saturating_sub(previous_total) as f64;
        let length_us = (at_us - previous_at_us).max(1) as f64;
        let end_us = view_start_us + bins.len() as u64 * bin_length_us;
        // The bins that the interval overlaps, within the view.
        let mut begin_us = previous_at_us.max(view_start_us);
        while growth > 0.0 && begin_us < at_us.max(previous_at_us + 1).min(end_us) {
            let index = (begin_us - view_start_us) / bin_length_us;
            let next_us =
                (view_start_us + (index + 1) * bin_length_us).min(at_us.max(previous_at_us + 1));
            if let Some(value) = bins.get_mut(index as usize) {
                *value += growth * (next_us - begin_us) as f64 / length_us;
            }
            begin_us = next_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use smig_link::Time;

    use super::*;
    use crate::timeline::{Direction, Track};

    /// The client is sampled after 80 ms for the first time, when 100 kB have arrived since the first packet, 20 ms after the start.
    #[test]
    fn what_came_before_the_first_sample_does_not_exceed_the_links_rate() {
        let mut timeline = Timeline::new("Early", Time::ZERO);
        let connection = ConnectionName("10.99.0.2:5001".into());
        let mut queue = Track::new(Subject::Link {
            direction: Direction::ToClient,
            connection: Some(connection.clone()),
        });
        queue.push(20_000, &[(Column::QueuePackets, 1)]);
        let host = |host: &str| {
            Track::new(Subject::Connection { host: host.into(), connection: connection.clone() })
        };
        let (mut server, mut client) = (host("server"), host("client"));
        server.push(30_000, &[(Column::AckedBytes, 1_000), (Column::SentBytes, 1_000)]);
        server.push(200_000, &[(Column::AckedBytes, 250_000), (Column::SentBytes, 250_000)]);
        client.push(80_000, &[(Column::ReceivedBytes, 100_000)]);
        client.push(200_000, &[(Column::ReceivedBytes, 250_000)]);
        timeline.tracks.extend([queue, server, client]);
        let view = View { from_us: 0, to_us: 200_000, width: 800.0 };
        let figure = super::super::figure(&timeline, &view);
        let panel = figure.panels.iter().find(|panel| panel.title.starts_with("Received")).unwrap();
        let Shape::Blocks(blocks) = &panel.layers[0].shape else { panic!("blocks") };
        let highest = blocks.iter().map(|block| block.y.1).fold(0.0, f64::max);
        // 100 kB in 60 ms.
        assert!((highest - 13.3).abs() < 0.1, "{highest} Mbit/s");
    }
}
