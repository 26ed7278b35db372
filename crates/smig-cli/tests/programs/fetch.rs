//! Fetched content equals the served content, and the report is correct.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Sandbox, assert_exit, find_line, sha256, sha256_of, text};

fn parse_json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Checks that the ranges cover the content without gaps.
fn assert_ranges_cover(report: &Value, length: u64) {
    let mut expected_start = 0;
    for range in report["ranges"].as_array().unwrap() {
        assert_eq!(range["start"], expected_start, "{report}");
        expected_start = range["end"].as_u64().unwrap();
    }
    assert_eq!(expected_start, length, "{report}");
    assert_eq!(report["bytes"], length);
}

#[test]
fn several_urls_are_fetched_over_one_session() {
    let sandbox = Sandbox::new();
    let big_hash = sandbox.write_file("big", 5_000_000);
    let small_hash = sandbox.write_file("small", 10);
    sandbox.write_file("empty", 0);
    let server = sandbox.serve(&["--workers", "2"]);
    let output =
        sandbox.get(&server, &["--json", "--output-dir", "new/folder"], &["big", "small", "empty"]);
    assert_exit(&output, 0);
    assert!(output.stderr.is_empty(), "standard error is a pipe: {}", text(&output.stderr));
    let out = sandbox.path("out/new/folder");
    assert_eq!(sha256_of(&out.join("big")), big_hash);
    assert_eq!(sha256_of(&out.join("small")), small_hash);
    assert_eq!(std::fs::metadata(out.join("empty")).unwrap().len(), 0);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3, "nothing else is left");

    let stdout = text(&output.stdout);
    let reports: Vec<_> = stdout.lines().map(parse_json).collect();
    assert_eq!(reports.len(), 3);
    for report in &reports {
        assert_eq!(report["status"], 200);
        assert_eq!(report["protocol"], "h2");
        assert_eq!(report["error"], Value::Null);
        assert!(report["ttfb_ms"].as_f64().unwrap() <= report["total_ms"].as_f64().unwrap());
        assert_ranges_cover(report, report["bytes"].as_u64().unwrap());
        for range in report["ranges"].as_array().unwrap() {
            assert_eq!(range["session"], 1, "{report}");
        }
    }
}

#[test]
fn a_closed_standard_error_does_not_stop_a_fetch() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("small", 10);
    let server = sandbox.serve(&[]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // With -v, the session's task prints too: a panic there would leave the request without a response.
    let mut get =
        sandbox.smig(&["get", "-v", "--max-time", "600", "-o", "-", &server.url("small")]);
    let output =
        get.stdout(Stdio::piped()).stderr(writer).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sha256(&output.stdout), hash);
}

#[test]
fn a_forced_migration_is_reported_with_both_connections() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("big", 40_000_000);
    let server = sandbox.serve(&["--migrate", "at:30MB"]);
    let url = server.url("big");
    let mut child = sandbox
        .smig(&["get", "-v", "-o", "-", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The body is not read: it fills the flow-control window and stops until a spare connection exists.
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    find_line(&mut stderr, "a spare connection joined");
    let mut body = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut body).unwrap();
    assert_eq!(sha256(&body), hash);
    find_line(&mut stderr, "a stream migrated from connection");
    find_line(&mut stderr, "bytes 0 to ");
    find_line(&mut stderr, "to 40000000 over connection");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_single_url_is_written_to_piped_standard_output() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("file", 100_000);
    let server = sandbox.serve(&[]);
    let output = sandbox.get(&server, &["--sha256", &hash], &["file"]);
    assert_exit(&output, 0);
    assert_eq!(sha256(&output.stdout), hash);
    assert_eq!(std::fs::read_dir(sandbox.path("out")).unwrap().count(), 0);
    assert_exit(&sandbox.get(&server, &["-o", "/dev/null"], &["file"]), 0);
}

#[test]
fn head_prints_the_header_section() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 1234);
    let server = sandbox.serve(&[]);
    let output = sandbox.get(&server, &["-I"], &["file"]);
    assert_exit(&output, 0);
    let head = text(&output.stdout);
    assert!(head.starts_with("HTTP/2.0 200 OK\n"), "{head}");
    assert!(head.contains("\ncontent-length: 1234\n"), "{head}");
}

#[test]
fn cleartext_works_over_either_protocol() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("file", 300_000);
    let server = sandbox.serve(&["--cleartext"]);
    assert!(server.origin.starts_with("http://"));
    for (flags, protocol) in [(&["-O"][..], "http/1.1"), (&["-O", "--http2-prior-knowledge"], "h2")]
    {
        let mut args = vec!["--json", "--overwrite"];
        args.extend(flags);
        let got = sandbox.get(&server, &args, &["file"]);
        assert_exit(&got, 0);
        let report = parse_json(&text(&got.stdout));
        assert_eq!(report["protocol"], protocol);
        assert_ranges_cover(&report, 300_000);
        assert_eq!(report["ranges"][0]["by"], "request");
        assert_eq!(sha256_of(&sandbox.path("out/file")), hash);
    }
}

#[test]
fn either_side_can_disable_migration() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    for (server_flags, client_flags) in
        [(&["--smig=false"][..], &["-v"][..]), (&[], &["-v", "--no-migrate"])]
    {
        let server = sandbox.serve(server_flags);
        let got = sandbox.get(&server, client_flags, &["file"]);
        assert_exit(&got, 0);
        let stderr = text(&got.stderr);
        assert!(
            stderr.contains("* connected, 1 open") && !stderr.contains("supports SMig"),
            "{stderr}"
        );
    }
}

#[test]
fn the_access_log_has_a_line_for_each_response() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 100_000);
    let mut server = sandbox.serve(&["--access-log=json"]);
    let mut log = BufReader::new(server.child.stdout.take().unwrap()).lines();
    assert_exit(&sandbox.get(&server, &["-o", "/dev/null"], &["file?q=1"]), 0);
    let line = parse_json(&log.next().unwrap().unwrap());
    assert_eq!(line["path"], "/file?q=1");
    assert_eq!(line["status"], 200);
    assert_eq!(line["bytes_sent"], 100_000);
    assert_eq!(line["outcome"], "complete");
    assert_exit(&sandbox.get(&server, &["-I"], &["nope"]), 22);
    let line = parse_json(&log.next().unwrap().unwrap());
    assert_eq!((&line["method"], &line["status"]), (&"HEAD".into(), &404.into()));
}
