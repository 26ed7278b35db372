//! Shutdown of a server: running transfers may complete.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::Signal;

use crate::support::{Sandbox, ServerProcess, find_line, sha256};

/// Starts a download and reads only its first byte.
fn start_download(sandbox: &Sandbox, server: &ServerProcess) -> (Child, Vec<u8>) {
    let url = server.url("big");
    let mut child = sandbox.smig(&["get", "-o", "-", &url]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = vec![0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    (child, first)
}

#[test]
fn sigterm_lets_a_running_download_finish() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("big", 40_000_000);
    let mut server = sandbox.serve(&["--drain-timeout", "1h"]);
    let (mut child, mut body) = start_download(&sandbox, &server);
    server.signal(Signal::TERM);
    find_line(&mut server.stderr, "SIGTERM");
    child.stdout.take().unwrap().read_to_end(&mut body).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(sha256(&body), hash);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_signal_stops_the_server_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write_file("big", 40_000_000);
    let mut server = sandbox.serve(&["--drain-timeout", "1h"]);
    let (mut child, mut body) = start_download(&sandbox, &server);
    server.signal(Signal::INT);
    find_line(&mut server.stderr, "SIGINT");
    server.signal(Signal::TERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 15), "{:?}", status.signal());
    child.stdout.take().unwrap().read_to_end(&mut body).unwrap();
    assert!(body.len() < 40_000_000);
    assert_eq!(child.wait().unwrap().code(), Some(18));
}

#[test]
fn an_idle_server_stops_at_once() {
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&[]);
    server.signal(Signal::INT);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_blocked_name_lookup_does_not_delay_shutdown() {
    let sandbox = Sandbox::new();
    // The resolver reads this file for names without a dot; reading it never returns.
    let pipe = sandbox.path("aliases");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let gateway_args = [
        "gateway",
        "--to",
        "http://nowhere:80",
        "--listen",
        "127.0.0.1:0",
        "--cleartext",
        "--drain-timeout",
        "0",
    ];
    let mut server = sandbox.start_with(&gateway_args, |command| {
        command.env("HOSTALIASES", &pipe);
    });

    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let (sender, receiver) = channel();
    let opened_tx = sender.clone();
    thread::spawn(move || opened_tx.send(std::fs::OpenOptions::new().write(true).open(pipe).ok()));
    thread::spawn(move || {
        let _ = stream.read(&mut [0; 1]);
        sender.send(None)
    });
    // The open succeeds once the lookup has begun. Without it, a response arrives.
    let _pipe = receiver.recv().unwrap().expect("glibc's resolver reads HOSTALIASES");
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
