//! Shutdown of a server: running transfers may complete.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::Signal;

use crate::support::{Place, Serving, line_with, sha256};

/// Starts a download and reads only its first byte.
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

#[test]
fn a_name_that_is_looked_up_for_ever_does_not_hold_a_gateway_that_ends() {
    let place = Place::new();
    // The resolver reads this file for names without a dot; reading it never returns.
    let pipe = place.path("aliases");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let gateway = [
        "gateway",
        "--to",
        "http://nowhere:80",
        "--listen",
        "127.0.0.1:0",
        "--cleartext",
        "--drain-timeout",
        "0",
    ];
    let mut server = place.start_with(&gateway, |command| {
        command.env("HOSTALIASES", &pipe);
    });

    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let (tell, told) = channel();
    let opened = tell.clone();
    thread::spawn(move || opened.send(std::fs::OpenOptions::new().write(true).open(pipe).ok()));
    thread::spawn(move || {
        let _ = stream.read(&mut [0; 1]);
        tell.send(None)
    });
    // The open succeeds once the lookup has begun. Without it, a response arrives.
    let _pipe = told.recv().unwrap().expect("glibc's resolver reads HOSTALIASES");
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
