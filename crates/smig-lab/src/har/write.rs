//! Writes what a browser has loaded as HAR 1.2, with the fields of Chromium's own recordings: other viewers show it, and this reader reads it.

use serde_json::{Map, Value, json};
use smig_browser::{NetworkRequest, NetworkResponse, PageRecording, RequestEnd};
use url::Url;

use super::instant::Instant;

const PAGE_ID: &str = "page_1";

/// A body in a file beside the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyFile {
    /// Its path, relative to the recording.
    pub path: String,
    /// Its size in bytes, decoded.
    pub bytes: u64,
}

/// Returns the recording as HAR. `bodies` has a file for each request whose body is known; `browser` is name and version.
#[must_use]
pub fn to_har(recording: &PageRecording, bodies: &[Option<BodyFile>], browser: &str) -> Value {
    let (browser, browser_version) = browser.rsplit_once(' ').unwrap_or((browser, ""));
    let first = recording.requests.first();
    let start_s = first.map_or(0.0, |request| request.started_s);
    let since_start = |at_s: Option<f64>| at_s.map_or(-1.0, |at_s| ms((at_s - start_s) * 1e3));
    let entries: Vec<_> = recording
        .requests
        .iter()
        .enumerate()
        .map(|(index, request)| entry(request, bodies.get(index).and_then(Option::as_ref)))
        .collect();
    let title = match recording.title.as_str() {
        "" => first.map_or("", |request| request.url.as_str()),
        title => title,
    };
    json!({"log": {
        "version": "1.2",
        "creator": {"name": "smig lab record", "version": env!("CARGO_PKG_VERSION")},
        "browser": {"name": browser, "version": browser_version},
        "pages": [{
            "id": PAGE_ID,
            "startedDateTime": Instant(first.map_or(0.0, |request| request.wall_time_s * 1e3)).to_string(),
            "title": title,
            "pageTimings": {
                "onContentLoad": since_start(recording.content_loaded_s),
                "onLoad": since_start(recording.loaded_s),
            },
        }],
        "entries": entries,
    }})
}

fn entry(request: &NetworkRequest, body: Option<&BodyFile>) -> Value {
    let timings = Timings::of(request);
    let response = request.response.as_ref();
    let protocol = response.map_or("", |response| protocol_name(&response.protocol));
    let mut entry = json!({
        "pageref": PAGE_ID,
        "startedDateTime": Instant(request.wall_time_s * 1e3).to_string(),
        "time": timings.total(),
        "request": {
            "method": request.method,
            "url": request.url,
            "httpVersion": protocol,
            "cookies": [],
            "headers": name_value_pairs(&request.fields),
            "queryString": query(&request.url),
            "headersSize": -1,
            "bodySize": request.body_bytes,
        },
        "response": response_of(request, body),
        "cache": {},
        "timings": timings.to_json(),
        "_resourceType": request.resource_type.to_ascii_lowercase(),
        "_priority": request.priority,
        "_initiator": request.initiator,
    });
    if let Some(response) = response {
        if !response.server_ip.is_empty() {
            entry["serverIPAddress"] = json!(response.server_ip);
        }
        // The number 0 is that of no connection.
        if response.connection > 0 && !request.from_cache {
            entry["connection"] = json!(response.connection.to_string());
        }
    }
    if request.from_cache {
        entry["_fromCache"] = json!("memory");
    }
    entry
}

fn response_of(request: &NetworkRequest, body: Option<&BodyFile>) -> Value {
    let nothing = NetworkResponse::default();
    let response = request.response.as_ref().unwrap_or(&nothing);
    let is_complete =
        matches!(&request.end, Some((_, RequestEnd::Complete(_) | RequestEnd::Redirected(_))));
    let decoded_bytes = body.map_or(request.decoded_bytes, |body| body.bytes);
    let body_bytes = body_bytes(request, response, decoded_bytes);
    let mut content = json!({"size": decoded_bytes, "mimeType": response.media_type});
    if decoded_bytes > body_bytes {
        content["compression"] = json!(decoded_bytes - body_bytes);
    }
    if let Some(body) = body {
        content["_file"] = json!(body.path);
    }
    let mut har = json!({
        // A response that is not complete is none: its size is not known.
        "status": if is_complete { response.status } else { 0 },
        "statusText": response.status_text,
        "httpVersion": protocol_name(&response.protocol),
        "cookies": [],
        "headers": name_value_pairs(&response.fields),
        "content": content,
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": if is_complete && !request.from_cache { body_bytes } else { 0 },
    });
    match &request.end {
        Some((_, RequestEnd::Complete(bytes))) => {
            har["_transferSize"] = json!(if request.from_cache { 0 } else { *bytes });
        }
        Some((_, RequestEnd::Redirected(url))) => har["redirectURL"] = json!(url),
        Some((_, RequestEnd::Failed(why))) => har["_error"] = json!(why),
        None => har["_error"] = json!("not finished when the recording ended"),
    }
    har
}

/// Returns the size of the body as it was transferred. The browser's own count includes frames, so the server's word comes first.
fn body_bytes(request: &NetworkRequest, response: &NetworkResponse, decoded_bytes: u64) -> u64 {
    if matches!(request.end, Some((_, RequestEnd::Redirected(_)))) {
        return 0;
    }
    let field = |name: &str| {
        let mut fields = response.fields.iter();
        fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    };
    let length = field("content-length").and_then(|length| length.trim().parse().ok());
    let is_encoded = field("content-encoding").is_some_and(|coding| coding != "identity");
    match length {
        Some(length) if request.method != "HEAD" => length,
        _ if is_encoded => request.encoded_bytes,
        _ => decoded_bytes,
    }
}

/// The phases of a request in ms; `None` where one does not apply.
struct Timings {
    blocked: f64,
    dns: Option<f64>,
    connect: Option<f64>,
    tls: Option<f64>,
    send: f64,
    wait: f64,
    receive: f64,
}

impl Timings {
    fn of(request: &NetworkRequest) -> Self {
        let start_s = request.started_s;
        let end_s = request.end.as_ref().map_or(start_s, |(at_s, _)| at_s.max(start_s));
        let none = Self {
            blocked: 0.0,
            dns: None,
            connect: None,
            tls: None,
            send: 0.0,
            wait: 0.0,
            receive: 0.0,
        };
        let Some(response) = &request.response else {
            return Self { blocked: ms((end_s - start_s) * 1e3), ..none };
        };
        let Some(timing) = response.timing.filter(|_| !request.from_cache) else {
            let received_s = response.received_s.clamp(start_s, end_s);
            let (wait, receive) =
                (ms((received_s - start_s) * 1e3), ms((end_s - received_s) * 1e3));
            return Self { wait, receive, ..none };
        };
        let length = |phase: Option<(f64, f64)>| phase.map(|(from, to)| ms(to - from));
        let (dns, connect) = (length(timing.dns_ms), length(timing.connect_ms));
        // Whatever else there was before the request was sent: it waited.
        let queued_ms = (timing.request_s - start_s) * 1e3 + timing.send_ms.0;
        let blocked = ms(queued_ms - dns.unwrap_or(0.0) - connect.unwrap_or(0.0));
        let head_s = timing.request_s + timing.head_ms / 1e3;
        Self {
            blocked,
            dns,
            connect,
            tls: length(timing.tls_ms),
            send: ms(timing.send_ms.1 - timing.send_ms.0),
            wait: ms(timing.head_ms - timing.send_ms.1),
            receive: ms((end_s - head_s) * 1e3),
        }
    }

    /// The TLS handshake is part of connecting.
    fn total(&self) -> f64 {
        let connecting = self.dns.unwrap_or(0.0) + self.connect.unwrap_or(0.0);
        ms(self.blocked + connecting + self.send + self.wait + self.receive)
    }

    fn to_json(&self) -> Value {
        let known = |phase: Option<f64>| phase.unwrap_or(-1.0);
        json!({"blocked": self.blocked, "dns": known(self.dns), "connect": known(self.connect),
            "ssl": known(self.tls), "send": self.send, "wait": self.wait, "receive": self.receive})
    }
}

/// Returns a time that is not negative, to the microsecond.
fn ms(ms: f64) -> f64 {
    (ms.max(0.0) * 1e3).round() / 1e3
}

fn name_value_pairs(fields: &[(String, String)]) -> Vec<Value> {
    fields.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn query(url: &str) -> Vec<Value> {
    let Ok(url) = Url::parse(url) else { return Vec::new() };
    let pair = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        let pair = [("name", json!(name)), ("value", json!(value))];
        Value::Object(Map::from_iter(pair.map(|(key, value)| (key.to_owned(), value))))
    };
    url.query_pairs().map(pair).collect()
}

/// Returns a protocol as HTTP calls it, by its ALPN identifier.
fn protocol_name(alpn: &str) -> &str {
    match alpn {
        "h2" => "HTTP/2",
        "h3" => "HTTP/3",
        "http/1.1" => "HTTP/1.1",
        "http/1.0" => "HTTP/1.0",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use smig_browser::NetworkTiming;

    use super::*;
    use crate::har::{ContentKind, Found};

    fn request(url: &str, kind: &str, started_s: f64) -> NetworkRequest {
        let timing = NetworkTiming {
            request_s: started_s + 0.001,
            dns_ms: Some((0.0, 2.0)),
            connect_ms: Some((2.0, 12.0)),
            tls_ms: Some((7.0, 12.0)),
            send_ms: (13.0, 13.5),
            head_ms: 40.0,
        };
        NetworkRequest {
            url: url.to_owned(),
            method: "GET".to_owned(),
            resource_type: kind.to_owned(),
            priority: "High".to_owned(),
            started_s,
            wall_time_s: 1.7e9 + started_s,
            response: Some(NetworkResponse {
                status: 200,
                protocol: "h2".to_owned(),
                fields: vec![("Content-Length".to_owned(), "700".to_owned())],
                server_ip: "127.0.0.1".to_owned(),
                connection: 3,
                timing: Some(timing),
                ..NetworkResponse::default()
            }),
            decoded_bytes: 2_000,
            encoded_bytes: 730,
            end: Some((started_s + 0.050, RequestEnd::Complete(900))),
            ..NetworkRequest::default()
        }
    }

    fn recording() -> PageRecording {
        let mut image = request("https://b.example/c.png", "Image", 10.1);
        image.initiator = json!({"type": "parser", "url": "https://a.example/"});
        let mut unfinished = request("https://a.example/events", "EventSource", 10.2);
        unfinished.end = None;
        let mut moved = request("https://a.example/old?a=1&b=%20", "Script", 10.3);
        moved.end = Some((10.31, RequestEnd::Redirected("https://a.example/new".to_owned())));
        moved.response.as_mut().unwrap().status = 302;
        let mut cached = request("https://b.example/c.png", "Image", 10.4);
        cached.from_cache = true;
        let document = request("https://a.example/", "Document", 10.0);
        PageRecording {
            requests: vec![document, image, unfinished, moved, cached],
            omitted: 0,
            title: "A".to_owned(),
            content_loaded_s: Some(10.06),
            loaded_s: Some(10.5),
        }
    }

    #[test]
    fn a_recording_has_what_har_requires_and_is_read_again() {
        let body = BodyFile { path: "bodies/0.html".to_owned(), bytes: 2_000 };
        let har = to_har(&recording(), &[Some(body)], "HeadlessChrome 156.0");
        let log = &har["log"];
        assert_eq!((&log["version"], &log["browser"]["version"]), (&json!("1.2"), &json!("156.0")));
        let timings = &log["pages"][0]["pageTimings"];
        assert_eq!(timings, &json!({"onContentLoad": 60.0, "onLoad": 500.0}));
        let entry = &log["entries"][0];
        let phases = json!({"blocked": 2.0, "dns": 2.0, "connect": 10.0, "ssl": 5.0, "send": 0.5, "wait": 26.5,
            "receive": 9.0});
        assert_eq!((&entry["timings"], &entry["time"]), (&phases, &json!(50.0)));
        assert_eq!(
            (&entry["connection"], &entry["serverIPAddress"]),
            (&json!("3"), &json!("127.0.0.1"))
        );
        let content =
            json!({"size": 2_000, "compression": 1_300, "mimeType": "", "_file": "bodies/0.html"});
        assert_eq!(
            (&entry["response"]["content"], &entry["response"]["bodySize"]),
            (&content, &json!(700))
        );
        for entry in log["entries"].as_array().unwrap() {
            for key in ["startedDateTime", "time", "request", "response", "cache", "timings"] {
                assert!(!entry[key].is_null(), "{key}");
            }
        }
        assert_eq!(
            log["entries"][3]["request"]["queryString"][1],
            json!({"name": "b", "value": " "})
        );

        let page = crate::har::read(har.to_string().as_bytes(), "page.har").unwrap();
        let requests: Vec<_> = page
            .requests
            .iter()
            .map(|request| (request.url.path(), request.kind, request.bytes, request.found))
            .collect();
        let in_document = |position| Found::Document { position };
        assert_eq!(
            requests,
            [
                ("/", ContentKind::Document, 700, Found::Start),
                ("/c.png", ContentKind::Image, 700, in_document(1.0 / 3.0)),
                ("/old", ContentKind::Script, 0, in_document(2.0 / 3.0)),
            ]
        );
        assert_eq!((page.left_out.failed, page.left_out.cached), (1, 1));
    }
}
