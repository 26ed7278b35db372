//! Tests of the critical path and its causes on small timelines.

use smig_link::Time;

use super::*;
use crate::timeline::{
    AddedDelay, Column, ConnectionName, Direction, LinkFacts, PagePart, PageSpan, Span,
    SpanOutcome, Subject, Timeline, Track,
};

const CONNECTION: &str = "10.99.0.2:5000";

fn span(name: &str, found_in: Option<&str>, [from, sent, first, to, finished]: [u64; 5]) -> Span {
    Span {
        name: name.into(),
        group: "page".into(),
        from_us: from * 1_000,
        first_byte_us: Some(first * 1_000),
        to_us: to * 1_000,
        bytes: 10_000,
        connection: Some(ConnectionName(CONNECTION.into())),
        outcome: SpanOutcome::Complete,
        part: Some(PagePart {
            page: "page".into(),
            resource: name.into(),
            kind: "image".into(),
            found_in: found_in.map(str::to_owned),
            connect_us: None,
            sent_us: Some(sent * 1_000),
            finished_us: Some(finished * 1_000),
        }),
    }
}

/// A document, a script that it names, and a picture that the script asks for; another picture ends earlier.
fn timeline() -> Timeline {
    let mut timeline = Timeline::new("t", Time::ZERO);
    timeline.head.link = Some(LinkFacts {
        bits_per_s: 8_000_000,
        round_trip_ms: 20.0,
        queue_packets: 50,
        added_delay: AddedDelay::None,
    });
    timeline.spans = vec![
        span("document", None, [0, 40, 60, 80, 80]),
        span("script", Some("document"), [70, 70, 90, 100, 130]),
        span("picture", Some("script"), [130, 140, 170, 200, 200]),
        span("other", Some("document"), [75, 75, 95, 150, 150]),
    ];
    let document = timeline.spans[0].part.as_mut().unwrap();
    document.connect_us = Some(1_000);
    timeline.pages.push(PageSpan {
        name: "page".into(),
        from_us: 0,
        rendered_us: Some(130_000),
        visible_us: Some(175_000),
        clock_error_us: None,
        to_us: 205_000,
        outcome: SpanOutcome::Complete,
    });
    timeline
}

fn describe(path: &[Step<'_>]) -> Vec<(String, u64, u64)> {
    let name = |step: &Step<'_>| match step.kind {
        StepKind::Client => "client".to_owned(),
        StepKind::Request(span, phase) => format!("{} {phase:?}", span.name),
    };
    path.iter().map(|step| (name(step), step.from_us / 1_000, step.to_us / 1_000)).collect()
}

#[test]
fn the_path_leads_from_the_navigation_to_the_end_without_gaps() {
    let timeline = timeline();
    let path = critical_path(&timeline, &timeline.pages[0]);
    let expected = [
        ("document Queued", 0, 1),
        ("document Connecting", 1, 40),
        ("document Waiting", 40, 60),
        ("document Receiving", 60, 70),
        ("script Waiting", 70, 90),
        ("script Receiving", 90, 100),
        ("script Running", 100, 130),
        ("picture Queued", 130, 140),
        ("picture Waiting", 140, 170),
        ("picture Receiving", 170, 200),
        ("client", 200, 205),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(name, from, to)| ((*name).to_owned(), *from, *to)).collect();
    assert_eq!(describe(&path), expected);
}

#[test]
fn a_circle_of_parents_and_a_page_without_requests_end() {
    let mut timeline = timeline();
    timeline.spans[0].part.as_mut().unwrap().found_in = Some("picture".into());
    let path = critical_path(&timeline, &timeline.pages[0]);
    assert_eq!((path[0].from_us, path[path.len() - 1].to_us), (0, 205_000));
    timeline.spans.clear();
    let path = critical_path(&timeline, &timeline.pages[0]);
    assert_eq!(describe(&path), [("client".to_owned(), 0, 205)]);
}

/// Adds samples of the sender and of the queue: times in ms; values in bytes.
fn with_network(samples: &[(u64, [(Column, u64); 3])], queue: &[(u64, u64)]) -> Timeline {
    let mut timeline = timeline();
    let connection = ConnectionName(CONNECTION.into());
    let mut sender = Track::new(Subject::Connection { host: "server".into(), connection });
    for (at_ms, values) in samples {
        sender.push(at_ms * 1_000, values);
    }
    let subject = Subject::Link { direction: Direction::ToClient, connection: None };
    let mut link = Track::new(subject);
    for (at_ms, bytes) in queue {
        link.push(at_ms * 1_000, &[(Column::QueueBytes, *bytes)]);
    }
    timeline.tracks = vec![sender, link];
    timeline
}

fn lateness_ms(timeline: &Timeline) -> Vec<(Cause, f64)> {
    let path = critical_path(timeline, &timeline.pages[0]);
    let lateness = Lateness::of(timeline, &timeline.pages[0], &path);
    let total_us: u64 = path.iter().map(Step::length_us).sum();
    assert!((lateness.total_us() - total_us as f64).abs() < 1.0, "{lateness:?}");
    let all = Cause::ALL.iter().map(|cause| (*cause, (lateness.us(*cause) / 100.0).round() / 10.0));
    all.filter(|(_, ms)| *ms > 0.0).collect()
}

#[test]
fn an_idle_link_with_data_in_the_socket_is_congestion_control() {
    let idle = [(Column::CwndBytes, 14_000), (Column::UnackedBytes, 0), (Column::UnsentBytes, 0)];
    let limited =
        [(Column::CwndBytes, 14_000), (Column::UnackedBytes, 14_000), (Column::UnsentBytes, 90)];
    // Half a round trip, 10 ms, before it shows at the client.
    let timeline = with_network(&[(0, idle), (165, limited), (175, idle)], &[]);
    let expected = [
        // The document's first millisecond: nothing else is on its way, so that no connection is occupied.
        (Cause::Client, 36.0),
        (Cause::Queue, 10.0),
        (Cause::Connect, 39.0),
        (Cause::RoundTrip, 100.0),
        (Cause::Server, 10.0),
        (Cause::CongestionControl, 10.0),
    ];
    assert_eq!(lateness_ms(&timeline), expected);
}

#[test]
fn a_busy_link_is_divided_by_whose_bytes_arrive() {
    let busy =
        [(Column::CwndBytes, 90_000), (Column::UnackedBytes, 50_000), (Column::UnsentBytes, 9)];
    let timeline = with_network(&[(0, busy)], &[(0, 9_000)]);
    let parts = lateness_ms(&timeline);
    let of = |cause| parts.iter().find(|(other, _)| *other == cause).map_or(0.0, |(_, ms)| *ms);
    // Own: the document's 10 ms; of the script's 10 ms 5 alone, and 5 with 1,000 of 1,182 bytes; the picture's 10 ms in the queue,
    // and its 30.
    assert_eq!((of(Cause::Transfer), of(Cause::OtherStreams)), (59.2, 0.8));
    assert_eq!((of(Cause::CongestionControl), of(Cause::Server)), (0.0, 0.0));
}

#[test]
fn retransmissions_are_loss_recovery() {
    let before =
        [(Column::CwndBytes, 90), (Column::UnackedBytes, 9), (Column::RetransmittedBytes, 0)];
    let after =
        [(Column::CwndBytes, 90), (Column::UnackedBytes, 9), (Column::RetransmittedBytes, 1_000)];
    let timeline = with_network(&[(0, before), (164, before), (174, after)], &[]);
    let parts = lateness_ms(&timeline);
    assert!(parts.contains(&(Cause::LossRecovery, 10.0)), "{parts:?}");
}

#[test]
fn a_link_at_its_rate_is_busy_without_a_queue() {
    // Data is ready, as with a paced sender at the bottleneck's rate of 1,000 bytes/ms.
    let samples: Vec<_> = (0..50)
        .map(|step| {
            let values = [
                (Column::CwndBytes, 90_000),
                (Column::UnsentBytes, 9_000),
                (Column::SentBytes, step * 5_000),
            ];
            (step * 5, values)
        })
        .collect();
    let parts = lateness_ms(&with_network(&samples, &[]));
    assert!(!parts.iter().any(|(cause, _)| *cause == Cause::CongestionControl), "{parts:?}");
}

#[test]
fn a_link_that_grows_longer_delays_what_left_it() {
    let mut timeline = timeline();
    let link = timeline.head.link.as_mut().unwrap();
    link.added_delay = AddedDelay::Ramp { step_us: 15_000, every_us: 100_000, up_to_us: 25_000 };
    let added: Vec<_> =
        [0, 99_999, 100_000, 900_000].map(|at_us| link.added_delay.at(at_us).unwrap()).to_vec();
    assert_eq!(added, [0, 0, 15_000, 25_000]);
    // The picture is sent at 140 ms: 20 ms and 15 ms are a round trip, so that nothing is left of the wait of 30 ms.
    let parts = lateness_ms(&timeline);
    let seen = parts.iter().find(|(cause, _)| *cause == Cause::RoundTrip);
    assert_eq!(seen, Some(&(Cause::RoundTrip, 20.0 + 20.0 + 30.0)));
}

#[test]
fn without_a_connection_nothing_is_blamed() {
    let parts = lateness_ms(&timeline());
    let causes: Vec<_> = parts.iter().map(|(cause, _)| *cause).collect();
    let expected = [Cause::Client, Cause::Queue, Cause::Connect, Cause::RoundTrip, Cause::NotSeen];
    assert_eq!(causes, expected);
}
