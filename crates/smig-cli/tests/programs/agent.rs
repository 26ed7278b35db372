//! `smig agent`: its output, its shutdown, and its errors.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Place, Serving, assert_exit, line_with};

/// A running agent, whose origin is its HTTP proxy.
fn agent(place: &Place, args: &[&str]) -> Serving {
    let mut all = vec!["agent", "--listen", "127.0.0.1:0"];
    all.extend(args);
    let mut child = place.smig(&all).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = line_with(&mut stderr, "HTTP proxy on ");
    let origin = line.split_whitespace().nth(3).unwrap().to_owned();
    Serving { child, stderr, origin }
}

fn ask(agent: &Serving, request: &str) -> String {
    let mut tcp = TcpStream::connect(agent.address()).unwrap();
    tcp.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_says_what_the_gateway_speaks_and_ends_in_order() {
    let place = Place::new();
    let server = place.serve(&[]);
    let via = format!("https://localhost:{}", server.address().rsplit_once(':').unwrap().1);
    let mut agent = agent(&place, &["--via", &via, "--socks", "127.0.0.1:0"]);
    line_with(&mut agent.stderr, "SOCKS5 proxy on 127.0.0.1:");
    line_with(&mut agent.stderr, "SMig, large streams migrate");
    let answer = ask(&agent, "GET /proxy.pac HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains(&format!("PROXY {}", agent.address())), "{answer}");
    // A file server is not a proxy; the agent forwards its error response.
    let answer =
        ask(&agent, "CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    agent.signal(Signal::INT);
    line_with(&mut agent.stderr, "SIGINT");
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_gateway_that_is_away_is_said() {
    let place = Place::new();
    let mut agent = agent(&place, &["--via", "https://127.0.0.1:1"]);
    line_with(&mut agent.stderr, "away:");
    let answer = ask(
        &agent,
        "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("the gateway https://127.0.0.1:1 cannot be reached"), "{answer}");
}

#[test]
fn what_is_wrong_is_refused() {
    let place = Place::new();
    let via = ["--via", "https://127.0.0.1:1"];
    let file = place.shown("agent.toml");
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
        let output = place.run(&[&["agent"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(text), "{args:?}: {said}");
    }
}

#[test]
fn a_file_says_everything() {
    let place = Place::new();
    let example = place.run(&["config", "example", "agent"]);
    assert_exit(&example, 0);
    let file = place.shown("agent.toml");
    std::fs::write(&file, &example.stdout).unwrap();
    assert_exit(&place.run(&["config", "check", &file]), 0);
    let text = "[gateway]\nurl = 'https://127.0.0.1:1'\n[listen]\nhttp = ['127.0.0.1:0']\n\
                [admin]\nlisten = '127.0.0.1:0'\n";
    std::fs::write(&file, text).unwrap();
    let mut child =
        place.smig(&["agent", "--config", &file]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = line_with(&mut stderr, "HTTP proxy on ");
    let origin = line.split_whitespace().nth(3).unwrap().to_owned();
    let line = line_with(&mut stderr, "live page, metrics: ");
    let page = line.rsplit(' ').next().unwrap().to_owned();
    let mut agent = Serving { child, stderr, origin };
    let mut admin = TcpStream::connect(page.trim_start_matches("http://")).unwrap();
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
