//! `smig gateway`: one route, a file, signals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Ended, Place, assert_exit, line_with, sha256_of, text};

#[test]
fn one_server_behind_a_development_certificate() {
    let place = Place::new();
    let hash = place.file("big", 3_000_000);
    let origin = place.serve(&["--cleartext"]);
    let mut gateway = place.start(&["gateway", "--to", &origin.origin, "--listen", "127.0.0.1:0"]);
    assert!(gateway.origin.starts_with("https://"));
    assert_exit(&place.get(&gateway, &["--output-dir", "."], &["big"]), 0);
    assert_eq!(sha256_of(&place.path("out/big")), hash);
    gateway.signal(Signal::TERM);
    line_with(&mut gateway.stderr, "SIGTERM");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_trust_store_that_cannot_be_read_holds_nothing_up() {
    let place = Place::new();
    place.file("file", 10);
    let origin = place.serve(&["--cleartext"]);
    // Whoever reads it waits for a writer, and there is none.
    let store = place.shown("store");
    assert!(Command::new("mkfifo").arg(&store).status().unwrap().success());
    let file = place.shown("gateway.toml");
    let config = format!(
        "server = {{ workers = 1, drain_timeout = '1s' }}\n\
         [[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
         [upstreams.tls]\nservers = ['https://{0}']\n\
         [upstreams.clear]\nservers = ['http://{0}']\n\
         [[route]]\npath = '/tls'\nupstream = 'tls'\n\
         [[route]]\nupstream = 'clear'\n",
        origin.address()
    );
    std::fs::write(&file, config).unwrap();
    let mut gateway = place.start_with(&["gateway", "--config", &file], |command| {
        command.env("SSL_CERT_FILE", &store);
    });
    // Its worker now wants the store: the answer comes when the limit of its connection ends.
    let mut waiting = place.smig(&["get", &gateway.url("tls")]).spawn().unwrap();
    for _ in 0..3 {
        assert_exit(&place.get(&gateway, &["-o", "-"], &["file"]), 0);
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    assert!(!waiting.wait().unwrap().success());
}

/// Log and messages to one reader, as `2>&1 |` and systemd have it, who stops to read.
#[test]
fn a_reader_who_stops_holds_nobody_up() {
    const REQUESTS: usize = 6_000;
    const AT_ONCE: usize = 50;
    let place = Place::new();
    let file = place.shown("gateway.toml");
    let config = "server = { workers = 1, drain_timeout = '1s' }\n\
                  access_log = { format = 'json' }\n\
                  [[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
                  [[route]]\nstatus = 200\n";
    std::fs::write(&file, config).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.smig(&["gateway", "--config", &file]);
    let mut gateway =
        Ended(command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap());
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("listening on http://")).unwrap();
    let mut tcp = TcpStream::connect(line.rsplit_once('/').unwrap().1).unwrap();
    // A limit that no slow machine meets.
    tcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    for _ in 0..REQUESTS / AT_ONCE {
        tcp.write_all("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(AT_ONCE).as_bytes()).unwrap();
        let mut heads = Vec::new();
        while heads.windows(4).filter(|four| four == b"\r\n\r\n").count() < AT_ONCE {
            let mut piece = [0; 4096];
            let len = tcp.read(&mut piece).expect("an answer in time");
            assert_ne!(len, 0, "the gateway closed the connection");
            heads.extend_from_slice(&piece[..len]);
        }
    }
    drop(tcp);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.0.wait().unwrap().code(), Some(0));
}

#[test]
fn sighup_reads_the_file_again_and_a_bad_one_changes_nothing() {
    let place = Place::new();
    let file = place.shown("gateway.toml");
    let write = |rest: &str| {
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n[[route]]\n";
        std::fs::write(&file, format!("{listen}{rest}")).unwrap();
    };
    write("status = 404\n");
    let mut gateway = place.start(&["gateway", "--config", &file]);
    assert_exit(&place.get(&gateway, &[], &["x"]), 22);

    write("status = 200\npaht = '/'\n");
    gateway.signal(Signal::HUP);
    let line = line_with(&mut gateway.stderr, "SIGHUP");
    let expected = format!("{file}:6: route.0.paht: unknown key; did you mean path?");
    assert!(line.contains("stays as it was") && line.ends_with(&expected), "{line}");
    assert_exit(&place.get(&gateway, &[], &["x"]), 22);

    write("status = 200\n");
    gateway.signal(Signal::HUP);
    line_with(&mut gateway.stderr, "read again");
    assert_exit(&place.get(&gateway, &[], &["x"]), 0);
    gateway.signal(Signal::INT);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_example_is_good_and_a_bad_file_is_not() {
    let place = Place::new();
    let example = place.run(&["config", "example", "gateway"]);
    assert_exit(&example, 0);
    let file = place.shown("gateway.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&place.run(&["config", "check", &file]), 0);

    std::fs::write(
        &file,
        "[[certificate]]\nchain = 'absent'\nkey = 'absent'\n[[listen]]\naddress = 'localhost:0'\n",
    )
    .unwrap();
    let expected = format!("{file}:2: certificate.0.chain: cannot read ");
    for command in [&["config", "check", &file][..], &["gateway", "--config", &file]] {
        let output = place.run(command);
        assert_exit(&output, 2);
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn wrong_usage_is_said() {
    let place = Place::new();
    assert_exit(&place.run(&["gateway"]), 2);
    assert_exit(&place.run(&["gateway", "--to", "127.0.0.1:80"]), 2);
    assert_exit(&place.run(&["gateway", "--to", "http://a", "--config", "b"]), 2);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = place.run(&["gateway", "--to", "http://127.0.0.1:1", "--listen", &address]);
    assert_exit(&output, 2);
    assert!(text(&output.stderr).contains(&format!("cannot listen on {address}")));
}
