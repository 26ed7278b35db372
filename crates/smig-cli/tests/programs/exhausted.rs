//! A server that has run out of file descriptors.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::support::{KillGuard, Sandbox, find_line};

fn fetch_small(server: &str) -> String {
    fetch(server, "/small")
}

fn fetch(server: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn without_descriptors_connections_wait_and_a_message_is_logged() {
    let sandbox = Sandbox::new();
    sandbox.write_file("small", 5);
    let mut server = sandbox.serve(&["--cleartext", "--workers", "1"]);
    let address = server.address().to_owned();
    assert!(fetch_small(&address).starts_with("HTTP/1.1 200"));
    let limit = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Some(Pid::from_child(&server.child)), Resource::Nofile, limit).unwrap();

    let waiting_connections: Vec<_> =
        (0..100).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The message is logged once a second with a count, not once per failure.
    for _ in 0..2 {
        let line = find_line(&mut server.stderr, "this process may open no more files");
        assert!(line.contains("times"), "{line}");
    }
    drop(waiting_connections);
    assert!(fetch_small(&address).starts_with("HTTP/1.1 200"));
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

/// Sends a request and returns the response, which has a content-length.
fn request_on(tcp: &mut TcpStream) -> String {
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut response = String::new();
    let mut byte = [0];
    while !response.ends_with("\r\n\r\n") {
        tcp.read_exact(&mut byte).expect("a response in time");
        response.push(char::from(byte[0]));
    }
    let fields = response.to_ascii_lowercase();
    let length = fields.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next());
    for _ in 0..length.expect("a length").parse().unwrap() {
        tcp.read_exact(&mut byte).expect("a body in time");
    }
    response
}

#[test]
fn a_server_is_not_ejected_because_descriptors_are_missing() {
    let sandbox = Sandbox::new();
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", origin.local_addr().unwrap());
    std::thread::spawn(move || {
        for tcp in origin.incoming() {
            let mut tcp = tcp.unwrap();
            let mut request = [0; 4096];
            // One response per connection: each request needs a new descriptor.
            let response = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            if tcp.read(&mut request).is_ok_and(|length| length > 0) {
                tcp.write_all(response.as_bytes()).unwrap();
            }
        }
    });
    let file = sandbox.path_text("gateway.toml");
    let config = format!(
        "server = {{ workers = 1 }}\n\
         [[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
         [upstreams.one]\nservers = ['{url}']\n\
         [[route]]\nupstream = 'one'\n\
         [admin]\nlisten = '127.0.0.1:0'\n"
    );
    std::fs::write(&file, config).unwrap();
    let mut gateway = sandbox.start(&["gateway", "--config", &file]);
    let admin_addr = find_line(&mut gateway.stderr, "live page, metrics: ");
    let admin_addr = admin_addr.rsplit_once("http://").unwrap().1.to_owned();
    let mut tcp = TcpStream::connect(gateway.address()).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let first = request_on(&mut tcp);
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    // Afterwards the admin listener, too, has opened all descriptors that it needs.
    fetch(&admin_addr, "/metrics");

    let set_limit = |files: Rlimit| {
        prlimit(Some(Pid::from_child(&gateway.child)), Resource::Nofile, files).unwrap()
    };
    // Fewer than are open already: no further one can be opened.
    set_limit(Rlimit { current: Some(3), maximum: Some(1000) });
    for _ in 0..20 {
        let refused = request_on(&mut tcp);
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    }
    set_limit(Rlimit { current: Some(1000), maximum: Some(1000) });
    let metrics = fetch(&admin_addr, "/metrics");
    let healthy = metrics.lines().find(|line| line.starts_with("smig_upstream_healthy{"));
    assert!(healthy.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    let last = request_on(&mut tcp);
    assert!(last.starts_with("HTTP/1.1 200"), "{last}");
}

#[test]
fn the_limit_of_open_files_is_raised_and_reported_at_the_start() {
    let sandbox = Sandbox::new();
    let smig = env!("CARGO_BIN_EXE_smig");
    let lower_limits = "ulimit -Sn 100 && ulimit -Hn 200";
    let line = format!("{lower_limits} && exec {smig} serve . --cleartext --listen 127.0.0.1:0");
    let child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(sandbox.path("www"))
        .env("XDG_DATA_HOME", sandbox.path("data"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = KillGuard(child);
    let stderr = server.0.stderr.take().unwrap();
    let mut stderr = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let report = find_line(&mut stderr, "open files: 200 at most");
    assert!(report.contains("max_connections"), "{report}");
}
