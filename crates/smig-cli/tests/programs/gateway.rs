//! `smig gateway`: one route, a file, signals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{KillGuard, Sandbox, assert_exit, find_line, sha256_of, text};

#[test]
fn one_server_behind_a_development_certificate() {
    let sandbox = Sandbox::new();
    let hash = sandbox.write_file("big", 3_000_000);
    let origin_server = sandbox.serve(&["--cleartext"]);
    let mut gateway =
        sandbox.start(&["gateway", "--to", &origin_server.origin, "--listen", "127.0.0.1:0"]);
    assert!(gateway.origin.starts_with("https://"));
    assert_exit(&sandbox.get(&gateway, &["--output-dir", "."], &["big"]), 0);
    assert_eq!(sha256_of(&sandbox.path("out/big")), hash);
    gateway.signal(Signal::TERM);
    find_line(&mut gateway.stderr, "SIGTERM");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_blocking_trust_store_delays_no_other_request() {
    let sandbox = Sandbox::new();
    sandbox.write_file("file", 10);
    let origin_server = sandbox.serve(&["--cleartext"]);
    // A FIFO without a writer: opening it for reading blocks.
    let store = sandbox.path_text("store");
    assert!(Command::new("mkfifo").arg(&store).status().unwrap().success());
    let file = sandbox.path_text("gateway.toml");
    let config = format!(
        "server = {{ workers = 1, drain_timeout = '1s' }}\n\
         [[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
         [upstreams.tls]\nservers = ['https://{0}']\n\
         [upstreams.clear]\nservers = ['http://{0}']\n\
         [[route]]\npath = '/tls'\nupstream = 'tls'\n\
         [[route]]\nupstream = 'clear'\n",
        origin_server.address()
    );
    std::fs::write(&file, config).unwrap();
    let mut gateway = sandbox.start_with(&["gateway", "--config", &file], |command| {
        command.env("SSL_CERT_FILE", &store);
    });
    // This request needs the store, and fails when the timeout of its connection expires.
    let mut waiting_get = sandbox.smig(&["get", &gateway.url("tls")]).spawn().unwrap();
    for _ in 0..3 {
        assert_exit(&sandbox.get(&gateway, &["-o", "-"], &["file"]), 0);
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    assert!(!waiting_get.wait().unwrap().success());
}

/// Access log and messages go to one pipe, as with `2>&1 |` and systemd. The pipe is not read.
#[test]
fn a_stopped_log_reader_delays_no_request() {
    const REQUESTS: usize = 6_000;
    const BATCH_REQUESTS: usize = 50;
    let sandbox = Sandbox::new();
    let file = sandbox.path_text("gateway.toml");
    let config = "server = { workers = 1, drain_timeout = '1s' }\n\
                  access_log = { format = 'json' }\n\
                  [[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
                  [[route]]\nstatus = 200\n";
    std::fs::write(&file, config).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = sandbox.smig(&["gateway", "--config", &file]);
    let mut gateway =
        KillGuard(command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap());
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("listening on http://")).unwrap();
    let mut tcp = TcpStream::connect(line.rsplit_once('/').unwrap().1).unwrap();
    // Long enough for a slow machine.
    tcp.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    for _ in 0..REQUESTS / BATCH_REQUESTS {
        tcp.write_all("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(BATCH_REQUESTS).as_bytes())
            .unwrap();
        let mut heads = Vec::new();
        while heads.windows(4).filter(|four| four == b"\r\n\r\n").count() < BATCH_REQUESTS {
            let mut chunk = [0; 4096];
            let len = tcp.read(&mut chunk).expect("a response in time");
            assert_ne!(len, 0, "the gateway closed the connection");
            heads.extend_from_slice(&chunk[..len]);
        }
    }
    drop(tcp);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.0.wait().unwrap().code(), Some(0));
}

#[test]
fn sighup_reloads_the_file_and_ignores_an_invalid_one() {
    let sandbox = Sandbox::new();
    let file = sandbox.path_text("gateway.toml");
    let write = |rest: &str| {
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n[[route]]\n";
        std::fs::write(&file, format!("{listen}{rest}")).unwrap();
    };
    write("status = 404\n");
    let mut gateway = sandbox.start(&["gateway", "--config", &file]);
    assert_exit(&sandbox.get(&gateway, &[], &["x"]), 22);

    write("status = 200\npaht = '/'\n");
    gateway.signal(Signal::HUP);
    let line = find_line(&mut gateway.stderr, "SIGHUP");
    let expected = format!("{file}:6: route.0.paht: unknown key; did you mean path?");
    assert!(line.contains("stays in effect") && line.ends_with(&expected), "{line}");
    assert_exit(&sandbox.get(&gateway, &[], &["x"]), 22);

    write("status = 200\n");
    gateway.signal(Signal::HUP);
    find_line(&mut gateway.stderr, "was reloaded");
    assert_exit(&sandbox.get(&gateway, &[], &["x"]), 0);
    gateway.signal(Signal::INT);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_example_is_valid_and_missing_files_are_reported() {
    let sandbox = Sandbox::new();
    let example = sandbox.run(&["config", "example", "gateway"]);
    assert_exit(&example, 0);
    let file = sandbox.path_text("gateway.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&sandbox.run(&["config", "check", &file]), 0);

    std::fs::write(
        &file,
        "[[certificate]]\nchain = 'absent'\nkey = 'absent'\n[[listen]]\naddress = 'localhost:0'\n",
    )
    .unwrap();
    let expected = format!("{file}:2: certificate.0.chain: cannot read ");
    for command in [&["config", "check", &file][..], &["gateway", "--config", &file]] {
        let output = sandbox.run(command);
        assert_exit(&output, 2);
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn usage_errors_are_reported() {
    let sandbox = Sandbox::new();
    assert_exit(&sandbox.run(&["gateway"]), 2);
    assert_exit(&sandbox.run(&["gateway", "--to", "127.0.0.1:80"]), 2);
    assert_exit(&sandbox.run(&["gateway", "--to", "http://a", "--config", "b"]), 2);
    let occupying_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupying_listener.local_addr().unwrap().to_string();
    let output = sandbox.run(&["gateway", "--to", "http://127.0.0.1:1", "--listen", &address]);
    assert_exit(&output, 2);
    assert!(text(&output.stderr).contains(&format!("cannot listen on {address}")));
}
