//! `smig probe` against `smig serve`, and against `smig get`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::support::{Sandbox, assert_exit, find_line, text};

const GET_HEADERS_LINE: &str =
    "headers stream=1 end :method=GET :scheme=https :path=/file :authority=localhost";

#[test]
fn a_scripted_request_gets_its_response() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("www/file"), "hello").unwrap();
    let server = sandbox.serve(&[]);
    let probe = sandbox.run(&[
        "probe",
        server.address(),
        "-e",
        GET_HEADERS_LINE,
        "-e",
        "wait headers stream=1 :status=200 content-length=5",
        "-e",
        "expect data end \"hello\"",
        "-e",
        "ping \"12345678\"",
        "-e",
        "wait ping ack \"12345678\"",
    ]);
    assert_exit(&probe, 0);
    assert!(
        text(&probe.stdout).contains("< data stream=1 length=5 end data=hello"),
        "{}",
        text(&probe.stdout)
    );
}

#[test]
fn illegal_frames_are_answered_with_the_specified_error_and_unknown_ones_ignored() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    let open_headers = "headers stream=1 open :method=GET :scheme=https :path=/ :authority=a";
    for (script, expected_frame) in [
        (&["data stream=0 \"x\""][..], "goaway code=PROTOCOL_ERROR"),
        (&["data stream=1 \"x\""], "goaway code=PROTOCOL_ERROR"),
        (&["settings ack 0x3=1"], "goaway code=FRAME_SIZE_ERROR"),
        (&["settings initial_window_size=0x80000000"], "goaway code=FLOW_CONTROL_ERROR"),
        (&["ping \"short\""], "goaway code=FRAME_SIZE_ERROR"),
        (&["window by=0"], "goaway code=PROTOCOL_ERROR"),
        (&["headers stream=2 end :method=GET"], "goaway code=PROTOCOL_ERROR"),
        (&["headers stream=1 block=ff end"], "goaway code=COMPRESSION_ERROR"),
        (&["headers stream=1 end :method=GET Upper=x"], "rst stream=1 code=PROTOCOL_ERROR"),
        (&[open_headers, "ping"], "goaway code=PROTOCOL_ERROR"),
        (&["frame type=0xee flags=0xff stream=7 00 \"unknown\"", "ping \"12345678\""], "ping ack"),
        (&["push_promise stream=1 promised=2 :method=GET"], "goaway code=PROTOCOL_ERROR"),
        (&["data stream=1 length=0xffffff \"x\""], "goaway code=FRAME_SIZE_ERROR"),
    ] {
        let mut args = vec!["probe", server.address(), "--linger", "0"];
        for line in ["settings"].iter().chain(script) {
            args.extend(["-e", line]);
        }
        let wait = format!("wait {expected_frame}");
        args.extend(["-e", &wait]);
        let probe = sandbox.run(&args);
        assert_eq!(
            probe.status.code(),
            Some(0),
            "{script:?}: {}{}",
            text(&probe.stdout),
            text(&probe.stderr)
        );
    }
}

#[test]
fn raw_mode_works_over_cleartext_with_json_output() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("www/file"), "hello").unwrap();
    let server = sandbox.serve(&["--cleartext"]);
    let probe = sandbox.run(&[
        "probe",
        server.address(),
        "--cleartext",
        "--raw",
        "--json",
        "-e",
        "raw \"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\" 000000 04 00 00000000",
        "-e",
        "wait settings",
        "-e",
        "settings ack",
        "-e",
        "wait settings ack",
    ]);
    assert_exit(&probe, 0);
    let lines: Vec<serde_json::Value> =
        text(&probe.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines
            .iter()
            .any(|line| line["type"] == "settings" && line["max_concurrent_streams"] == 128)
    );
    assert!(lines.iter().all(|line| line["automatic"].is_null()));
}

#[test]
fn invalid_scripts_and_unmet_expectations_have_exit_codes() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[]);
    std::fs::write(sandbox.path("out/script"), "ping\n\n# well\npnig\n").unwrap();
    let wrong = sandbox.run(&["probe", server.address(), "script"]);
    assert_exit(&wrong, 2);
    assert_eq!(
        text(&wrong.stderr),
        "error: script:4: unknown command \"pnig\"; did you mean ping?\n"
    );
    let unmet = sandbox.run(&["probe", server.address(), "-e", "expect goaway"]);
    assert_exit(&unmet, 1);
    assert!(
        text(&unmet.stderr).contains("line 1: expect goaway: got settings stream=0"),
        "{}",
        text(&unmet.stderr)
    );
    assert_exit(&sandbox.run(&["probe", "localhost"]), 2);
}

/// Starts a server of cleartext for one client, with these lines, and connects to it. The client has sent its preface
/// and SETTINGS, and has received the end of what the probe sends.
fn half_closed_client(sandbox: &Sandbox, lines: &[&str]) -> (Child, TcpStream) {
    let mut args = vec!["probe", "--listen", "127.0.0.1:0", "--cleartext", "--raw"];
    args.extend(lines.iter().flat_map(|line| ["-e", line]));
    let mut probe =
        sandbox.smig(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(probe.stderr.take().unwrap()).lines();
    let line = find_line(&mut stderr, "listening on ");
    let mut client = TcpStream::connect(line.rsplit_once('/').unwrap().1).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    (probe, client)
}

#[test]
fn finish_closes_one_direction_and_close_both() {
    let sandbox = Sandbox::new();
    let script = ["wait settings", "finish", "wait ping"];
    let (mut probe, mut client) = half_closed_client(&sandbox, &script);
    client.write_all(b"\0\0\x08\x06\0\0\0\0\x0012345678").unwrap();
    assert_eq!(probe.wait().unwrap().code(), Some(0));

    let script = ["wait settings", "close", "sleep 30s"];
    let (mut probe, mut client) = half_closed_client(&sandbox, &script);
    while client.write_all(b"x").is_ok() {}
    assert!(probe.try_wait().unwrap().is_none(), "the socket closed only when the probe ended");
    probe.kill().unwrap();
    probe.wait().unwrap();
}

#[test]
fn a_client_can_be_probed() {
    let sandbox = Sandbox::new();
    let mut probe = sandbox
        .smig(&[
            "probe",
            "--listen",
            "127.0.0.1:0",
            "-e",
            "wait headers :path=/x",
            "-e",
            "headers stream=1 :status=200 content-length=10",
            "-e",
            "data stream=1 end \"short\"",
            "-e",
            "wait end",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(probe.stderr.take().unwrap()).lines();
    let line = find_line(&mut stderr, "listening on ");
    let url = format!("{}/x", line.rsplit_once(' ').unwrap().1);
    // A body that is shorter than announced is never reported as complete.
    let got = sandbox.run(&["get", "-o", "x", &url]);
    assert_exit(&got, 18);
    assert!(!sandbox.path("out/x").exists());
    assert_eq!(probe.wait().unwrap().code(), Some(0));
}
