//! The queue and the sender's window over time, as in the paper's Figure 2a.

use smig_chart::svg::{Axis, Colour, Figure, Layer, Panel, Rule, Shape};

use super::sender::Sender;
use super::spec::QUEUE_PACKETS;
use super::trace::QueueTrace;

const WIDTH: f64 = 720.0;
const PANEL_HEIGHT: f64 = 150.0;

/// Draws a panel for each probe: the queue as steps, the window as a line, and what was dropped. Returns an SVG file.
#[must_use]
pub fn render_svg(probes: &[(Sender, QueueTrace)]) -> String {
    let last = |trace: &QueueTrace| trace.queue.last().map_or(0.0, |point| point.at_s);
    let end_s = probes.iter().map(|(_, trace)| last(trace)).fold(0.0, f64::max);
    let panels = probes.iter().map(|(sender, trace)| panel(sender, trace, end_s)).collect();
    let figure = Figure {
        title: "Queue and congestion window".to_owned(),
        description: "For each sender, the packets in the queue of the narrow link and the sender's congestion \
            window over time"
            .to_owned(),
        width: WIDTH,
        x: Axis::linear_exact(end_s, "s"),
        panels,
        event_lines: Vec::new(),
    };
    figure.to_file()
}

fn panel(sender: &Sender, trace: &QueueTrace, end_s: f64) -> Panel {
    // Two points a pixel: a packet comes or leaves more often than can be seen.
    let mut queue: Vec<(f64, f64)> = Vec::new();
    for point in &trace.queue {
        let is_next = |last: &(f64, f64)| point.at_s - last.0 >= end_s / (WIDTH * 2.0);
        if queue.last().is_none_or(is_next) {
            queue.push((point.at_s, f64::from(point.packets)));
        }
    }
    let window: Vec<_> =
        trace.windows.iter().map(|point| (point.at_s, f64::from(point.segments))).collect();
    let most =
        window.iter().map(|(_, segments)| *segments).fold(f64::from(QUEUE_PACKETS), f64::max);
    let layer = |name: &str, colour, shape| Layer { name: name.to_owned(), colour, shape };
    Panel {
        title: format!("{sender}: packets"),
        y: Axis::linear(most, ""),
        height: PANEL_HEIGHT,
        layers: vec![
            layer("in the queue", Colour::Blue, Shape::Steps(queue)),
            layer("congestion window", Colour::Vermilion, Shape::Line(window)),
            layer("dropped", Colour::Purple, Shape::Rug(trace.drops_s.clone())),
        ],
        rules: vec![Rule { y: f64::from(QUEUE_PACKETS), label: "the queue is full".to_owned() }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::{QueuePoint, WindowPoint};

    #[test]
    fn each_sender_has_a_panel() {
        let trace = QueueTrace {
            queue: vec![
                QueuePoint { at_s: 0.0, packets: 1 },
                QueuePoint { at_s: 2.0, packets: 100 },
            ],
            drops_s: vec![2.0],
            windows: vec![WindowPoint { at_s: 1.0, segments: 180 }],
            received_bytes: 1,
        };
        let probes = ["cubic", "cubic-hystart"].map(|name| (name.parse().unwrap(), trace.clone()));
        let file = render_svg(&probes);
        assert!(file.contains("cubic: packets") && file.contains("cubic-hystart: packets"));
        assert_eq!(file.matches(">dropped</text>").count(), 2);
        assert!(render_svg(&[]).contains("<svg"), "nothing to draw is no reason to fail");
    }
}
