//! The end of a server: what runs may finish.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::support::{Place, Serving, line_with, sha256};

/// A download of which nothing but the first octet has been read.
fn begun(place: &Place, server: &Serving) -> (Child, Vec<u8>) {
    let url = server.url("big");
    let mut child = place.smig(&["get", "-o", "-", &url]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = vec![0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    (child, first)
}

#[test]
fn sigterm_lets_a_running_download_finish() {
    let place = Place::new();
    let hash = place.file("big", 40_000_000);
    let mut server = place.serve(&["--drain-timeout", "1h"]);
    let (mut child, mut body) = begun(&place, &server);
    server.signal(Signal::TERM);
    line_with(&mut server.stderr, "SIGTERM");
    child.stdout.take().unwrap().read_to_end(&mut body).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(sha256(&body), hash);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    place.file("big", 40_000_000);
    let mut server = place.serve(&["--drain-timeout", "1h"]);
    let (mut child, mut body) = begun(&place, &server);
    server.signal(Signal::INT);
    line_with(&mut server.stderr, "SIGINT");
    server.signal(Signal::TERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 15), "{:?}", status.signal());
    child.stdout.take().unwrap().read_to_end(&mut body).unwrap();
    assert!(body.len() < 40_000_000);
    assert_eq!(child.wait().unwrap().code(), Some(18));
}

#[test]
fn nothing_running_ends_at_once() {
    let place = Place::new();
    let mut server = place.serve(&[]);
    server.signal(Signal::INT);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
