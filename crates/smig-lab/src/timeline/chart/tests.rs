//! Tests that the chart shows the timeline's values, and nothing else.

use std::collections::BTreeSet;

use smig_chart::html::assert_balanced;
use smig_chart::svg::{Colour, Panel, Shape};
use smig_link::Time;

use super::*;
use crate::timeline::{
    AddedDelay, Column, ConnectionName, Direction, LinkFacts, PagePart, PageSpan, Span,
    SpanOutcome, Subject, Track,
};

fn connection_name(number: u64) -> ConnectionName {
    ConnectionName(format!("10.99.0.2:{}", 5_000 + number))
}

/// Two seconds: a stream arrives on connection 1 for half of the time, then on connection 2.
/// Synthetic, not a measurement.
fn timeline() -> Timeline {
    let mut timeline = Timeline::new("A <run>", Time::ZERO);
    timeline.head.link = Some(LinkFacts {
        bits_per_s: 10_000_000,
        round_trip_ms: 50.0,
        queue_packets: 75,
        added_delay: AddedDelay::None,
    });
    let mut queue = Track::new(Subject::Link { direction: Direction::ToClient, connection: None });
    let mut drops = Track::new(queue.subject.clone());
    for at in (0..2_000_000).step_by(1_000) {
        queue.push(at, &[(Column::QueuePackets, at / 1_000 % 75)]);
    }
    drops.push(740_000, &[(Column::DroppedBytes, 1_500)]);
    timeline.tracks.extend([queue, drops]);
    for number in [1, 2, 3] {
        let connection = connection_name(number);
        let mut sender = Track::new(Subject::Connection {
            host: "server".into(),
            connection: connection.clone(),
        });
        let mut stream = Track::new(Subject::Stream { name: "big".into(), connection });
        let active = (number - 1) * 1_000_000..number * 1_000_000;
        for at in (0..2_000_000_u64).step_by(10_000) {
            let acked = at.clamp(active.start, active.end) - active.start;
            sender.push(
                at,
                &[
                    (Column::AckedBytes, acked),
                    (Column::CwndBytes, 30_000),
                    (Column::UnackedBytes, 20_000),
                    (Column::UnsentBytes, 5_000 * number),
                    (Column::SrttUs, 60_000),
                    (Column::RetransmittedBytes, if at > 900_000 { 1_448 } else { 0 }),
                ],
            );
            if acked > 0 && active.contains(&at) {
                stream.push(at, &[(Column::CarriedBytes, acked)]);
            }
        }
        timeline.tracks.push(sender);
        if number < 3 {
            timeline.tracks.push(stream);
        }
    }
    push_mark(&mut timeline, 400_000, AnnotationKind::Join);
    push_mark(&mut timeline, 401_000, AnnotationKind::Join);
    push_mark(&mut timeline, 1_000_000, AnnotationKind::Migrate);
    push_mark(&mut timeline, 1_700_000, AnnotationKind::Reset);
    push_mark(&mut timeline, 0, AnnotationKind::CongestionControl);
    let mut span = |title: &str, from_us, to_us, outcome| {
        timeline.spans.push(Span {
            name: title.into(),
            group: if title == "big" { "big" } else { "small" }.into(),
            from_us,
            first_byte_us: Some(from_us + 50_000),
            to_us,
            bytes: 10_000,
            connection: Some(connection_name(1)),
            outcome,
            part: None,
        });
    };
    span("big", 0, 2_000_000, SpanOutcome::Complete);
    span("one", 200_000, 260_000, SpanOutcome::Complete);
    span("two", 210_000, 400_000, SpanOutcome::Cancelled);
    timeline
}

fn push_mark(timeline: &mut Timeline, at_us: u64, kind: AnnotationKind) {
    let label = "cubic".into();
    let mark = crate::timeline::Annotation {
        at_us,
        kind,
        host: "server".into(),
        connection: Some(connection_name(if kind == AnnotationKind::Migrate { 2 } else { 1 })),
        label,
    };
    timeline.annotations.push(mark);
}

fn whole_figure() -> Figure {
    let timeline = timeline();
    figure(&timeline, &View::of_timeline(&timeline, 800.0))
}

fn layer_colours(panel: &Panel) -> Vec<Colour> {
    panel.layers.iter().map(|layer| layer.colour).collect()
}

/// Returns the colours of the first two connections, which differ.
fn connection_colours() -> [Colour; 2] {
    let connections = Connections::of(&timeline());
    let colours =
        [1, 2].map(|number| connections.by_name(&connection_name(number)).unwrap().colour);
    assert_ne!(colours[0], colours[1]);
    colours
}

fn titles(figure: &Figure) -> Vec<&str> {
    figure.panels.iter().map(|panel| panel.title.as_str()).collect()
}

#[test]
fn the_panels_and_their_order() {
    assert_eq!(
        titles(&whole_figure()),
        [
            "",
            "Each request, until its last byte",
            "Long transfers, MB transferred",
            "Received by the client, Mbit/s (dotted: link rate)",
            "Queue of the link, packets",
            "Connection 1 (cubic): send buffer, kB",
            "Connection 2: send buffer, kB",
            "Round-trip time, ms (dotted: idle, 50)",
        ]
    );
}

#[test]
fn marks_name_their_connection_and_close_ones_are_merged() {
    let labels: Vec<String> =
        whole_figure().event_lines.into_iter().map(|mark| mark.label).collect();
    assert_eq!(labels, ["2 JOIN", "MIGRATE to connection 2", "RST_STREAM on connection 1"]);
}

#[test]
fn a_request_has_the_colours_of_its_connections() {
    let figure = whole_figure();
    let names: Vec<&str> =
        figure.panels[1].layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "waiting on connection 1",
            "receiving on connection 1",
            "receiving on connection 2",
            "cancelled or failed"
        ]
    );
    let colours = layer_colours(&figure.panels[1]);
    let [first, second] = connection_colours();
    assert_eq!(colours[..3], [first, first, second]);
    let Shape::Bars(second) = &figure.panels[1].layers[2].shape else { panic!("bars") };
    assert_eq!(second[0].block.x, (1.01, 2.0));
    // Three rows: the big request, and two that overlap.
    assert_eq!(figure.panels[1].y.ticks(1).len(), 3);
}

#[test]
fn bytes_between_two_samples_are_distributed_evenly() {
    let mut timeline = timeline();
    let connection = connection_name(2);
    let mut kernel_track = Track::new(Subject::Connection { host: "client".into(), connection });
    // 1 MB in the second second: 8 Mbit/s, sampled four times per second.
    for quarter in 0..=4_u64 {
        kernel_track
            .push(1_000_000 + quarter * 250_000, &[(Column::ReceivedBytes, quarter * 250_000)]);
    }
    timeline.tracks.push(kernel_track);
    let figure = figure(&timeline, &View::of_timeline(&timeline, 800.0));
    let panel = figure.panels.iter().find(|panel| panel.title.starts_with("Received"));
    let Shape::Blocks(blocks) = &panel.unwrap().layers[1].shape else { panic!("blocks") };
    assert_eq!(blocks.len(), 50, "20 ms each");
    assert!(blocks.iter().all(|block| (block.y.1 - block.y.0 - 8.0).abs() < 1e-6), "{blocks:?}");
}

#[test]
fn the_queue_has_the_colours_of_its_connections() {
    let mut timeline = timeline();
    for (number, steps) in [(1, [(0, 10), (1_000_000, 2)]), (2, [(500_000, 0), (1_500_000, 40)])] {
        let connection = Some(connection_name(number));
        let mut connection_track =
            Track::new(Subject::Link { direction: Direction::ToClient, connection });
        steps.into_iter().for_each(|(at, packets)| {
            connection_track.push(at, &[(Column::QueuePackets, packets)])
        });
        timeline.tracks.push(connection_track);
    }
    let figure = figure(&timeline, &View::of_timeline(&timeline, 800.0));
    let panel = figure.panels.iter().find(|panel| panel.title.starts_with("Queue")).unwrap();
    let names: Vec<&str> = panel.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["of connection 1", "of connection 2", "of others", "dropped (1)"]);
    assert_eq!(layer_colours(panel)[..2], connection_colours());
    // Of 49 packets at 1.549 s, two belong to the first connection and forty to the second.
    let range_at = |layer: usize| {
        let Shape::Area(_, ranges) = &panel.layers[layer].shape else { panic!("an area") };
        let last = ranges.iter().rev().find(|range| range.x <= 1.549).unwrap();
        (last.low, last.high)
    };
    assert_eq!((range_at(0), range_at(1), range_at(2)), ((0.0, 2.0), (2.0, 42.0), (42.0, 49.0)));
}

#[test]
fn a_view_shows_only_its_interval() {
    let timeline = timeline();
    let view = View { from_us: 1_200_000, to_us: 1_500_000, width: 400.0 };
    let figure = figure(&timeline, &view);
    assert_eq!(figure.event_lines, []);
    assert_eq!(figure.panels[0].layers[0].name, "receiving on connection 2");
    let svg = figure.to_element();
    assert_balanced(&svg);
    assert!(svg.contains("1.2") && !svg.contains("dropped"), "{svg}");
}

/// Six requests for tiles, each on a connection of its own.
fn page_over_six_connections() -> Timeline {
    let mut timeline = Timeline::new("A page", Time::ZERO);
    timeline.pages.push(PageSpan {
        name: "page, load 1".into(),
        from_us: 0,
        rendered_us: Some(200_000),
        visible_us: Some(400_000),
        to_us: 900_000,
        clock_error_us: None,
        outcome: SpanOutcome::Complete,
    });
    for number in 1..=6 {
        let connection = connection_name(number);
        let mut track = Track::new(Subject::Connection {
            host: "server".into(),
            connection: connection.clone(),
        });
        for at in (0..1_000_000).step_by(10_000) {
            let sample = [
                (Column::AckedBytes, at / 10),
                (Column::CwndBytes, 10_000 * number),
                (Column::UnackedBytes, 8_000),
                (Column::UnsentBytes, 30_000),
                (Column::SrttUs, 50_000 + 1_000 * number),
            ];
            track.push(at, &sample);
        }
        let stream =
            Subject::Stream { name: format!("page {number}"), connection: connection.clone() };
        let mut stream = Track::new(stream);
        for at in (0..900_000).step_by(10_000) {
            stream.push(at, &[(Column::CarriedBytes, at / 10)]);
        }
        timeline.tracks.extend([track, stream]);
        timeline.spans.push(Span {
            name: format!("page {number}"),
            group: "page".into(),
            from_us: 1_000 * number,
            first_byte_us: Some(60_000),
            to_us: 900_000,
            bytes: 90_000,
            connection: Some(connection),
            outcome: SpanOutcome::Complete,
            part: Some(PagePart {
                page: "page, load 1".into(),
                resource: (number - 1).to_string(),
                kind: "image".into(),
                found_in: None,
                connect_us: None,
                sent_us: None,
                finished_us: None,
            }),
        });
    }
    timeline
}

#[test]
fn six_connections_are_told_apart_and_have_their_windows() {
    let timeline = page_over_six_connections();
    let figure = page_figure(&timeline, &timeline.pages[0], 900_000, 1_000.0);
    let panel = |title: &str| {
        figure.panels.iter().find(|panel| panel.title.starts_with(title)).expect("the panel")
    };
    let received = panel("Received");
    let colours: BTreeSet<_> =
        received.layers.iter().map(|layer| layer.colour.variable()).collect();
    assert_eq!((received.layers.len(), colours.len()), (6, 6));
    let requests = panel("Requests");
    let names: Vec<_> = requests.y.ticks(9).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names[5], "image 0 (1)");
    assert_eq!(names[0], "image 5 (6)");
    let Shape::Bars(bars) = &requests.layers[0].shape else { panic!("bars") };
    let tooltip = &bars[0].tooltip;
    assert!(tooltip.contains("waiting for the response 59 ms; 90 kB in 899 ms"), "{tooltip}");
    assert!(tooltip.contains("connection 1 (10.99.0.2:5001)"), "{tooltip}");
    let windows = panel("Send buffer").layers.last().expect("the windows");
    assert_eq!(windows.name, "congestion windows together");
    let Shape::Line(points) = &windows.shape else { panic!("a line") };
    assert!(points.iter().all(|(_, kb)| *kb == 210.0), "{points:?}");
    let Shape::Labels(labels) = &panel("Round-trip").layers.last().expect("labels").shape else {
        panic!("labels")
    };
    let texts: Vec<_> = labels.iter().map(|label| label.text.as_str()).collect();
    assert_eq!(texts, ["1", "2", "3", "4", "5", "6"]);
    assert!(labels.windows(2).all(|pair| pair[0].x < pair[1].x), "{labels:?}");
}

#[test]
fn as_many_rows_have_names_as_fit() {
    let timeline = page_over_six_connections();
    let of = |count: usize| {
        let mut timeline = timeline.clone();
        let span = timeline.spans.pop().unwrap();
        timeline.spans = (0..count)
            .map(|number| Span { name: format!("page {number}"), ..span.clone() })
            .collect();
        let mut figure = page_figure(&timeline, &timeline.pages[0], 900_000, 1_000.0);
        let panel = figure.panels.swap_remove(0);
        let names: Vec<_> = panel.y.ticks(9).into_iter().map(|(_, name)| name).collect();
        let named: Vec<_> = (0..count).filter(|row| !names[*row].is_empty()).collect();
        let step = named.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert_eq!(named.last(), Some(&(count - 1)), "the first request has its name");
        (named.len(), step as f64 * panel.height / count as f64, panel.title)
    };
    assert_eq!(of(49).0, 49);
    for count in [2, 24, 25, 49, 50, 51, 234, 2_000] {
        let (named, distance, title) = of(count);
        assert!(named > 1 && distance >= 12.0, "{count}: {named}, {distance}");
        assert_eq!(title.contains("named"), named < count, "{title}");
    }
}

#[test]
fn files_are_complete_and_self_contained() {
    let mut timeline = timeline();
    timeline.head.facts.insert("kernel".into(), "Linux <6>".into());
    let svg = render_svg(&timeline, &View::of_timeline(&timeline, 1_000.0));
    let html = render_html(&timeline);
    for text in [&svg, &html] {
        assert_balanced(text);
        assert!(text.contains("A &lt;run&gt;"));
        for outside in ["<script", "url(", "@import", "href=", "NaN", "inf"] {
            assert!(!text.contains(outside), "{outside}");
        }
    }
    assert!(svg.contains("small: 60.0 ms") || svg.contains("small: 60 ms"), "{svg}");
    assert!(svg.contains("1 connection not shown"));
    assert!(html.contains("Around the migration at 1.00 s") && html.contains("Linux &lt;6&gt;"));
}

#[test]
fn side_by_side_charts_share_scales() {
    let (first, mut second) = (timeline(), timeline());
    second.head.title = "Another".into();
    second.annotations.clear();
    second.head.link = Some(LinkFacts {
        bits_per_s: 40_000_000,
        round_trip_ms: 50.0,
        queue_packets: 300,
        added_delay: AddedDelay::None,
    });
    for span in &mut second.spans {
        span.to_us += 900_000;
        span.from_us += 100_000;
    }
    let svg = render_side_by_side(&[&first, &second], 1_000.0);
    assert_balanced(&svg);
    assert!(svg.contains("A &lt;run&gt;") && svg.contains("Another"));
    assert_same_panels(&svg);
    // A run in which nothing was complete or queued has these panels too, without values.
    second.spans.iter_mut().for_each(|span| span.outcome = SpanOutcome::Unfinished);
    second.tracks.retain(|track| !matches!(track.subject, Subject::Link { .. }));
    assert_same_panels(&render_side_by_side(&[&first, &second], 1_000.0));
    assert_same_panels(&render_side_by_side(&[&second, &first], 1_000.0));
    assert_balanced(&render_side_by_side(&[], 1_000.0));
}

/// Asserts that the panels' titles and the numbers of the y axes of two runs are the same, at the same heights.
fn assert_same_panels(svg: &str) {
    let columns: Vec<&str> = svg.split("<g transform=\"translate(").skip(1).collect();
    assert_eq!(columns.len(), 2);
    for attribute in ["class=\"name\"", "text-anchor=\"end\""] {
        let [first, second] = [columns[0], columns[1]].map(|column| -> Vec<&str> {
            let elements = column.split("<text ").filter_map(|text| text.split_once("</text>"));
            let texts = elements.map(|(text, _)| text);
            // A rule's note belongs to one chart.
            texts.filter(|text| text.contains(attribute) && !text.contains("\"note\"")).collect()
        });
        assert_eq!(first, second);
        assert!(first.len() >= 5, "{svg}");
    }
}

#[test]
fn a_timeline_without_values_is_an_empty_chart() {
    let timeline = Timeline::new("nothing", Time::ZERO);
    let figure = figure(&timeline, &View::of_timeline(&timeline, 500.0));
    assert_eq!(titles(&figure), [""; 0]);
    assert_balanced(&render_svg(&timeline, &View::of_timeline(&timeline, 500.0)));
    assert_balanced(&render_html(&timeline));
}
