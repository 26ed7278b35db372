//! Truncated bodies, retries, and uploads.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::flaky::{CONTENT_BYTES, FlakyServer, TRUNCATION_OFFSET};
use crate::support::{KillGuard, Sandbox, assert_exit, content, find_line, sha256, text};

/// Over HTTP/2 a truncated body is a stream reset, which does not discard data received before.
const HTTP2_FLAG: &str = "--http2-prior-knowledge";

#[test]
fn a_truncated_body_is_an_error_and_can_be_resumed() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let url = server.url("cut");
    let hash = sha256(&content(CONTENT_BYTES));
    let got = sandbox.run(&["get", HTTP2_FLAG, "-o", "file", &url]);
    assert_exit(&got, 18);
    assert!(text(&got.stderr).contains("--continue resumes it"), "{}", text(&got.stderr));
    let part = std::fs::read(sandbox.path("out/file.part")).unwrap();
    assert!(part.len() <= TRUNCATION_OFFSET && content(CONTENT_BYTES).starts_with(&part));
    assert!(!sandbox.path("out/file").exists());

    // The test's server resumes at one offset only.
    std::fs::write(sandbox.path("out/file.part"), content(TRUNCATION_OFFSET)).unwrap();
    let got =
        sandbox.run(&["get", HTTP2_FLAG, "--json", "-C", "--sha256", &hash, "-o", "file", &url]);
    assert_exit(&got, 0);
    assert_eq!(sha256(&std::fs::read(sandbox.path("out/file")).unwrap()), hash);
    assert_eq!(std::fs::read_dir(sandbox.path("out")).unwrap().count(), 1);
    let report: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(report["resumed_from"], TRUNCATION_OFFSET);
    assert_eq!(report["ranges"][0]["start"], TRUNCATION_OFFSET);
    assert_eq!(report["bytes"], CONTENT_BYTES);
    let requests = server.requests();
    assert_eq!(requests[1].range.as_deref(), Some("bytes=300000-"));
    assert_eq!(requests[1].if_range.as_deref(), Some("\"one\""));
}

#[test]
fn a_part_without_its_metadata_is_not_resumed() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("file", 100_000);
    let server = sandbox.serve(&[]);
    std::fs::write(sandbox.path("out/file.part"), "something else").unwrap();
    assert_exit(&sandbox.get(&server, &["-C", "-O"], &["file"]), 0);
    assert_eq!(sha256(&std::fs::read(sandbox.path("out/file")).unwrap()), hash);
    // The file exists now, and -C accepts it as complete.
    assert_exit(&sandbox.get(&server, &["-C", "-O"], &["file"]), 0);
}

#[test]
fn a_changed_file_is_fetched_from_its_beginning() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let url = server.url("changed");
    assert_exit(&sandbox.run(&["get", HTTP2_FLAG, "-o", "file", &url]), 18);
    let got = sandbox.run(&["get", HTTP2_FLAG, "-C", "-o", "file", &url]);
    assert_exit(&got, 0);
    assert!(text(&got.stderr).contains("starting again"));
    assert_eq!(std::fs::read(sandbox.path("out/file")).unwrap(), b"another file");
}

#[test]
fn a_mismatched_range_is_rejected() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let url = server.url("shifted");
    assert_exit(&sandbox.run(&["get", HTTP2_FLAG, "-o", "file", &url]), 18);
    std::fs::write(sandbox.path("out/file.part"), content(TRUNCATION_OFFSET)).unwrap();
    let got = sandbox.run(&["get", HTTP2_FLAG, "-C", "-o", "file", &url]);
    assert_exit(&got, 33);
    assert!(text(&got.stderr).contains("begins at 300001, not at 300000"));
    assert_eq!(std::fs::read(sandbox.path("out/file.part")).unwrap(), content(TRUNCATION_OFFSET));
}

#[test]
fn transient_errors_are_retried() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    assert_exit(&sandbox.run(&["get", "--retry", "1", "-o", "file", &server.url("busy")]), 0);
    assert_eq!(std::fs::read(sandbox.path("out/file")).unwrap(), b"thanks");
    assert_eq!(server.requests().len(), 2);
    // A POST is not retried: the server may have processed it.
    let server = FlakyServer::start();
    let got = sandbox.run(&["get", "--retry", "1", "-d", "x", "-o", "file", &server.url("busy")]);
    assert_exit(&got, 22);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_server_is_not_retried_before_its_retry_after() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let url = server.url("busy-for-an-hour");
    let mut get = sandbox.smig(&["get", "--retry", "1", "-o", "file", &url]);
    let mut get = KillGuard(get.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(get.0.stderr.take().unwrap()).lines();
    let line = find_line(&mut lines, "retrying");
    assert!(line.ends_with("retrying in 3600 s"), "{line}");
}

#[test]
fn max_time_ends_a_stalled_transfer() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let got = sandbox.run(&["get", "--max-time", "0.5", "-o", "file", &server.url("silent")]);
    assert_exit(&got, 28);
    assert!(text(&got.stderr).contains("--max-time"));
}

#[test]
fn a_timeout_before_the_first_byte_leaves_no_partial_file() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let got = sandbox.run(&["get", "--max-time", "0.5", "-o", "file", &server.url("unanswered")]);
    assert_exit(&got, 28);
    let message = text(&got.stderr);
    assert!(message.contains("--max-time") && !message.contains("partial file"), "{message}");
    assert_eq!(std::fs::read_dir(sandbox.path("out")).unwrap().count(), 0);
}

#[test]
fn upload_bodies_and_content_types_arrive() {
    let (sandbox, server) = (Sandbox::new(), FlakyServer::start());
    let url = server.url("post");
    std::fs::write(sandbox.path("out/photo"), content(500_000)).unwrap();
    for http in [&[][..], &[HTTP2_FLAG]] {
        let get = |args: &[&str]| {
            let mut all_args = vec!["get", &*url];
            all_args.extend(http);
            all_args.extend(args);
            sandbox.run(&all_args)
        };
        let got = get(&["-X", "PUT", "-d", "@photo"]);
        assert_exit(&got, 0);
        assert_eq!(got.stdout, b"thanks");
        assert_exit(&get(&["-d", "a=b", "-H", "content-type: text/plain"]), 0);
        assert_exit(&get(&["-d", "@-"]), 0);
    }
    let requests = server.requests();
    for triple in requests.chunks(3) {
        let [put, post, empty] = triple else { panic!("{requests:?}") };
        assert_eq!((put.method.as_str(), &put.body), ("PUT", &content(500_000)));
        assert_eq!(put.content_type.as_deref(), Some("application/octet-stream"));
        assert_eq!((post.method.as_str(), &post.body[..]), ("POST", &b"a=b"[..]));
        assert_eq!(post.content_type.as_deref(), Some("text/plain"));
        assert_eq!(empty.body, b"", "standard input is empty here");
    }
    assert_eq!(requests.len(), 6);
}
