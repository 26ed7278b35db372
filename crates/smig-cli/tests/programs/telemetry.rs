//! `[telemetry]` of `smig gateway` and `smig agent`: where and when spans are sent, and invalid settings.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use rustix::process::Signal;
use smig_testkit::port::ReservedPort;

use crate::support::{Sandbox, ServerProcess, assert_exit, find_line, text};

/// Starts a collector that accepts one request, and returns its head and body.
fn start_collector() -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let request = std::thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        let mut tcp = BufReader::new(tcp);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            tcp.read_line(&mut head).unwrap();
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        tcp.read_exact(&mut body).unwrap();
        tcp.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        (head, body)
    });
    (endpoint, request)
}

fn start(mut command: Command) -> ServerProcess {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = find_line(&mut stderr, "listening on ");
    ServerProcess { child, stderr, origin: line.rsplit_once(' ').unwrap().1.to_owned() }
}

#[track_caller]
fn assert_contains(body: &[u8], part: &str) {
    let is_contained = body.windows(part.len()).any(|bytes| bytes == part.as_bytes());
    assert!(is_contained, "no {part:?} in {}", body.escape_ascii());
}

#[test]
fn the_environment_configures_a_collector_and_sigterm_flushes() {
    let sandbox = Sandbox::new();
    let (endpoint, request) = start_collector();
    let file = sandbox.path_text("gateway.toml");
    let listen = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n";
    std::fs::write(&file, format!("{listen}[[route]]\nstatus = 200\n")).unwrap();
    let mut command = sandbox.smig(&["gateway", "--config", &file]);
    // No batch is sent before shutdown.
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_BSP_SCHEDULE_DELAY", "86400000");
    let mut gateway = start(command);
    find_line(&mut gateway.stderr, &format!("sending traces to {endpoint}/v1/traces"));
    assert_exit(&sandbox.get(&gateway, &[], &["some/path?secret"]), 0);
    gateway.signal(Signal::TERM);
    let (head, body) = request.join().unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    for part in ["service.name", "smig-gateway", "GET /", "/some/path"] {
        assert_contains(&body, part);
    }
    find_line(&mut gateway.stderr, "stopped after ");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_unreachable_collector_is_logged_and_dropped_spans_are_counted() {
    let sandbox = Sandbox::new();
    let unused_port = ReservedPort::new();
    let file = sandbox.path_text("gateway.toml");
    let config = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n[[route]]\nstatus = 200\n\
         [admin]\nlisten = '127.0.0.1:0'\n[telemetry]\nendpoint = 'http://{unused_port}'\n"
    );
    std::fs::write(&file, config).unwrap();
    let mut command = sandbox.smig(&["gateway", "--config", &file]);
    command.env("OTEL_BSP_SCHEDULE_DELAY", "10");
    let mut gateway = start(command);
    let admin_addr = find_line(&mut gateway.stderr, "live page, metrics: ");
    let admin_addr = admin_addr.rsplit_once("http://").unwrap().1.to_owned();
    assert_exit(&sandbox.get(&gateway, &[], &["x"]), 0);
    let log_line = find_line(&mut gateway.stderr, "spans are dropped");
    assert!(log_line.contains(&unused_port.to_string()), "{log_line}");
    let mut admin = TcpStream::connect(admin_addr).unwrap();
    admin
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).unwrap();
    for line in ["smig_telemetry_spans_dropped_total 1", "smig_telemetry_spans_exported_total 0"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    gateway.signal(Signal::TERM);
    find_line(&mut gateway.stderr, "stopped after ");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn invalid_settings_have_a_line_and_changes_need_a_restart() {
    let sandbox = Sandbox::new();
    let file = sandbox.path_text("smig.toml");
    let agent_config = "[gateway]\nurl = 'https://127.0.0.1:1'\n";
    let gateway_config = "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n";
    let cases = [
        (
            agent_config,
            "endpoint = 'localhost:4318'",
            "4: telemetry.endpoint: \"localhost:4318\" is not the URL of a collector",
        ),
        (
            gateway_config,
            "endpoint = 'http://a'\nsample_ratio = 2",
            "6: telemetry.sample_ratio: this takes a number from 0",
        ),
        (
            gateway_config,
            "endpont = 'http://a'",
            "5: telemetry.endpont: unknown key; did you mean endpoint?",
        ),
        (gateway_config, "endpoint = 'http://a'\nca = 'absent'", "6: telemetry.ca: "),
        (gateway_config, "sample_ratio = 1", "4: telemetry: missing field `endpoint`"),
        (
            agent_config,
            "endpoint = 'http://a'\nheaders = { 'a b' = 'c' }",
            "5: telemetry.headers: \"a b\" is not a field name",
        ),
    ];
    for (program, keys, expected) in cases {
        std::fs::write(&file, format!("{program}[telemetry]\n{keys}\n")).unwrap();
        let output = sandbox.run(&["config", "check", &file]);
        assert_exit(&output, 2);
        let stderr = text(&output.stderr);
        assert!(stderr.contains(&format!("{file}:{expected}")), "{stderr}");
    }
    let mut command = sandbox.smig(&["gateway", "--to", "http://127.0.0.1:1", "--cleartext"]);
    let output = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318").output().unwrap();
    assert_exit(&output, 2);
    assert!(text(&output.stderr).contains("OTEL_EXPORTER_OTLP_ENDPOINT: \"localhost:4318\""));

    std::fs::write(&file, format!("{gateway_config}[[route]]\nstatus = 200\n")).unwrap();
    let mut running_gateway = sandbox.start(&["gateway", "--config", &file]);
    let telemetry_section =
        "[[route]]\nstatus = 200\n[telemetry]\nendpoint = 'http://127.0.0.1:1'\n";
    std::fs::write(&file, format!("{gateway_config}{telemetry_section}")).unwrap();
    running_gateway.signal(Signal::HUP);
    find_line(&mut running_gateway.stderr, "these need a restart: telemetry");
    running_gateway.signal(Signal::TERM);
    assert_eq!(running_gateway.child.wait().unwrap().code(), Some(0));
}
