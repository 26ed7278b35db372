//! The charts of the demonstration's page.

use smig_chart::svg::{
    Axis, Block, Colour, EventLine, Figure, Layer, Marker, Panel, Point, Rule, Shape,
};
use smig_chart::{format_ms, format_number};
use smig_link::millis;

use super::data::{
    BackgroundLoad, BigFileSample, ConnectionId, DemoResult, DemoRun, DemoSetup, Variant,
};
use super::summary::{self, RunSummary, object_times_ms};

/// Plots one run: small objects above, the big file below.
pub(super) fn run_figure(result: &DemoResult, summaries: &[RunSummary], run: &DemoRun) -> Figure {
    let end = result.runs.iter().map(DemoRun::end).max().unwrap_or_default();
    let unloaded_median_ms = summary::unloaded_median(summaries);
    Figure {
        title: format!("{}: small objects and the big file over time", run.variant),
        description: describe(summaries, run),
        width: 350.0,
        x: Axis::linear_exact(end.as_secs_f64().ceil(), "s"),
        panels: vec![
            Panel {
                title: "Each small object: ms".into(),
                y: object_axis(result),
                height: 170.0,
                layers: object_layers(run),
                rules: unloaded_median_ms
                    .map(|y| Rule { y, label: String::new() })
                    .into_iter()
                    .collect(),
            },
            Panel {
                title: "Big file: Mbit/s".into(),
                y: Axis::linear(link_mbit_per_s(result), ""),
                height: 96.0,
                layers: big_file_layers(&result.setup, run),
                rules: Vec::new(),
            },
        ],
        event_lines: run
            .migrations
            .iter()
            .map(|migration| EventLine {
                x: migration.observed_at.as_secs_f64(),
                label: "migrated".into(),
            })
            .collect(),
    }
}

fn describe(summaries: &[RunSummary], run: &DemoRun) -> String {
    let median = summaries.iter().find(|s| s.variant == run.variant).and_then(|s| s.median_ms);
    match median {
        Some(median) => {
            format!("Median during the transfer of the big file: {} ms.", format_ms(median))
        }
        None => "No small object was received during the transfer of the big file.".into(),
    }
}

/// Factor by which the axis exceeds the slowest object: room for the label of a migration.
const AXIS_HEADROOM_FACTOR: f64 = 1.5;

/// Returns one axis for the small objects of all runs.
fn object_axis(result: &DemoResult) -> Axis {
    let times = || result.runs.iter().flat_map(|run| &run.objects).map(|o| millis::of(o.duration));
    let slowest = times().fold(0.0, f64::max);
    Axis::log(times().fold(f64::INFINITY, f64::min), slowest * AXIS_HEADROOM_FACTOR, "ms")
}

fn object_layers(run: &DemoRun) -> Vec<Layer> {
    let layer = |load, name: &str, colour, marker| {
        let objects = run.objects.iter().filter(|object| object.load == load);
        let points = objects
            .map(|object| Point {
                x: object.requested_at.as_secs_f64(),
                y: millis::of(object.duration),
                tooltip: format!(
                    "at {} s: {} ms",
                    format_number(object.requested_at.as_secs_f64()),
                    format_ms(millis::of(object.duration))
                ),
            })
            .collect();
        Layer { name: name.into(), colour, shape: Shape::Dots(marker, points) }
    };
    vec![
        layer(BackgroundLoad::Unloaded, "alone", Colour::Slate, Marker::Ring),
        layer(
            BackgroundLoad::BigFile,
            "during the download",
            colour(run.variant),
            marker(run.variant),
        ),
    ]
}

fn link_mbit_per_s(result: &DemoResult) -> f64 {
    result.setup.link.to_client.rate.mean_mbit()
}

/// Returns a stacked layer for each connection.
fn big_file_layers(setup: &DemoSetup, run: &DemoRun) -> Vec<Layer> {
    let mut connections: Vec<ConnectionId> =
        run.big_file_samples.iter().map(|s| s.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let base_mbit_per_s = |sample: &BigFileSample| -> f64 {
        let lower_samples = run.big_file_samples.iter().filter(|other| {
            other.interval_end == sample.interval_end && other.connection < sample.connection
        });
        lower_samples.map(|other| run.sample_mbit_per_s(other, setup.sample_interval)).sum()
    };
    let block = |sample: &BigFileSample| {
        let begin =
            sample.interval_end.saturating_sub(run.interval_of(sample, setup.sample_interval));
        let floor = base_mbit_per_s(sample);
        Block {
            x: (begin.as_secs_f64(), sample.interval_end.as_secs_f64()),
            y: (floor, floor + run.sample_mbit_per_s(sample, setup.sample_interval)),
        }
    };
    connections
        .into_iter()
        .map(|connection| Layer {
            name: connection.to_string(),
            colour: connection_colour(connection),
            shape: Shape::Blocks(
                run.big_file_samples
                    .iter()
                    .filter(|s| s.connection == connection)
                    .map(block)
                    .collect(),
            ),
        })
        .collect()
}

/// Plots the distribution of small objects beside the big file, all runs together.
pub(super) fn distribution_figure(
    result: &DemoResult,
    summaries: &[RunSummary],
    width: f64,
) -> Figure {
    let unloaded_layer = summary::unloaded_median(summaries).map(|median| Layer {
        name: "nothing else on the link (median)".into(),
        colour: Colour::Slate,
        shape: Shape::Line(vec![(median, 0.0), (median, 100.0)]),
    });
    let layers = result.runs.iter().flat_map(distribution_layers);
    Figure {
        title: "Distribution of small objects' times".into(),
        description: summary::findings(summaries).join(" "),
        width,
        x: object_axis(result),
        panels: vec![Panel {
            title: "Small objects complete within the time: %".into(),
            y: Axis::linear_exact(100.0, ""),
            height: 200.0,
            layers: unloaded_layer.into_iter().chain(layers).collect(),
            rules: Vec::new(),
        }],
        event_lines: Vec::new(),
    }
}

/// Returns a run's line and its markers at the quartiles, which distinguish runs by shape as well.
fn distribution_layers(run: &DemoRun) -> [Layer; 2] {
    let times = object_times_ms(run, BackgroundLoad::BigFile);
    let share = |index: usize| (index + 1) as f64 / times.len() as f64 * 100.0;
    let steps = times.iter().enumerate().map(|(index, time)| (*time, share(index)));
    let start_point = times.first().map(|first| (*first, 0.0));
    let quartile = |percent: f64| {
        let first = times.iter().enumerate().find(|(index, _)| share(*index) >= percent);
        first.map(|(_, time)| Point {
            x: *time,
            y: percent,
            tooltip: format!("{percent} % within {} ms", format_ms(*time)),
        })
    };
    let quartiles = [25.0, 50.0, 75.0].into_iter().filter_map(quartile).collect();
    let colour = colour(run.variant);
    let line = Shape::Steps(start_point.into_iter().chain(steps).collect());
    let dots = Shape::Dots(marker(run.variant), quartiles);
    [
        Layer { name: String::new(), colour, shape: line },
        Layer { name: run.variant.title().into(), colour, shape: dots },
    ]
}

pub(crate) const fn colour(variant: Variant) -> Colour {
    match variant {
        Variant::PlainHttp2 => Colour::Vermilion,
        Variant::NotsentLowat => Colour::Purple,
        Variant::Serve => Colour::Teal,
        Variant::Smig => Colour::Blue,
    }
}

const fn marker(variant: Variant) -> Marker {
    match variant {
        Variant::PlainHttp2 => Marker::Triangle,
        Variant::NotsentLowat => Marker::Square,
        Variant::Serve => Marker::Ring,
        Variant::Smig => Marker::Circle,
    }
}

const fn connection_colour(connection: ConnectionId) -> Colour {
    match connection.0 {
        0 | 1 => Colour::Slate,
        2 => Colour::Amber,
        _ => Colour::Teal,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::fixtures;

    #[test]
    fn intervals_with_two_connections_are_stacked() {
        let mut result = fixtures::result();
        let run = &mut result.runs[3];
        let interval_end = run.migrations[0].observed_at;
        let setup = &result.setup;
        run.big_file_samples = [1, 2]
            .map(|connection| BigFileSample {
                interval_end,
                connection: ConnectionId(connection),
                bytes: 250_000,
            })
            .to_vec();
        let layers = big_file_layers(setup, run);
        let Shape::Blocks(upper) = &layers[1].shape else { panic!("blocks") };
        assert_eq!((layers.len(), upper[0].y), (2, (4.0, 8.0)));
    }

    #[test]
    fn the_last_interval_begins_where_the_previous_one_ended() {
        let mut result = fixtures::result();
        let run = &mut result.runs[0];
        let started_at = run.big_file_started_at.unwrap();
        run.big_file_samples = [(500, 250_000), (750, 125_000)]
            .map(|(after_ms, bytes)| BigFileSample {
                interval_end: started_at + Duration::from_millis(after_ms),
                connection: ConnectionId(1),
                bytes,
            })
            .to_vec();
        let layers = big_file_layers(&result.setup, run);
        let Shape::Blocks(blocks) = &layers[0].shape else { panic!("blocks") };
        let start = started_at.as_secs_f64();
        assert_eq!((blocks[0].x, blocks[0].y), ((start, start + 0.5), (0.0, 4.0)));
        assert_eq!((blocks[1].x, blocks[1].y), ((start + 0.5, start + 0.75), (0.0, 4.0)));
    }
}
