//! Tests of replays: from a recording to answers.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn entry(url: &str, fields: &Value, content: &Value) -> Value {
    json!({
        "startedDateTime": "2026-01-31T12:00:00.000Z", "time": 10.0,
        "request": {"method": "GET", "url": url},
        "response": {"status": 200, "headers": fields, "content": content, "bodySize": 600, "redirectURL": ""},
        "timings": {"wait": 20.0, "receive": 1.0},
        "serverIPAddress": "192.0.2.1",
    })
}

fn document() -> Value {
    let fields = json!([
        {"name": "Content-Type", "value": "text/html; charset=iso-8859-1"},
        {"name": "Content-Encoding", "value": "br"},
        {"name": "X-Accel-Redirect", "value": "/etc/passwd"},
        {"name": "Set-Cookie", "value": "a=b"},
        {"name": "Content-Length", "value": "600"},
    ]);
    entry("https://a.example/", &fields, &json!({"mimeType": "text/html", "text": "<p>caf\u{e9}"}))
}

/// Writes a recording of these entries, and prepares it.
fn prepared(dir: &Path, entries: &[Value]) -> Result<Replay, crate::har::HarError> {
    let har = dir.join("page.har");
    std::fs::write(&har, json!({"log": {"entries": entries}}).to_string()).unwrap();
    let source = ReplaySource::read(&har, "page.har")?;
    if let Some(fault) = source.fault() {
        return Err(fault.clone());
    }
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("replay");
    source.prepare(&out).unwrap();
    Ok(Replay::read(&[out]).unwrap())
}

fn request<'a>(method: &'a str, host: &'a str, target: &'a str) -> ReplayRequest<'a> {
    let key = RequestKey { method, host, target, range: None };
    ReplayRequest { key, origin: None, requested_headers: None, is_navigation: false }
}

fn get<'a>(host: &'a str, target: &'a str) -> ReplayRequest<'a> {
    request("GET", host, target)
}

fn post(url: &str, status: u16, text: &str) -> Value {
    let mut entry = entry(url, &json!([]), &json!({"mimeType": "text/plain", "text": text}));
    entry["request"]["method"] = json!("POST");
    entry["response"]["status"] = json!(status);
    entry
}

fn field<'a>(response: &'a ReplayResponse, name: &str) -> Option<&'a str> {
    response.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_document_comes_back_with_its_size_and_no_field_that_is_not_on_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let replay = prepared(dir.path(), &[document()]).unwrap();
    let response = replay.respond(&get("A.example:443", "/"));
    assert_eq!(response.status, 200);
    // Empty blocks have five bytes.
    assert!((596..=600).contains(&response.body.len()), "{}", response.body.len());
    assert_eq!(field(&response, "content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(field(&response, "content-encoding"), Some("gzip"));
    assert_eq!(field(&response, "content-security-policy"), Some("upgrade-insecure-requests"));
    for name in ["x-accel-redirect", "set-cookie", "content-length"] {
        assert_eq!(field(&response, name), None, "{name}");
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&response.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, "<p>caf\u{e9}");
    assert!(replay.has_host("a.EXAMPLE") && !replay.has_host("b.example"));
}

#[test]
fn what_was_not_recorded_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let replay = prepared(dir.path(), &[document()]).unwrap();
    assert_eq!(replay.respond(&get("a.example", "/other")).status, 404);
    assert_eq!(replay.respond(&get("b.example", "/")).status, 404);
    assert_eq!(replay.respond(&request("POST", "a.example", "/")).status, 404);
    let head = replay.respond(&request("HEAD", "a.example", "/"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    let check = ReplayRequest {
        origin: Some("https://a.example"),
        requested_headers: Some("x-a, x-b"),
        ..request("OPTIONS", "a.example", "/api")
    };
    let check = replay.respond(&check);
    assert_eq!(check.status, 204);
    assert_eq!(field(&check, "access-control-allow-headers"), Some("x-a, x-b"));
    assert_eq!(field(&check, "access-control-allow-origin"), Some("https://a.example"));
}

#[test]
fn noise_in_a_query_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let file = |query: &str, text: &str| {
        let url = format!("https://a.example/api?{query}");
        entry(&url, &json!([]), &json!({"mimeType": "text/plain", "text": text}))
    };
    let entries = [document(), file("id=1&t=77", "one"), file("id=2&t=77", "two"), file("x", "x")];
    let replay = prepared(dir.path(), &entries).unwrap();
    let body = |target: &str| replay.respond(&get("a.example", target)).body;
    assert_eq!(body("/api?id=1&t=77"), "one");
    assert_eq!(body("/api?t=99&id=1"), "one");
    assert_eq!(body("/api?id=2&t=1234"), "two");
    assert_eq!(body("/api?x"), "x");
}

#[test]
fn redirects_lead_over_tls_and_never_to_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let redirect = |url: &str, to: &str| {
        let mut entry = entry(url, &json!([]), &json!({"size": 0}));
        entry["response"]["status"] = json!(302);
        entry["response"]["redirectURL"] = json!(to);
        entry["response"]["bodySize"] = json!(0);
        entry
    };
    let picture = |url: &str| {
        entry(
            url,
            &json!([]),
            &json!({"mimeType": "image/gif", "text": "R0lG", "encoding": "base64"}),
        )
    };
    let entries = [
        document(),
        redirect("https://a.example/old", "http://b.example/new"),
        picture("http://b.example/new"),
        redirect("http://a.example/secure", "https://a.example/secure"),
        picture("https://a.example/secure"),
        redirect("https://a.example/cookie", "https://a.example/set"),
        redirect("https://a.example/set", "/cookie"),
        picture("https://a.example/cookie"),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let old = replay.respond(&get("a.example", "/old"));
    assert_eq!((old.status, field(&old, "location")), (302, Some("https://b.example/new")));
    assert_eq!(replay.respond(&get("b.example", "/new")).body, "GIF");
    assert_eq!(replay.respond(&get("a.example", "/secure")).status, 200);
    // Without the cookie it would go round for ever.
    assert_eq!(replay.respond(&get("a.example", "/cookie")).status, 200);
}

#[test]
fn bodies_that_are_missing_have_their_size_and_a_document_must_not_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let script = entry(
        "https://a.example/a.js",
        &json!([]),
        &json!({"mimeType": "text/javascript", "size": 600}),
    );
    let replay = prepared(dir.path(), &[document(), script]).unwrap();
    let body = replay.respond(&get("a.example", "/a.js")).body;
    assert!(body.len() == 600 && body.starts_with(b"/* ") && body.ends_with(b" */"));
    let empty =
        entry("https://a.example/", &json!([]), &json!({"mimeType": "text/html", "size": 600}));
    let error = prepared(dir.path(), &[empty]).unwrap_err().to_string();
    assert!(
        error.contains("page.har: log.entries[0].response.content: the document has no body"),
        "{error}"
    );
}

#[test]
fn bodies_are_read_from_below_the_recording_only() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("recording");
    std::fs::create_dir_all(dir.join("bodies")).unwrap();
    std::fs::write(dir.join("bodies/0.html"), "<p>hello").unwrap();
    std::fs::write(root.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(root.path().join("secret"), dir.join("bodies/link")).unwrap();
    let with = |file: &str| {
        let fields = json!([{"name": "content-type", "value": "text/html"}]);
        let content = json!({"mimeType": "text/html", "_file": file});
        prepared(&dir, &[entry("https://a.example/", &fields, &content)])
    };
    let replay = with("bodies/0.html").unwrap();
    assert_eq!(replay.respond(&get("a.example", "/")).body, "<p>hello");
    let absolute = root.path().join("secret").display().to_string();
    for file in ["../secret", "bodies/../../secret", "bodies/link", "bodies", "none", &absolute] {
        let error = with(file).unwrap_err().to_string();
        assert!(error.contains("log.entries[0].response.content"), "{file}: {error}");
    }
}

#[test]
fn servers_think_as_long_as_they_did_beyond_the_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let waited = |name: &str, wait_ms: f64, server: &str| {
        let mut entry =
            entry(&format!("https://a.example/{name}"), &json!([]), &json!({"text": "a"}));
        entry["timings"]["wait"] = json!(wait_ms);
        entry["serverIPAddress"] = json!(server);
        entry
    };
    let entries = [
        document(),
        waited("slow", 170.5, "192.0.2.1"),
        waited("alone", 90.0, "192.0.2.2"),
        waited("endless", 1e9, "192.0.2.1"),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let think_ms = |name: &str| replay.respond(&get("a.example", name)).think.as_secs_f64() * 1e3;
    assert_eq!((think_ms("/slow"), think_ms("/alone")), (150.5, 0.0));
    assert_eq!((think_ms("/"), think_ms("/endless")), (0.0, 10_000.0));
}

#[test]
fn padding_is_between_the_parts_of_a_body() {
    let text: String = (0..20_000).map(|number| format!("{number:x} ")).collect();
    let size = 2 * text.len() as u64;
    let body = encode::gzip(text.as_bytes(), size).unwrap();
    assert!((size - 4..=size).contains(&(body.len() as u64)), "{} of {size}", body.len());
    // Half of the body has half of the content.
    let mut half = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&body[..body.len() / 2]);
    decoder.read_to_end(&mut half).unwrap_err();
    let share = half.len() as f64 / text.len() as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
    let mut whole = String::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut whole).unwrap();
    assert_eq!(whole, text);
    // What needs more than the recorded size has no padding.
    assert!(encode::gzip(text.as_bytes(), 10).unwrap().len() < text.len());
}

#[test]
fn texts_are_utf_8_whatever_the_page_says_and_other_bodies_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, media_type: &str, content: &Value| {
        let fields = json!([{"name": "Content-Type", "value": media_type}]);
        entry(&format!("https://a.example/{name}"), &fields, content)
    };
    let legacy = json!({"text": "Y2Fm6Q==", "encoding": "base64"});
    let entries = [
        of("", "text/html", &json!({"text": "<meta charset=windows-1252>caf\u{e9}"})),
        of("legacy", "text/plain; charset=windows-1252", &legacy),
        of("picture", "image/png", &json!({"text": "AAAA", "encoding": "base64"})),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let kind = |path: &str| {
        let response = replay.respond(&get("a.example", path));
        field(&response, "content-type").map(str::to_owned)
    };
    assert_eq!(kind("/").as_deref(), Some("text/html; charset=utf-8"));
    assert_eq!(kind("/legacy").as_deref(), Some("text/plain; charset=windows-1252"));
    assert_eq!(kind("/picture").as_deref(), Some("image/png"));
}

#[test]
fn a_byte_order_mark_and_a_recorded_head_are_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let mut head = document();
    head["request"]["method"] = json!("HEAD");
    head["request"]["url"] = json!("https://a.example/only-head");
    head["response"]["status"] = json!(204);
    let har = dir.path().join("bom.har");
    let text = json!({"log": {"entries": [document(), head]}}).to_string();
    std::fs::write(&har, format!("\u{feff}{text}")).unwrap();
    let out = dir.path().join("replay");
    ReplaySource::read(&har, "bom.har").unwrap().prepare(&out).unwrap();
    let replay = Replay::read(&[out]).unwrap();
    assert_eq!(replay.respond(&request("HEAD", "a.example", "/only-head")).status, 204);
    assert_eq!(replay.respond(&request("HEAD", "a.example", "/")).status, 200);
}

#[test]
fn equal_requests_get_the_recorded_answers_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let api = "https://a.example/api";
    let other = "https://a.example/other";
    let entries = [
        document(),
        post(api, 202, "one"),
        post(other, 200, "x"),
        post(api, 200, "two"),
        post(&format!("{other}?t=1"), 200, "first"),
        post(&format!("{other}?t=2"), 200, "second"),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let answer = |target: &str| {
        let answer = replay.respond(&request("POST", "a.example", target));
        (answer.status, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    let expected = [(202, "one"), (200, "two"), (200, "two")];
    for (status, body) in expected {
        assert_eq!(answer("/api"), (status, body.to_owned()));
    }
    assert_eq!(answer("/other").1, "x");
    // The time in a query is another one in each load.
    assert_eq!([answer("/other?t=7").1, answer("/other?t=8").1], ["first", "second"]);
    // Another load begins.
    let navigation = ReplayRequest { is_navigation: true, ..get("a.example", "/") };
    assert_eq!(replay.respond(&navigation).status, 200);
    assert_eq!(answer("/api"), (202, "one".to_owned()));
    // A frame is no load.
    let _ = replay.respond(&get("a.example", "/"));
    assert_eq!(answer("/api"), (200, "two".to_owned()));
}

#[test]
fn a_part_answers_its_range_and_counts_as_the_whole_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let part = |url: &str, range: &str, content_range: &str, text: &str| {
        let fields = json!([{"name": "Content-Range", "value": content_range}]);
        let mut entry = entry(url, &fields, &json!({"mimeType": "video/mp4", "text": text}));
        entry["response"]["status"] = json!(206);
        entry["request"]["headers"] = json!([{"name": "Range", "value": range}]);
        entry
    };
    let video = "https://a.example/video";
    let entries = [
        document(),
        part(video, "bytes=0-3", "bytes 0-3/7", "abcd"),
        part(video, "bytes=4-", "bytes 4-6/7", "efg"),
        // Not all of it was recorded.
        part("https://a.example/cut", "bytes=0-", "bytes 0-99/100", "abcd"),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let answer = |target: &str, range: Option<&str>| {
        let key = RequestKey { range, ..get("a.example", target).key };
        let answer = replay.respond(&ReplayRequest { key, ..get("a.example", target) });
        let range = field(&answer, "content-range").map(str::to_owned);
        (answer.status, range, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    for _ in 0..2 {
        let second = answer("/video", Some("bytes=4-"));
        assert_eq!(second, (206, Some("bytes 4-6/7".into()), "efg".into()));
        let first = answer("/video", Some("bytes=0-3"));
        assert_eq!(first, (206, Some("bytes 0-3/7".into()), "abcd".into()));
    }
    for range in [Some("bytes=2-"), None] {
        let (status, range, _) = answer("/video", range);
        assert_eq!((status, range), (200, None));
    }
    assert_eq!(answer("/cut", Some("bytes=0-")), (200, None, "abcd".into()));
}

#[test]
fn a_host_that_a_browser_cannot_be_sent_to_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let other = |url: &str| entry(url, &json!([]), &json!({"mimeType": "text/plain", "text": "x"}));
    let entries = [
        document(),
        other("https://[::1]/x"),
        other("https://a,b.example/"),
        other("https://b.example/"),
    ];
    let replay = prepared(dir.path(), &entries).unwrap();
    let answers = |host: &str| replay.has_host(host);
    assert!(answers("a.example") && answers("b.example"));
    assert!(!answers("[::1]") && !answers("a,b.example") && !answers("10.99.0.1:8443"));
}

#[test]
fn faults_of_bodies_are_known_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let har = dir.path().join("page.har");
    let fault = |content: &Value| {
        let picture = entry("https://a.example/p.png", &json!([]), content);
        let text = json!({"log": {"entries": [document(), picture]}}).to_string();
        std::fs::write(&har, text).unwrap();
        let source = ReplaySource::read(&har, "page.har").unwrap();
        let fault = source.fault().map(ToString::to_string);
        // Once: the bodies of a campaign's page are not read for each condition.
        assert_eq!(source.fault().map(ToString::to_string), fault);
        fault.unwrap_or_default()
    };
    assert_eq!(fault(&json!({"text": "R0lG", "encoding": "base64"})), "");
    let what = fault(&json!({"text": "?", "encoding": "base64"}));
    assert!(
        what.contains("page.har: log.entries[1].response.content: its text is no base64"),
        "{what}"
    );
    let what = fault(&json!({"_file": "bodies/1.png"}));
    assert!(what.contains("log.entries[1]") && what.contains("record the page anew"), "{what}");
    // What is missing is made as long as the recording says.
    let mut entries = vec![document()];
    entries.extend((0..2).map(|number| {
        let url = format!("https://a.example/{number}.png");
        let mut entry = entry(&url, &json!([]), &json!({"mimeType": "image/png"}));
        entry["response"]["bodySize"] = json!(300 << 20);
        entry
    }));
    std::fs::write(&har, json!({"log": {"entries": entries}}).to_string()).unwrap();
    let source = ReplaySource::read(&har, "page.har").unwrap();
    let what = source.fault().unwrap().to_string();
    assert!(what.contains("log.entries: all bodies together have more than 512 MB"), "{what}");
    assert!(source.prepare(&dir.path().join("out")).is_err() && !dir.path().join("out").exists());
}

#[test]
fn a_body_that_is_a_pipe_is_a_fault_and_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let har = dir.path().join("page.har");
    let entries = [entry("https://a.example/", &json!([]), &json!({"_file": "pipe"}))];
    std::fs::write(&har, json!({"log": {"entries": entries}}).to_string()).unwrap();
    let (read, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || read.send(ReplaySource::read(&har, "page.har")).is_ok());
    let source = result.recv_timeout(Duration::from_secs(20)).expect("it is read at once");
    let fault = source.unwrap().fault().map(ToString::to_string).unwrap_or_default();
    assert!(fault.contains("\"pipe\" is not a file below the recording's directory"), "{fault}");
}
