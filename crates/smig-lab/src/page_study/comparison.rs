//! Combinations side by side: each load as a dot, and what the loads with the median times waited for.

use smig_chart::format_ms;
use smig_chart::svg::{Axis, Bar, Block, Colour, Figure, Layer, Marker, Panel, Point, Shape, Tint};

use super::summary::{MeasuredLoad, PageSummary, levels_of, load_of};
use crate::timeline::page_load::Cause;
use crate::workload::PageMetric;

const ROW_HEIGHT: f64 = 26.0;
const ROW_GAP: f64 = 0.18;
/// Width of a median's mark, as a share of the axis.
const MEDIAN_WIDTH: f64 = 0.003;

pub(super) const LOADS_CAPTION: &str =
    "Each dot is a load, an open one of a run that the machine disturbed; the strokes are medians.";
pub(super) const SUM_CAPTION: &str = "What the critical path of the load with the median time (of an even number, the faster one in the \
    middle) waited for; the parts add up to its time until everything had arrived.";

/// Each load as a dot: one row for each combination.
pub(super) fn loads_figure(
    loads: &[MeasuredLoad<'_>],
    summaries: &[PageSummary],
    width: f64,
) -> Figure {
    let (mut clean, mut disturbed) = (Vec::new(), Vec::new());
    for measured in loads {
        let name = levels_of(&measured.result.id.condition);
        let is_own =
            |summary: &PageSummary| name == (summary.link.as_str(), summary.protocol.as_str());
        let row = summaries.iter().position(is_own);
        let time_s = load_of(measured.result).and_then(|load| PageMetric::Loaded.of(load));
        let (Some(row), Some(time_s)) = (row, time_s) else { continue };
        let number = measured.result.id.repetition;
        let tooltip = format!("{} {}, load {number}: {time_s:.3} s", name.0, name.1);
        let point = Point { x: time_s, y: row_bottom(summaries, row) + 0.5, tooltip };
        let is_clean = measured.result.disturbed.is_empty();
        if is_clean { &mut clean } else { &mut disturbed }.push(point);
    }
    let all = clean.iter().chain(&disturbed);
    let axis = Axis::linear(all.map(|point| point.x).fold(0.0, f64::max), "s");
    let half_width = axis.end() * MEDIAN_WIDTH / 2.0;
    let median = |(row, summary): (usize, &PageSummary)| {
        let loaded_s = summary.loaded_s?;
        let bottom = row_bottom(summaries, row);
        let block = Block {
            x: (loaded_s - half_width, loaded_s + half_width),
            y: (bottom + ROW_GAP, bottom + 1.0 - ROW_GAP),
        };
        let tooltip = format!("{}: median {loaded_s:.3} s", combination(summary));
        Some(Bar { block, tint: Tint::Full, tooltip })
    };
    let medians = summaries.iter().enumerate().filter_map(median).collect();
    let layer = |name: &str, colour, shape| Layer { name: name.into(), colour, shape };
    let mut layers = vec![
        layer("median", Colour::Ink, Shape::Bars(medians)),
        layer("load", Colour::Blue, Shape::Dots(Marker::Circle, clean)),
    ];
    if !disturbed.is_empty() {
        let dots = Shape::Dots(Marker::Ring, disturbed);
        layers.push(layer("disturbed load", Colour::Blue, dots));
    }
    figure("Time until everything had arrived", (summaries, axis), LOADS_CAPTION, layers, width)
}

/// Bars that add up: one for each combination.
pub(super) fn sum_figure(summaries: &[PageSummary], width: f64) -> Figure {
    let mut layers: Vec<Layer> = Vec::new();
    let mut ends = vec![0.0; summaries.len()];
    for cause in Cause::ALL {
        let (colour, tint) = cause_style(cause);
        let bars = summaries.iter().enumerate().filter_map(|(index, summary)| {
            let length_s = summary.lateness_us.us(cause) / 1e6;
            let from_s = ends[index];
            ends[index] += length_s;
            let bottom = row_bottom(summaries, index);
            let block = Block {
                x: (from_s, from_s + length_s),
                y: (bottom + ROW_GAP, bottom + 1.0 - ROW_GAP),
            };
            let share = 100.0 * length_s * 1e6 / summary.lateness_us.total_us().max(1e-9);
            let text = format!(
                "{}: {cause} {} ms ({share:.0} %)",
                combination(summary),
                format_ms(length_s * 1e3)
            );
            (length_s > 0.0).then_some(Bar { block, tint, tooltip: text })
        });
        let bars: Vec<_> = bars.collect();
        if !bars.is_empty() {
            layers.push(Layer { name: cause.to_string(), colour, shape: Shape::Bars(bars) });
        }
    }
    let axis = Axis::linear(ends.into_iter().fold(0.0, f64::max), "s");
    let title = "What the critical path waited for";
    figure(title, (summaries, axis), SUM_CAPTION, layers, width)
}

fn figure(
    title: &str,
    (summaries, x): (&[PageSummary], Axis),
    description: &str,
    layers: Vec<Layer>,
    width: f64,
) -> Figure {
    Figure {
        title: title.into(),
        description: description.into(),
        width,
        x,
        panels: vec![Panel {
            title: title.into(),
            y: Axis::categorical(summaries.iter().rev().map(combination).collect()),
            height: ROW_HEIGHT * summaries.len() as f64,
            layers,
            rules: Vec::new(),
        }],
        event_lines: Vec::new(),
    }
}

fn combination(summary: &PageSummary) -> String {
    format!("{} {}", summary.link, summary.protocol)
}

/// Returns the lower end of a combination's row: the first one is at the top.
fn row_bottom(summaries: &[PageSummary], index: usize) -> f64 {
    (summaries.len() - 1 - index) as f64
}

/// The colours of causes; neighbours differ in lightness.
const fn cause_style(cause: Cause) -> (Colour, Tint) {
    match cause {
        Cause::Client => (Colour::Teal, Tint::Full),
        Cause::Queue => (Colour::Brown, Tint::Half),
        Cause::Connect => (Colour::Amber, Tint::Full),
        Cause::RoundTrip => (Colour::Slate, Tint::Full),
        Cause::Server => (Colour::Purple, Tint::Half),
        Cause::CongestionControl => (Colour::Vermilion, Tint::Full),
        Cause::ReceiveWindow => (Colour::Vermilion, Tint::Half),
        Cause::LossRecovery => (Colour::Purple, Tint::Full),
        Cause::OtherStreams => (Colour::Blue, Tint::Half),
        Cause::OtherConnections => (Colour::Blue, Tint::Faint),
        Cause::Transfer => (Colour::Blue, Tint::Full),
        Cause::NotSeen => (Colour::Ink, Tint::Faint),
    }
}
