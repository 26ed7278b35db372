//! The gateway and a server never disagree on where a request ends: after each of these, another client's request
//! must arrive as it was sent, and get its own response.

use tokio::io::AsyncReadExt as _;

use crate::raw_http2::{RequestContent, RequestOutcome, send_request};
use crate::recorder::{OK_RESPONSE, Recorder};
use crate::support::Gateway;

const WEBSOCKET_FIELDS: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Returns the status of the first response to these bytes.
async fn send_for_status(gateway: &Gateway, bytes: &str) -> u16 {
    let mut tcp = gateway.connect(bytes).await;
    let mut line = [0; 12];
    tcp.read_exact(&mut line).await.unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

fn extended_connect<'a>(extra_fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
    ];
    fields.extend_from_slice(extra_fields);
    fields
}

#[tokio::test]
async fn an_upgrade_with_content_is_rejected() {
    for announced in ["Content-Length: 50\r\n", "Transfer-Encoding: chunked\r\n"] {
        let recorder = Recorder::start(OK_RESPONSE).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        let request =
            format!("GET /chat HTTP/1.1\r\nHost: a\r\n{WEBSOCKET_FIELDS}{announced}\r\n0\r\n\r\n");
        assert_eq!(send_for_status(&gateway, &request).await, 400, "{announced}");
        recorder.send_victim_request(&gateway, announced).await;
        assert_eq!(recorder.messages().len(), 1, "{announced}");
    }
}

#[tokio::test]
async fn an_extended_connect_with_content_is_rejected() {
    let recorder = Recorder::start(OK_RESPONSE).await;
    let gateway = Gateway::in_front_of(&recorder.url);
    let fields = extended_connect(&[("content-length", "50")]);
    for content in [RequestContent::Open, RequestContent::End, RequestContent::Data("a")] {
        let outcome = send_request(&gateway, &fields, content).await;
        assert!(outcome.is_refusal(), "{content:?}: {outcome:?}");
    }
    recorder.send_victim_request(&gateway, "extended CONNECT").await;
    assert_eq!(recorder.messages().len(), 1);
}

/// How a server that does not switch protocols parses the bytes that follow is uncertain.
#[tokio::test]
async fn a_connection_that_might_have_switched_is_not_reused() {
    // A 2xx would open the tunnel.
    for (answer, status) in
        [(OK_RESPONSE, 502), ("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n", 426)]
    {
        let recorder = Recorder::start(answer).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        assert_eq!(
            send_request(&gateway, &extended_connect(&[]), RequestContent::Open).await,
            RequestOutcome::Status(status)
        );
        let victim = recorder.send_victim_request(&gateway, answer).await;
        assert_eq!((victim.connection_index, recorder.messages().len()), (1, 2), "{answer}");
    }
}

/// An HTTP/1.0 server may not support chunks, but hyper would send them on a reused connection.
#[tokio::test]
async fn an_http_1_0_server_gets_one_request_per_connection() {
    let recorder =
        Recorder::start("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok")
            .await;
    let gateway = Gateway::in_front_of(&recorder.url);
    let first = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(gateway.send_and_read_to_end(first).await.starts_with("HTTP/1.1 200 "));
    let second = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(gateway.send_and_read_to_end(second).await.starts_with("HTTP/1.1 200 "));
    let messages = recorder.wait_for(2, "an upload").await;
    assert_eq!(messages[1].body, b"3\r\nabc\r\n0\r\n\r\n", "{messages:?}");
    assert_eq!(recorder.send_victim_request(&gateway, "HTTP/1.0").await.connection_index, 2);
}

/// A request that is incomplete, or whose end is uncertain, and the server's early response.
#[tokio::test]
async fn a_connection_with_an_incomplete_request_is_not_reused() {
    let fields_with = |more| {
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/upload"),
        ];
        fields.extend_from_slice(more);
        fields
    };
    for extra_fields in [&[][..], &[("content-length", "50")]] {
        let recorder = Recorder::start(OK_RESPONSE).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        // The response is complete, the request is not.
        let outcome =
            send_request(&gateway, &fields_with(extra_fields), RequestContent::Open).await;
        assert_eq!(outcome, RequestOutcome::Status(200), "{extra_fields:?}");
        assert_eq!(
            recorder.send_victim_request(&gateway, "an early response").await.connection_index,
            1
        );
    }
    for head in [
        "Content-Length: 50\r\n\r\nGET /victim HTTP/1.1",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
    ] {
        let recorder = Recorder::start(OK_RESPONSE).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        let bytes = format!("POST /upload HTTP/1.1\r\nHost: a\r\n{head}");
        drop(gateway.connect(bytes).await);
        // The connection was closed, and the request with it.
        let messages = recorder.wait_for(1, head).await;
        assert!(!messages[0].is_complete, "{messages:?}");
        let sent = "GET /after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert!(gateway.send_and_read_to_end(sent).await.starts_with("HTTP/1.1 200 "));
        let messages = recorder.wait_for(2, head).await;
        assert!(messages[1].is_complete && messages[1].connection_index == 1, "{messages:?}");
    }
}

/// What a server sends after its response belongs to no request.
#[tokio::test]
async fn bytes_after_a_response_are_not_the_next_response() {
    const EVIL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
    for (case, method, answer) in [
        ("two answers", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        (
            "chunked",
            "GET",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        ("none", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        ("204", "GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("304", "GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 39\r\n\r\n"),
        ("HEAD", "HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 39\r\n\r\n"),
        (
            "103",
            "GET",
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
        ("close", "GET", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"),
    ] {
        let answer = Box::leak(format!("{answer}{EVIL}").into_boxed_str());
        let recorder = Recorder::start(answer).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = gateway.send_and_read_to_end(&request).await;
        assert!(answer.starts_with("HTTP/1.1 ") && !answer.contains("evil"), "{case}: {answer}");
        assert_eq!(
            recorder.send_victim_request(&gateway, case).await.connection_index,
            1,
            "{case}"
        );
    }
    // Responses whose end is uncertain, and nothing after them yet.
    for (case, answer) in [
        ("204", "HTTP/1.1 204 No Content\r\ncontent-length: 39\r\n\r\n"),
        ("204, chunked", "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n"),
        (
            "101",
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        ),
        (
            "both",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("lengths", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n"),
        ("HTTP/1.0", "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n"),
        (
            "chunks by HTTP/1.0",
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
    ] {
        let recorder = Recorder::start(answer).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        gateway
            .send_and_read_to_end("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        assert_eq!(
            recorder.send_victim_request(&gateway, case).await.connection_index,
            1,
            "{case}"
        );
    }
}

/// Over HTTP/2 a header section contains no framing, and none of it reaches that of HTTP/1.1.
#[tokio::test]
async fn http2_header_sections_cannot_inject_http1_framing() {
    const SMUGGLED: &str = "0\r\n\r\nGET /victim HTTP/1.1\r\nHost: a\r\n\r\n";
    let base_fields =
        [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")];
    let with_fields = |more: &[(&'static str, &'static str)]| [&base_fields[..], more].concat();
    let replacing = |name: &'static str, value: &'static str| {
        base_fields.map(|field| if field.0 == name { (name, value) } else { field }).to_vec()
    };
    let cases = [
        ("a shorter length", with_fields(&[("content-length", "0")])),
        ("a longer length", with_fields(&[("content-length", "500")])),
        ("equal lengths", with_fields(&[("content-length", "44"), ("content-length", "44")])),
        ("unequal lengths", with_fields(&[("content-length", "44"), ("content-length", "5")])),
        ("a list of lengths", with_fields(&[("content-length", "44, 44")])),
        ("2^63", with_fields(&[("content-length", "9223372036854775808")])),
        ("a sign", with_fields(&[("content-length", "+44")])),
        ("chunked", with_fields(&[("transfer-encoding", "chunked")])),
        ("connection", with_fields(&[("connection", "content-length")])),
        ("keep-alive", with_fields(&[("keep-alive", "5")])),
        ("upgrade", with_fields(&[("upgrade", "websocket")])),
        ("te", with_fields(&[("te", "chunked")])),
        ("a line end in a value", with_fields(&[("x", "a\r\ntransfer-encoding: chunked")])),
        ("LF in a value", with_fields(&[("x", "a\ntransfer-encoding: chunked")])),
        ("CR in a value", with_fields(&[("x", "a\rb")])),
        ("NUL in a value", with_fields(&[("x", "a\0b")])),
        ("a line end in a name", with_fields(&[("x: a\r\ntransfer-encoding", "chunked")])),
        ("a colon in a name", with_fields(&[("transfer-encoding:chunked", "a")])),
        ("space in a name", with_fields(&[("transfer-encoding ", "chunked")])),
        ("capitals in a name", with_fields(&[("Transfer-Encoding", "chunked")])),
        ("a name with _", with_fields(&[("content_length", "500")])),
        ("no name", with_fields(&[("", "a")])),
        ("a list of hosts", with_fields(&[("host", "a"), ("host", "a")])),
        ("another host", with_fields(&[("host", "b")])),
        ("an expectation", with_fields(&[("expect", "100-continue, x")])),
        ("a method with a line", replacing(":method", "POST / HTTP/1.1\r\nx: y\r\n\r\nGET")),
        ("a method with space", replacing(":method", "GET /victim HTTP/1.1")),
        ("no method", replacing(":method", "")),
        (
            "a path with a line",
            replacing(":path", "/ HTTP/1.1\r\ntransfer-encoding: chunked\r\nx: y"),
        ),
        ("a path with space", replacing(":path", "/ HTTP/1.1")),
        ("a path with a tab", replacing(":path", "/\tHTTP/1.1")),
        ("a path with a fragment", replacing(":path", "/a#b")),
        ("a URL as path", replacing(":path", "http://b/")),
        ("no path", replacing(":path", "")),
        ("star", replacing(":path", "*")),
        ("an authority with a line", replacing(":authority", "a\r\ntransfer-encoding: chunked")),
        ("an authority with space", replacing(":authority", "a b")),
        ("an authority with a path", replacing(":authority", "a/b")),
        ("userinfo", replacing(":authority", "u@a")),
        ("two ports", replacing(":authority", "a:1:2")),
        ("a port of letters", replacing(":authority", "a:b")),
        ("a port with a sign", replacing(":authority", "a:+80")),
        ("a scheme with more", replacing(":scheme", "http://b/?")),
        ("two paths", with_fields(&[(":path", "/victim")])),
        ("a pseudo-header after a field", with_fields(&[("x", "y"), (":path", "/victim")])),
    ];
    for (case, fields) in cases {
        let recorder = Recorder::start(OK_RESPONSE).await;
        let gateway = Gateway::in_front_of(&recorder.url);
        let outcome = send_request(&gateway, &fields, RequestContent::Data(SMUGGLED)).await;
        assert!(outcome.is_refusal(), "{case}: {outcome:?}");
        recorder.send_victim_request(&gateway, case).await;
    }
}

/// What HTTP/2 permits is sent over HTTP/1.1 with explicit framing.
#[tokio::test]
async fn an_http2_body_is_framed_whatever_its_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "PURGE"] {
        for (extra_fields, content, framed, body) in [
            (
                &[][..],
                RequestContent::Data("hello"),
                "transfer-encoding: chunked",
                "5\r\nhello\r\n0\r\n\r\n",
            ),
            (
                &[("content-length", "5")],
                RequestContent::Data("hello"),
                "content-length: 5",
                "hello",
            ),
            (
                &[("content-length", "005")],
                RequestContent::Data("hello"),
                "content-length: 5",
                "hello",
            ),
            (&[("content-length", "0")], RequestContent::End, "", ""),
            (&[], RequestContent::End, "", ""),
        ] {
            let recorder = Recorder::start("HTTP/1.1 204 No Content\r\n\r\n").await;
            let gateway = Gateway::in_front_of(&recorder.url);
            let base_fields =
                [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/")];
            let outcome =
                send_request(&gateway, &[&base_fields[..], extra_fields].concat(), content).await;
            assert_eq!(outcome, RequestOutcome::Status(204), "{method} {extra_fields:?}");
            let message = recorder.wait_for(1, method).await.remove(0);
            let lines = message.head.lines().filter(|line| line.starts_with(['c', 't']));
            let expected = match framed {
                "" if method == "POST" => "content-length: 0",
                framed => framed,
            };
            assert_eq!(lines.collect::<String>(), expected, "{method} {extra_fields:?}");
            assert_eq!(message.body, body.as_bytes(), "{method} {extra_fields:?}");
            recorder.send_victim_request(&gateway, method).await;
        }
    }
}
