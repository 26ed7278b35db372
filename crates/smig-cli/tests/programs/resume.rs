//! Truncated bodies, retries, and uploads.

use crate::flaky::{CUT, Flaky, LENGTH};
use crate::support::{Place, assert_exit, content, sha256, text};

/// Over HTTP/2 a truncated body is a stream reset, which does not discard data received before.
const H2: &str = "--http2-prior-knowledge";

#[test]
fn a_body_that_ends_early_is_an_error_and_can_be_continued() {
    let (place, server) = (Place::new(), Flaky::start());
    let url = server.url("cut");
    let hash = sha256(&content(LENGTH));
    let got = place.run(&["get", H2, "-o", "file", &url]);
    assert_exit(&got, 18);
    assert!(text(&got.stderr).contains("--continue resumes it"), "{}", text(&got.stderr));
    let part = std::fs::read(place.path("out/file.part")).unwrap();
    assert!(part.len() <= CUT && content(LENGTH).starts_with(&part));
    assert!(!place.path("out/file").exists());

    // The test's server resumes at one offset only.
    std::fs::write(place.path("out/file.part"), content(CUT)).unwrap();
    let got = place.run(&["get", H2, "--json", "-C", "--sha256", &hash, "-o", "file", &url]);
    assert_exit(&got, 0);
    assert_eq!(sha256(&std::fs::read(place.path("out/file")).unwrap()), hash);
    assert_eq!(std::fs::read_dir(place.path("out")).unwrap().count(), 1);
    let report: serde_json::Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!(report["resumed_from"], CUT);
    assert_eq!(report["ranges"][0]["start"], CUT);
    assert_eq!(report["bytes"], LENGTH);
    let seen = server.seen();
    assert_eq!(seen[1].range.as_deref(), Some("bytes=300000-"));
    assert_eq!(seen[1].if_range.as_deref(), Some("\"one\""));
}

#[test]
fn a_part_without_its_note_is_not_trusted() {
    let place = Place::new();
    let hash = place.file("file", 100_000);
    let server = place.serve(&[]);
    std::fs::write(place.path("out/file.part"), "something else").unwrap();
    assert_exit(&place.get(&server, &["-C", "-O"], &["file"]), 0);
    assert_eq!(sha256(&std::fs::read(place.path("out/file")).unwrap()), hash);
    // The file exists now, and -C accepts it as complete.
    assert_exit(&place.get(&server, &["-C", "-O"], &["file"]), 0);
}

#[test]
fn a_changed_file_is_fetched_from_its_beginning() {
    let (place, server) = (Place::new(), Flaky::start());
    let url = server.url("changed");
    assert_exit(&place.run(&["get", H2, "-o", "file", &url]), 18);
    let got = place.run(&["get", H2, "-C", "-o", "file", &url]);
    assert_exit(&got, 0);
    assert!(text(&got.stderr).contains("starting again"));
    assert_eq!(std::fs::read(place.path("out/file")).unwrap(), b"another file");
}

#[test]
fn a_range_that_does_not_fit_is_refused() {
    let (place, server) = (Place::new(), Flaky::start());
    let url = server.url("shifted");
    assert_exit(&place.run(&["get", H2, "-o", "file", &url]), 18);
    std::fs::write(place.path("out/file.part"), content(CUT)).unwrap();
    let got = place.run(&["get", H2, "-C", "-o", "file", &url]);
    assert_exit(&got, 33);
    assert!(text(&got.stderr).contains("begins at 300001, not at 300000"));
    assert_eq!(std::fs::read(place.path("out/file.part")).unwrap(), content(CUT));
}

#[test]
fn further_tries() {
    let (place, server) = (Place::new(), Flaky::start());
    assert_exit(&place.run(&["get", "--retry", "1", "-o", "file", &server.url("busy")]), 0);
    assert_eq!(std::fs::read(place.path("out/file")).unwrap(), b"thanks");
    assert_eq!(server.seen().len(), 2);
    // A POST is not retried: the server may have processed it.
    let server = Flaky::start();
    let got = place.run(&["get", "--retry", "1", "-d", "x", "-o", "file", &server.url("busy")]);
    assert_exit(&got, 22);
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn out_of_time() {
    let (place, server) = (Place::new(), Flaky::start());
    let got = place.run(&["get", "--max-time", "0.5", "-o", "file", &server.url("silent")]);
    assert_exit(&got, 28);
    assert!(text(&got.stderr).contains("--max-time"));
}

#[test]
fn uploads() {
    let (place, server) = (Place::new(), Flaky::start());
    let url = server.url("post");
    std::fs::write(place.path("out/photo"), content(500_000)).unwrap();
    for http in [&[][..], &[H2]] {
        let get = |args: &[&str]| {
            let mut all = vec!["get", &*url];
            all.extend(http);
            all.extend(args);
            place.run(&all)
        };
        let got = get(&["-X", "PUT", "-d", "@photo"]);
        assert_exit(&got, 0);
        assert_eq!(got.stdout, b"thanks");
        assert_exit(&get(&["-d", "a=b", "-H", "content-type: text/plain"]), 0);
        assert_exit(&get(&["-d", "@-"]), 0);
    }
    let seen = server.seen();
    for three in seen.chunks(3) {
        let [put, post, empty] = three else { panic!("{seen:?}") };
        assert_eq!((put.method.as_str(), &put.body), ("PUT", &content(500_000)));
        assert_eq!(put.content_type.as_deref(), Some("application/octet-stream"));
        assert_eq!((post.method.as_str(), &post.body[..]), ("POST", &b"a=b"[..]));
        assert_eq!(post.content_type.as_deref(), Some("text/plain"));
        assert_eq!(empty.body, b"", "standard input is empty here");
    }
    assert_eq!(seen.len(), 6);
}
