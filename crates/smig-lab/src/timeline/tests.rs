//! Tests that timelines survive a round trip through their file, and that invalid files are
//! rejected with the line.

use super::*;

fn timeline() -> Timeline {
    let mut timeline = Timeline::new("a run", Time::from_nanos(5_000_000_000));
    timeline.head.link = Some(LinkFacts {
        bits_per_s: 10_000_000,
        round_trip_ms: 50.0,
        queue_packets: 75,
        added_delay: AddedDelay::None,
    });
    let connection = ConnectionName("10.99.0.2:41230".into());
    let mut track = Track::new(Subject::Connection { host: "server".into(), connection });
    track.push(10, &[(Column::CwndBytes, 14_480)]);
    track.push(20, &[(Column::CwndBytes, 28_960), (Column::SrttUs, 50_100)]);
    timeline.tracks.push(track);
    timeline.tracks.push(stream("1", 70));
    timeline.annotations.push(Annotation {
        at_us: 30,
        kind: AnnotationKind::Migrate,
        host: "server".into(),
        connection: None,
        label: "1 → 2".into(),
    });
    timeline.spans.push(Span {
        name: "object 1".into(),
        group: "objects".into(),
        from_us: 5,
        first_byte_us: Some(30),
        to_us: 40,
        bytes: 10_000,
        connection: Some(ConnectionName("1".into())),
        outcome: SpanOutcome::Complete,
        part: None,
    });
    timeline
}

fn stream(connection: &str, bytes: u64) -> Track {
    let connection = ConnectionName(connection.into());
    let mut track = Track::new(Subject::Stream { name: "big".into(), connection });
    track.push(25, &[(Column::CarriedBytes, bytes)]);
    track
}

fn to_json_lines(timeline: &Timeline) -> String {
    let mut bytes = Vec::new();
    timeline.write_to(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn read(text: &str) -> Result<Timeline, ReadError> {
    Timeline::read_from(&mut text.as_bytes())
}

#[test]
fn a_timeline_survives_its_file() {
    let timeline = timeline();
    assert_eq!(read(&to_json_lines(&timeline)).unwrap(), timeline);
}

#[test]
fn the_format_is_what_it_was() {
    insta::assert_snapshot!(to_json_lines(&timeline()));
}

#[test]
fn invalid_lines_are_reported_with_their_number() {
    let valid_text = to_json_lines(&timeline());
    let error_with = |from: &str, to: &str| {
        assert!(valid_text.contains(from), "{from}");
        read(&valid_text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    let headless: String = valid_text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    for (error, expected) in [
        (read("").unwrap_err().to_string(), "empty"),
        (read("{}\n").unwrap_err().to_string(), "line 1"),
        (error_with("\"version\":1", "\"version\":2"), "version 2"),
        (error_with("[10,20]", "[10]"), "line 2: CwndBytes has 2 values for 1 times"),
        (error_with("[10,20]", "[20,10]"), "line 2: times go backwards"),
        (error_with("\"migrate\"", "\"teleport\""), "line 4"),
        (error_with("{\"head\":", "{\"foot\":"), "line 1"),
        (read(&headless).unwrap_err().to_string(), "the first line is not a head"),
        (
            read(&format!("{valid_text}{valid_text}")).unwrap_err().to_string(),
            "line 6: a second head",
        ),
    ] {
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
}

#[test]
fn missing_column_values_are_zero() {
    let timeline = timeline();
    let track = &timeline.tracks[0];
    assert_eq!(track.points(Column::SrttUs).collect::<Vec<_>>(), [(10, 0), (20, 50_100)]);
    assert_eq!(track.value_at(Column::CwndBytes, 19), Some(14_480));
    assert_eq!(track.value_at(Column::CwndBytes, 9), None);
    assert_eq!(timeline.end_us(), 40);
    let mut track = track.clone();
    track.push(15, &[]);
    assert_eq!(track.at_us, [10, 20, 20], "time never falls");
    assert_eq!(track.last(Column::CwndBytes), Some(0));
}

#[test]
fn times_before_the_origin_are_zero() {
    let timeline = timeline();
    assert_eq!(timeline.micros_since_origin(Time::from_nanos(4_000_000_000)), 0);
    assert_eq!(timeline.micros_since_origin(Time::from_nanos(5_000_007_999)), 7);
}

#[test]
fn intervals_that_are_none_are_rejected() {
    let head = r#"{"head":{"version":1,"title":"t","origin_ns":0}}"#;
    let span = |from_us: u64, to_us: u64| {
        format!(
            "{head}\n{{\"span\":{{\"name\":\"a\",\"group\":\"a\",\"from_us\":{from_us},\"to_us\":{to_us},\
             \"bytes\":1,\"outcome\":\"complete\"}}}}\n"
        )
    };
    let page = format!(
        "{head}\n{{\"page\":{{\"name\":\"a\",\"from_us\":9,\"to_us\":5,\"outcome\":\"complete\"}}}}\n"
    );
    assert_eq!(read(&span(5, 9)).unwrap().spans.len(), 1);
    for text in [span(9, 5), span(0, u64::MAX), page] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("no interval"), "{error}");
    }
}
