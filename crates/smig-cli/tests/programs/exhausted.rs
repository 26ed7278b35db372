//! A server that has run out of file descriptors.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::support::{Place, line_with};

fn get(server: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(b"GET /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn without_descriptors_connections_wait_and_it_is_said() {
    let place = Place::new();
    place.file("small", 5);
    let mut server = place.serve(&["--cleartext", "--workers", "1"]);
    let address = server.address().to_owned();
    assert!(get(&address).starts_with("HTTP/1.1 200"));
    let few = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Some(Pid::from_child(&server.child)), Resource::Nofile, few).unwrap();

    let waiting: Vec<_> = (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The message is logged once a second with a count, not once per failure.
    for _ in 0..2 {
        let line = line_with(&mut server.stderr, "this process may open no more files");
        assert!(line.contains("times"), "{line}");
    }
    drop(waiting);
    assert!(get(&address).starts_with("HTTP/1.1 200"));
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_limit_of_open_files_is_raised_and_reported_at_the_start() {
    let place = Place::new();
    let smig = env!("CARGO_BIN_EXE_smig");
    let raise = "ulimit -Sn 100 && ulimit -Hn 200";
    let line = format!("{raise} && exec {smig} serve . --cleartext --listen 127.0.0.1:0");
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.path("www"))
        .env("XDG_DATA_HOME", place.path("data"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let said = line_with(&mut stderr, "open files: 200 at most");
    assert!(said.contains("max_connections"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}
