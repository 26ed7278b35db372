//! Tests of replays: from a recording to answers.

use std::io::Read as _;
use std::path::Path;

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
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("replay");
    prepare(&har, "page.har", &out)?;
    Ok(Replay::read(&[out]).unwrap())
}

fn get<'a>(host: &'a str, target: &'a str) -> ReplayRequest<'a> {
    ReplayRequest { method: "GET", host, target, origin: None, requested_headers: None }
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
    let post = ReplayRequest { method: "POST", ..get("a.example", "/") };
    assert_eq!(replay.respond(&post).status, 404);
    let head = replay.respond(&ReplayRequest { method: "HEAD", ..get("a.example", "/") });
    assert_eq!((head.status, head.body.len()), (200, 0));
    let check = ReplayRequest {
        method: "OPTIONS",
        origin: Some("https://a.example"),
        requested_headers: Some("x-a, x-b"),
        ..get("a.example", "/api")
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
    prepare(&har, "bom.har", &out).unwrap();
    let replay = Replay::read(&[out]).unwrap();
    let request = ReplayRequest { method: "HEAD", ..get("a.example", "/only-head") };
    assert_eq!(replay.respond(&request).status, 204);
    assert_eq!(
        replay.respond(&ReplayRequest { method: "HEAD", ..get("a.example", "/") }).status,
        200
    );
}
