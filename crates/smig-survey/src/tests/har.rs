//! HAR files as browsers and tools write them, and damaged ones.

use serde_json::json;

use super::*;
use crate::{DataSource, Table};

fn response(fields: serde_json::Value) -> HarResponse {
    let mut complete = json!({"status": 200, "headers": [], "redirectURL": ""});
    complete.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(complete).unwrap()
}

#[test]
fn the_size_is_what_was_transferred() {
    for (fields, transferred, decoded) in [
        // Firefox, WebPageTest: the body's size is given.
        (json!({"bodySize": 700, "content": {"size": 2000}}), Some(700), Some(2000)),
        // Chrome over HTTP/2: no body size, the transfer includes headers of unknown size.
        (
            json!({"bodySize": -1, "headersSize": -1, "_transferSize": 900, "content": {"size": 2000}}),
            Some(900),
            Some(2000),
        ),
        // Chrome over HTTP/1.1: the size of the headers can be subtracted.
        (
            json!({"bodySize": -1, "headersSize": 250, "_transferSize": 900, "content": {"size": 650}}),
            Some(650),
            Some(650),
        ),
        // From a cache: nothing was transferred, but the object has its size.
        (
            json!({"bodySize": 0, "_transferSize": 0, "content": {"size": 2000, "compression": 1300}}),
            Some(700),
            Some(2000),
        ),
        (json!({"bodySize": 0, "content": {"size": 0}}), Some(0), Some(0)),
        (json!({"bodySize": -1, "content": {"size": -1}}), None, None),
        (json!({"bodySize": null}), None, None),
        (json!({"bodySize": 12.0, "content": {}}), Some(12), Some(12)),
        // A range of a video gives the video's size.
        (
            json!({"status": 206, "bodySize": 10, "content": {"size": 10},
                "headers": [{"name": "Content-Range", "value": "bytes 0-9/5000000"}]}),
            Some(5_000_000),
            Some(5_000_000),
        ),
    ] {
        let response = response(fields.clone());
        assert_eq!(response.bytes(SizeRule::Transferred), transferred, "{fields}");
        assert_eq!(response.bytes(SizeRule::Decoded), decoded, "{fields}");
    }
}

#[test]
fn of_a_range_its_own_bytes_were_transferred() {
    let range = response(json!({"status": 206, "bodySize": 10, "content": {"size": 10},
        "headers": [{"name": "Content-Range", "value": "bytes 0-9/5000000"}]}));
    assert_eq!(range.body_bytes(), Some(10));
    assert_eq!(response(json!({"bodySize": 0})).body_bytes(), Some(0));
    assert_eq!(response(json!({"bodySize": -1})).body_bytes(), None);
}

fn entry(page: &str, url: &str, status: u16, bytes: i64) -> serde_json::Value {
    json!({
        "pageref": page, "startedDateTime": "2026-01-01T00:00:00Z", "time": 1,
        "request": {"method": "GET", "url": url},
        "response": {"status": status, "redirectURL": "", "headers": [], "headersSize": -1,
            "bodySize": bytes, "content": {"size": bytes, "mimeType": "x/y", "text": "ignored"}},
    })
}

fn read(har: &str) -> Result<Table, SurveyError> {
    let mut counts = SurveyCounts::default();
    read_har(har.as_bytes(), "a.har", SizeRule::Transferred, &mut counts)?;
    Ok(Table::new(DataSource::Har, &counts))
}

fn har(entries: &[serde_json::Value]) -> String {
    json!({"log": {"version": "1.2", "creator": {"name": "t", "version": "1"},
        "pages": [{"id": "p1"}, {"id": "p2"}], "entries": entries}})
    .to_string()
}

#[test]
fn a_site_is_where_the_first_request_ended_up() {
    let mut redirect = entry("p1", "http://example.com/", 301, 0);
    redirect["response"]["redirectURL"] = json!("https://www.example.com/");
    let table = read(&har(&[
        redirect,
        entry("p1", "https://www.example.com/", 200, 18_000),
        entry("p1", "https://www.example.com/film#t=1", 200, 6_000_000),
        entry("p1", "https://www.example.com/film", 200, 6_000_000),
        entry("p1", "https://cdn.example.com/huge", 200, 60_000_000),
        entry("p1", "https://www.example.com/gone", 404, 3_000_000),
        entry("p1", "https://www.example.com/odd", 200, -1),
        entry("p1", "data:image/gif;base64,AAAA", 200, 40),
        entry("p2", "https://other.example/", 200, 1_000),
    ]))
    .unwrap();
    assert_eq!((table.sites, table.objects), (2, 3));
    let reached: Vec<_> = table.threshold_rows.iter().map(|row| row.sites).collect();
    assert_eq!(reached, [1, 1, 0, 0, 0]);
    let left_out: Vec<_> = table.exclusions.iter().map(|(why, n)| (*why, *n)).collect();
    assert_eq!(
        left_out,
        [
            // example.com itself, and the other host.
            (Exclusion::OffHost, 2),
            (Exclusion::NotWeb, 1),
            (Exclusion::Status, 1),
            (Exclusion::NoSize, 1),
            (Exclusion::Repeated, 1),
        ]
    );
    assert_eq!(table.percentiles[1].bytes, Some(18_000.0));
}

#[test]
fn a_byte_order_mark_is_accepted() {
    let text = har(&[entry("p1", "https://a.example/", 200, 10)]);
    assert_eq!(read(&format!("\u{feff}{text}")).unwrap().sites, 1);
}

#[test]
fn errors_name_the_location() {
    let mut without_url = entry("p1", "https://a.example/", 200, 10);
    without_url["request"].as_object_mut().unwrap().remove("url");
    for (text, expected) in [
        (String::new(), "a.har: line 1"),
        ("{\"log\": {\n\"entries\": [}".to_owned(), "a.har: line 2, log.entries"),
        ("{\"log\": {}}".to_owned(), "missing field `entries`"),
        (har(&[entry("p1", "https://a.example/", 200, 1), without_url]), "log.entries[1].request"),
        (har(&[entry("p1", "not a url", 200, 1)]), "log.entries[0].request.url: \"not a url\""),
        (format!("{} {{}}", har(&[])), "data after the HAR"),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.starts_with("a.har: ") && error.contains(expected), "{error}");
    }
}
