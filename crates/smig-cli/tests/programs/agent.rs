//! `smig agent`: its output, its shutdown, and its errors.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Sandbox, ServerProcess, assert_exit, find_line};

/// A running agent, whose origin is its HTTP proxy.
fn start_agent(sandbox: &Sandbox, args: &[&str]) -> ServerProcess {
    let mut all_args = vec!["agent", "--listen", "127.0.0.1:0"];
    all_args.extend(args);
    let mut child = sandbox.smig(&all_args).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = find_line(&mut stderr, "HTTP proxy on ");
    let origin = line.split_whitespace().nth(3).unwrap().to_owned();
    ServerProcess { child, stderr, origin }
}

fn send_request(agent: &ServerProcess, request: &str) -> String {
    let mut tcp = TcpStream::connect(agent.address()).unwrap();
    tcp.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    tcp.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn the_negotiated_protocol_is_reported_and_shutdown_succeeds() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let via = format!("https://localhost:{}", server.address().rsplit_once(':').unwrap().1);
    let mut agent = start_agent(&sandbox, &["--via", &via, "--socks", "127.0.0.1:0"]);
    find_line(&mut agent.stderr, "SOCKS5 proxy on 127.0.0.1:");
    find_line(&mut agent.stderr, "SMig, large streams migrate");
    let response =
        send_request(&agent, "GET /proxy.pac HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(response.contains(&format!("PROXY {}", agent.address())), "{response}");
    // A file server is not a proxy; the agent forwards its error response.
    let response = send_request(
        &agent,
        "CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    );
    assert!(!response.starts_with("HTTP/1.1 200"), "{response}");
    agent.signal(Signal::INT);
    find_line(&mut agent.stderr, "SIGINT");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_unreachable_gateway_is_reported() {
    let sandbox = Sandbox::new();
    let mut agent = start_agent(&sandbox, &["--via", "https://127.0.0.1:1"]);
    find_line(&mut agent.stderr, "unreachable:");
    let response = send_request(
        &agent,
        "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n",
    );
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert!(response.contains("the gateway https://127.0.0.1:1 cannot be reached"), "{response}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let sandbox = Sandbox::new();
    let via = ["--via", "https://127.0.0.1:1"];
    let file = sandbox.path_text("agent.toml");
    std::fs::write(&file, "[gateway]\nurl = 'https://127.0.0.1:1'\nspare = 1\n").unwrap();
    let cases: [(&[&str], i32, &str); 10] = [
        (&[], 2, "--via"),
        (&["--config", &file], 2, ":3: gateway.spare: unknown key; did you mean spares?"),
        (&["--config", &file, via[0], via[1]], 2, "cannot be used with"),
        (&["--via", "http://a"], 2, "https://"),
        (&["--via", "https://a/path"], 2, "without a path"),
        (&[via[0], via[1], "--listen", "none"], 2, "no address to listen on"),
        (&[via[0], via[1], "--forward", "x"], 2, "LOCAL_ADDRESS:PORT=HOST:PORT"),
        (&[via[0], via[1], "--user", "ann"], 2, "--token-file"),
        (&[via[0], via[1], "--token-file", "nowhere"], 26, "nowhere"),
        (&[via[0], via[1], "--listen", "192.0.2.1:1"], 2, "cannot listen on 192.0.2.1:1"),
    ];
    for (args, code, text) in cases {
        let output = sandbox.run(&[&["agent"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(text), "{args:?}: {stderr}");
    }
}

#[test]
fn a_file_configures_listeners_and_the_admin_page() {
    let sandbox = Sandbox::new();
    let example = sandbox.run(&["config", "example", "agent"]);
    assert_exit(&example, 0);
    let file = sandbox.path_text("agent.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&sandbox.run(&["config", "check", &file]), 0);
    let text = "[gateway]\nurl = 'https://127.0.0.1:1'\n[listen]\nhttp = ['127.0.0.1:0']\n\
                [admin]\nlisten = '127.0.0.1:0'\n";
    std::fs::write(&file, text).unwrap();
    let mut child =
        sandbox.smig(&["agent", "--config", &file]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = find_line(&mut stderr, "HTTP proxy on ");
    let origin = line.split_whitespace().nth(3).unwrap().to_owned();
    let line = find_line(&mut stderr, "live page, metrics: ");
    let admin_url = line.rsplit(' ').next().unwrap().to_owned();
    let mut agent = ServerProcess { child, stderr, origin };
    let mut admin = TcpStream::connect(admin_url.trim_start_matches("http://")).unwrap();
    admin
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).unwrap();
    assert!(
        metrics.contains("smig_ready 0") && metrics.contains("smig_tunnels{kind=\"socks\"} 0"),
        "{metrics}"
    );
    agent.signal(Signal::TERM);
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_quiet_agent_prints_no_warning() {
    let sandbox = Sandbox::new();
    let gateway = TcpListener::bind("127.0.0.1:0").unwrap();
    let via = format!("https://{}", gateway.local_addr().unwrap());
    let args = ["agent", "--via", &via, "--listen", "0.0.0.0:0", "--quiet"];
    let child = sandbox.smig(&args).stderr(Stdio::piped()).spawn().unwrap();
    // It connects after it has started.
    drop(gateway.accept().unwrap());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 0);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
