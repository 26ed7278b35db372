//! Links in scenario files, and the errors for invalid ones.

use std::path::Path;
use std::time::Duration;

use crate::{JitterSpec, LinkSpec, LossSpec, LteSpec, Profile, Qdisc, Rate, RateSpec, SpecError};

fn read(json: &str) -> Result<LinkSpec, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn symmetric_link(more: &str) -> Result<LinkSpec, String> {
    read(&format!(r#"{{"both": {{"delay_ms": 5, "queue": {{"packets": 9}}, {more}}}}}"#))
}

#[test]
fn a_link_is_a_name_or_a_table() {
    assert_eq!(read(r#""paper-wired""#), Ok(LinkSpec::paper_wired()));
    let error = read(r#""paper-wird""#).unwrap_err();
    assert!(error.contains("paper-wird") && error.contains("paper-wired, lte-like"), "{error}");
    let same = symmetric_link(r#""rate": "10 Mbit/s""#).unwrap();
    assert_eq!(same.to_client, same.to_server);
    let error = read(r#"{"to_client": {"rate": 1, "delay_ms": 5, "queue": {"packets": 9}}}"#);
    assert!(error.unwrap_err().contains("[to_client] and [to_server], or [both]"));
}

#[test]
fn a_queue_in_bandwidth_delay_products_needs_a_known_rate() {
    let read_with = |rate: &str| {
        read(&format!(r#"{{"both": {{"delay_ms": 50, "queue": {{"bdp": 1}}, "rate": {rate}}}}}"#))
    };
    assert_eq!(read_with(r#""12 Mbit/s""#).unwrap().to_client.queue.packets, 100);
    let error = read_with(r#"{"trace": "a.trace"}"#).unwrap_err();
    assert!(error.contains("queue.bdp needs a known rate"), "{error}");
}

#[test]
fn older_files_are_still_read() {
    let direction_json =
        r#"{"rate_bits_per_s": 10000000, "delay_ms": 25.0, "queue": {"packets": 75}}"#;
    let link =
        read(&format!(r#"{{"to_client": {direction_json}, "to_server": {direction_json}}}"#));
    assert_eq!(link, Ok(LinkSpec::paper_wired()));
}

#[test]
fn every_part_is_read() {
    let link = symmetric_link(
        r#""rate": {"steps": [{"at_ms": 0, "rate": "1 Mbit/s"}, {"at_ms": 5, "rate": 9000}],
                    "repeat_ms": 10},
           "jitter": {"normal": {"sd_ms": 70}}, "loss": {"bursts": {"enter": 0.1, "leave": 0.5}},
           "discipline": {"codel": {"target_ms": 2}}, "mtu": 1280"#,
    )
    .unwrap();
    let to_client = link.to_client;
    assert_eq!(to_client.rate.mean(), Some(Rate::bits_per_second(504_500)));
    let Some(JitterSpec::Normal(normal)) = to_client.jitter else { panic!("{to_client:?}") };
    assert_eq!(normal.redraw_interval, Duration::from_millis(100));
    assert!(to_client.loss.is_some_and(|loss| (loss.share() - 1.0 / 6.0).abs() < 1e-9));
    let Qdisc::CoDel(codel) = to_client.discipline else { panic!("{to_client:?}") };
    assert_eq!(codel.target, Duration::from_millis(2));
    assert_eq!(codel.interval, Duration::from_millis(100));
    assert_eq!(to_client.mtu, 1_280);

    let link = symmetric_link(r#""rate": {"lte": {"seed": 7}}, "discipline": "fq""#).unwrap();
    let lte = LteSpec { seed: Some(7), ..LteSpec::default() };
    assert_eq!(link.to_server.rate, RateSpec::Lte(lte));
    let link = symmetric_link(r#""rate": {"trace": "a.trace"}, "loss": {"random": 0.5}"#).unwrap();
    assert_eq!(link.to_client.loss, Some(LossSpec::Random(0.5)));
    let resolved = link.resolve_trace_paths(Path::new("/scenarios"));
    assert_eq!(resolved.to_client.rate, RateSpec::Trace("/scenarios/a.trace".into()));
}

#[test]
fn every_link_round_trips_through_json() {
    for profile in Profile::all() {
        let json = serde_json::to_string(&profile.spec).unwrap();
        assert_eq!(read(&json), Ok(profile.spec), "{json}");
    }
    let unusual_link = symmetric_link(
        r#""rate": {"steps": [{"at_ms": 0, "rate": 5}], "repeat_ms": 2.5}, "loss": {"random": 0.25},
           "jitter": {"slowdown": {"add_ms": 15, "every_ms": 100, "up_to_ms": 300}},
           "discipline": {"fq": {"flows": 8}}, "mtu": 9000"#,
    )
    .unwrap();
    assert_eq!(read(&serde_json::to_string(&unusual_link).unwrap()), Ok(unusual_link));
}

#[test]
fn parse_errors_name_the_mistake() {
    let assert_error = |more: &str, expected: &str| {
        let error = symmetric_link(more).unwrap_err();
        assert!(error.contains(expected), "{more}: {error}");
    };
    assert_error(r#""rate": "10 Mb""#, "\"10 Mbit/s\"");
    assert_error(r#""rate": 0"#, "more than 0");
    assert_error(r#""rate": {"trace": "x", "lte": {}}"#, "one of steps, trace and lte");
    assert_error(r#""rate": {"lte": {"sed": 1}}"#, "unknown field `sed`, expected one of `seed`");
    assert_error(r#""rate": {"trace": "x", "repeat_ms": 5}"#, "repeat_ms applies only to steps");
    assert_error(r#""rate": 5, "discipline": "fifo""#, "drop-tail");
    assert_error(r#""rate": 5, "dely_ms": 5"#, "unknown field `dely_ms`");
    assert_error(r#""rate": 5, "jitter": {"normal": {"sd": 5}}"#, "expected `sd_ms` or `every_ms`");
}

#[test]
fn check_rejects_invalid_values() {
    let assert_error = |more: &str, expected: &str| {
        let error = symmetric_link(more).unwrap().check().unwrap_err().to_string();
        assert!(error.contains("to_client") && error.contains(expected), "{more}: {error}");
    };
    assert_error(r#""rate": 5, "mtu": 20"#, "mtu = 20");
    assert_error(r#""rate": 5, "loss": {"random": 1.5}"#, "loss.random = 1.5");
    assert_error(r#""rate": {"steps": [{"at_ms": 5, "rate": 1}]}"#, "at_ms = 0");
    assert_error(r#""rate": 5, "discipline": {"fq": {"flows": 0}}"#, "flows");
    assert_error(
        r#""rate": 5, "jitter": {"slowdown": {"add_ms": 1, "every_ms": 0, "up_to_ms": 9}}"#,
        "every_ms",
    );
    let error =
        symmetric_link(r#""rate": {"trace": "/no/such.trace"}"#).unwrap().check().unwrap_err();
    assert!(matches!(error, SpecError::TraceFile { .. }), "{error}");
    assert!(error.to_string().contains("/no/such.trace"), "{error}");
}

#[test]
fn fq_codel_may_have_its_own_name_and_is_written_as_fq() {
    let link = |name: &str| symmetric_link(&format!(r#""rate": 5, "discipline": {name}"#)).unwrap();
    assert_eq!(link(r#""fq_codel""#), link(r#""fq""#));
    assert_eq!(link(r#"{"fq_codel": {"flows": 8}}"#), link(r#"{"fq": {"flows": 8}}"#));
    for discipline in [r#""fq_codel""#, r#"{"fq_codel": {}}"#] {
        let link = link(discipline);
        assert_eq!(link.to_client.discipline, Qdisc::fq_codel(), "{discipline}");
        assert_eq!(serde_json::to_string(&link.to_client.discipline).unwrap(), r#""fq""#);
    }
}
