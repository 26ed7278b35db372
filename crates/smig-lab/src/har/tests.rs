//! HAR files as tools write them: who asked for what; and files that are none, or harmful.

use serde_json::{Value, json};

use super::*;

/// Returns an entry with what all tools write.
fn entry(start_ms: u32, url: &str, media_type: &str, bytes: i64) -> Value {
    let started = Instant(1_769_860_800_000.0 + f64::from(start_ms)).to_string();
    json!({
        "pageref": "page_1", "startedDateTime": started, "time": 60,
        "request": {"method": "GET", "url": url, "httpVersion": "HTTP/2", "headers": [], "cookies": [],
            "queryString": [], "headersSize": -1, "bodySize": 0},
        "response": {"status": 200, "statusText": "", "httpVersion": "HTTP/2", "headers": [], "cookies": [],
            "content": {"size": bytes, "mimeType": media_type, "text": "ignored"}, "redirectURL": "",
            "headersSize": -1, "bodySize": bytes},
        "cache": {}, "timings": {"blocked": 0, "dns": -1, "connect": -1, "send": 0, "wait": 20, "receive": 40},
        "serverIPAddress": "192.0.2.1", "connection": "443",
    })
}

fn har(entries: &[Value]) -> String {
    let creator = json!({"name": "test", "version": "1"});
    json!({"log": {"version": "1.2", "creator": creator, "pages": [{"id": "page_1"}], "entries": entries}})
        .to_string()
}

fn page(entries: &[Value]) -> RecordedPage {
    read(har(entries).as_bytes(), "page.har").unwrap_or_else(|error| panic!("{error}"))
}

fn with(mut entry: Value, fields: Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        entry[key] = value.clone();
    }
    entry
}

const DOCUMENT: &str = "https://www.example.org/";

/// Returns path, kind and who asked, one line for each request.
fn graph(page: &RecordedPage) -> Vec<String> {
    let asker = |found| match found {
        Found::Start => "start".to_owned(),
        Found::Document { position } => format!("{position:.2}"),
        Found::By { index } => page.requests[index].url.path().to_owned(),
    };
    let line = |request: &RecordedRequest| {
        format!("{} {:?} {}", request.url.path(), request.kind, asker(request.found))
    };
    page.requests.iter().map(line).collect()
}

#[test]
fn a_recording_of_chrome_names_initiators() {
    let parser = json!({"_initiator": {"type": "parser", "url": DOCUMENT, "lineNumber": 3}});
    let by_script = json!({"_resourceType": "fetch", "_initiator": {"type": "script", "stack": {"callFrames":
        [{"functionName": "", "url": "https://unknown.example/x.js", "lineNumber": 1}],
        "parent": {"callFrames": [{"url": "https://cdn.example.net/app.js"}]}}}});
    let page = page(&[
        with(
            entry(0, DOCUMENT, "text/html", -1),
            json!({"_resourceType": "document", "_initiator": {"type": "other"},
            "response": {"status": 200, "headersSize": -1, "bodySize": -1, "_transferSize": 9000,
                "redirectURL": "", "content": {"size": 30000, "mimeType": "text/html"}}}),
        ),
        with(entry(30, "https://www.example.org/a.css", "text/css", 100), parser.clone()),
        with(
            entry(40, "https://cdn.example.net/app.js", "text/javascript", 5000),
            with(parser.clone(), json!({"_priority": "High", "serverIPAddress": "[2001:db8::1]"})),
        ),
        with(
            entry(41, "https://cdn.example.net/late.js", "text/javascript", 5000),
            with(parser, json!({"_priority": "Low"})),
        ),
        with(
            entry(95, "https://www.example.org/f.woff2", "font/woff2", 700),
            json!({"_initiator": {"type": "parser", "url": "https://www.example.org/a.css#x"}}),
        ),
        with(entry(120, "https://api.example.org/v1?q=1", "application/json", 0), by_script),
        with(
            entry(130, "https://www.example.org/a.css", "text/css", 100),
            json!({"_fromCache": "memory"}),
        ),
        entry(131, "data:image/gif;base64,AA", "image/gif", 40),
    ]);
    assert_eq!(
        graph(&page),
        [
            "/ Document start",
            // Ten ms after the first of 40: at most a quarter of the document.
            "/a.css Style 0.25",
            "/app.js Script 0.50",
            "/late.js Script 0.53",
            "/f.woff2 Font /a.css",
            "/v1 Fetch /app.js",
        ]
    );
    let [document, _, app, late, ..] = page.requests.as_slice() else { panic!() };
    assert_eq!((document.bytes, app.bytes), (9_000, 5_000));
    assert_eq!((app.is_deferred, late.is_deferred), (false, true));
    assert_eq!(app.server_ip, Some("2001:db8::1".parse().unwrap()));
    let hosts: Vec<_> = page.hosts().into_iter().map(|(host, count, _)| (host, count)).collect();
    assert_eq!(hosts, [("www.example.org", 3), ("cdn.example.net", 2), ("api.example.org", 1)]);
    assert_eq!(page.left_out.reasons(), [(1, "not over HTTP"), (1, "from a cache")]);
}

#[test]
fn a_recording_of_firefox_has_referers_and_times() {
    let referer = |entry: Value, url: &str| {
        let headers = json!([{"name": "Referer", "value": url}]);
        let mut entry = entry;
        entry["request"]["headers"] = headers;
        entry
    };
    let page = page(&[
        // The redirect to the document is no part of its load.
        with(
            entry(0, "http://example.org/", "", 0),
            json!({"response": {"status": 301, "redirectURL": DOCUMENT, "bodySize": 0, "content": {}}}),
        ),
        entry(50, DOCUMENT, "text/html; charset=utf-8", 9_000),
        referer(entry(75, "https://www.example.org/a.css", "text/css", 100), DOCUMENT),
        referer(
            entry(80, "https://www.example.org/app.js", "application/javascript", 100),
            DOCUMENT,
        ),
        referer(
            entry(150, "https://www.example.org/f.woff2", "", 100),
            "https://www.example.org/a.css",
        ),
        // After the document, of which nothing is left to find, and the script, which ended at 140.
        referer(entry(160, "https://www.example.org/data", "application/json", 100), DOCUMENT),
        referer(entry(170, "https://tracker.example/p.gif", "image/gif", 35), DOCUMENT),
    ]);
    assert_eq!(
        graph(&page),
        [
            "/ Document start",
            "/a.css Style 0.12",
            "/app.js Script 0.25",
            "/f.woff2 Font /a.css",
            "/data Fetch /app.js",
            "/p.gif Image /app.js",
        ]
    );
    assert_eq!(page.left_out.before_document, 1);
}

#[test]
fn a_recording_of_webpagetest_and_sitespeed_has_initiators_as_text() {
    let detail = json!({"type": "script", "stack": {"callFrames": [{"url": "https://www.example.org/b.js"}]}});
    let page = page(&[
        with(entry(0, DOCUMENT, "text/html", 9_000), json!({"_request_type": "Document"})),
        with(
            entry(25, "https://www.example.org/b.js", "", 10),
            json!({"_request_type": "Script", "_initiator": DOCUMENT, "_initiator_type": "parser"}),
        ),
        with(
            entry(90, "https://www.example.org/c", "", 10),
            json!({"_initiator": "", "_initiator_detail": detail.to_string(), "_resourceType": "xhr"}),
        ),
        with(entry(95, "https://www.example.org/d.png", "", 10), json!({"_initiator": 7})),
    ]);
    assert_eq!(
        graph(&page),
        ["/ Document start", "/b.js Script 0.12", "/c Fetch /b.js", "/d.png Image /b.js"]
    );
}

#[test]
fn what_is_redirected_or_checked_waits_for_that() {
    let redirect = json!({"response": {"status": 302, "redirectURL": "/new.png", "content": {}}});
    let page = page(&[
        entry(0, DOCUMENT, "text/html", 9_000),
        with(entry(30, "https://www.example.org/old.png", "", 0), redirect),
        entry(31, "https://www.example.org/new.png", "image/png", 500),
        with(
            entry(40, "https://api.example/x", "", 0),
            json!({"request": {"method": "OPTIONS", "url": "https://api.example/x"}}),
        ),
        entry(41, "https://api.example/x", "application/json", 50),
        entry(42, "https://api.example/x", "application/json", 50),
    ]);
    assert_eq!(
        graph(&page),
        [
            "/ Document start",
            "/old.png Image 0.25",
            "/new.png Image /old.png",
            "/x Other 0.50",
            "/x Fetch /x",
            "/x Fetch 0.55",
        ]
    );
}

#[test]
fn entries_may_lack_almost_everything() {
    let bare =
        |url: &str| json!({"request": {"url": url}, "response": {"status": 200, "bodySize": 10}});
    let page = page(&[
        bare(DOCUMENT),
        bare("https://www.example.org/a.css"),
        bare("http://b.example:81/"),
    ]);
    assert_eq!(graph(&page), ["/ Document start", "/a.css Style 0.33", "/ Other 0.67"]);
    assert_eq!(page.requests[2].host, "b.example:81");
}

#[test]
fn faults_are_one_line_with_the_key_and_what_to_do() {
    let document = || entry(0, DOCUMENT, "text/html", 9_000);
    let no_url = json!({"request": {}, "response": {}});
    let size =
        |bytes: Value| with(document(), json!({"response": {"status": 200, "bodySize": bytes}}));
    for (text, words) in [
        (String::new(), "line 1"),
        ("{\"log\": 7}".to_owned(), "line 1, log"),
        ("GIF89a\u{1}".to_owned(), "a HAR 1.2 file is expected"),
        (har(&[]), "log.entries: there are none: load the page"),
        (har(&[document(), no_url]), "log.entries[1].request: missing field `url`"),
        (har(&[with(document(), json!({"request": {"url": "\u{1b}[31m"}}))]), "is not a URL"),
        (
            har(&[with(document(), json!({"startedDateTime": "noon"}))]),
            "log.entries[0].startedDateTime",
        ),
        (har(&[with(document(), json!({"time": "long"}))]), "log.entries[0].time"),
        (har(&[size(json!(1e300))]), "log.entries[0].response: a body has at most"),
        (har(&[size(json!(0))]), "the document is empty"),
        (har(&[size(json!(-1))]), "no entry has a response"),
        (har(&[entry(0, "data:,x", "", 1)]), "no entry has a response over HTTP"),
        (
            har(&vec![json!({"request": {"url": "x:"}, "response": {}}); 10_001]),
            "more than 10000 entries",
        ),
        ("[".repeat(100_000), "page.har: "),
    ] {
        let error = read(text.as_bytes(), "page.har").unwrap_err().to_string();
        assert!(error.starts_with("page.har: ") && error.contains(words), "{error}");
        assert!(!error.contains(char::is_control) && error.len() < 500, "{error}");
    }
    let directory = read_file(std::path::Path::new("/"), "/").unwrap_err().to_string();
    assert!(directory.contains("directory"), "{directory}");
    assert!(read_file(std::path::Path::new("/nowhere.har"), "x").is_err());
}

/// A generator of JSON: values of all types in all places.
struct Noise(u64);

impl Noise {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.next(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(1e308),
            4 => json!(self.next(100_000)),
            5 => {
                json!(["", "GET", "é", "document", "2026-01-31T12:00:00Z", "memory"][self.next(6)])
            }
            6 => json!(
                [DOCUMENT, "https://b.example/x.js", "data:,", "/x", "http://[::1]:9/"]
                    [self.next(5)]
            ),
            7 => json!("9".repeat(self.next(40))),
            8 => Value::Array((0..self.next(4)).map(|_| self.value(depth - 1)).collect()),
            _ => {
                let keys = ["url", "type", "stack", "callFrames", "parent", "size", "text"];
                let entry = |_| (keys[self.next(keys.len())].to_owned(), self.value(depth - 1));
                Value::Object((0..4).map(entry).collect())
            }
        }
    }

    /// Replaces or removes something anywhere in a value.
    fn damage(&mut self, value: &mut Value) {
        let count = match value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        if count == 0 || self.next(6) == 0 {
            *value = self.value(4);
            return;
        }
        let index = self.next(count);
        match value {
            Value::Array(items) => self.damage(&mut items[index]),
            Value::Object(fields) => {
                let key = fields.keys().nth(index).cloned().unwrap();
                if self.next(5) == 0 {
                    fields.remove(&key);
                } else {
                    self.damage(&mut fields[&key]);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn no_json_panics_and_every_graph_leads_to_the_document() {
    let initiator = json!({"_initiator": {"type": "script", "stack": {"callFrames": [{"url": DOCUMENT}]}},
        "_priority": "Low", "_fromCache": ""});
    let whole: Value = serde_json::from_str(&har(&[
        entry(0, DOCUMENT, "text/html", 9_000),
        with(entry(30, "https://www.example.org/a.js", "text/javascript", 100), initiator.clone()),
        with(entry(90, "https://b.example/b.css", "text/css", 100), initiator),
        entry(10, "https://b.example/c.png", "image/png", 100),
    ]))
    .unwrap();
    let mut noise = Noise(0x1234_5678_9abc_def1);
    let (mut read_well, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let mut damaged = whole.clone();
        for _ in 0..=noise.next(3) {
            noise.damage(&mut damaged);
        }
        let Ok(page) = read(damaged.to_string().as_bytes(), "page.har") else {
            refused += 1;
            continue;
        };
        read_well += 1;
        assert_eq!(page.requests[0].found, Found::Start);
        for (index, request) in page.requests.iter().enumerate().skip(1) {
            match request.found {
                Found::Start => panic!("{damaged}"),
                Found::Document { position } => {
                    assert!((0.0..=1.0).contains(&position), "{damaged}")
                }
                Found::By { index: parent } => assert!(parent < index, "{damaged}"),
            }
        }
    }
    assert!(read_well > 500 && refused > 500, "{read_well} {refused}");
    // Bytes that are cut off or changed anywhere.
    let text = whole.to_string().into_bytes();
    for end in 0..text.len() {
        let _ = read(&text[..end], "page.har");
        let mut changed = text.clone();
        changed[end] = [0, 0xff, b'"', b'{'][end % 4];
        let _ = read(changed.as_slice(), "page.har");
    }
}

#[test]
fn a_connection_that_is_no_text_does_not_make_a_recording_unreadable() {
    let connection = |value: Value| {
        let entry = with(entry(0, DOCUMENT, "text/html", 9_000), json!({"connection": value}));
        page(&[entry]).requests[0].connection.clone()
    };
    assert_eq!(connection(json!("17")).as_deref(), Some("17"));
    assert_eq!(connection(json!(17)).as_deref(), Some("17"));
    for nothing in [json!(null), json!(""), json!("0"), json!([1]), json!(-1)] {
        assert_eq!(connection(nothing.clone()), None, "{nothing}");
    }
}
