//! Where a request ends, nobody may be of two minds: after each of these somebody else's request must
//! arrive as it was sent, and have its own answer.

use tokio::io::AsyncReadExt as _;

use crate::raw_http2::{Reply, Then, ask};
use crate::recorder::{OK, Recorder};
use crate::support::Gateway;

const WEBSOCKET: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The status of the first answer to these bytes.
async fn status(gateway: &Gateway, bytes: &str) -> u16 {
    let mut tcp = gateway.connect(bytes).await;
    let mut line = [0; 12];
    tcp.read_exact(&mut line).await.unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

fn extended<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
    ];
    fields.extend_from_slice(more);
    fields
}

#[tokio::test]
async fn an_upgrade_has_no_content() {
    for announced in ["Content-Length: 50\r\n", "Transfer-Encoding: chunked\r\n"] {
        let recorder = Recorder::start(OK).await;
        let gateway = Gateway::before(&recorder.url);
        let request =
            format!("GET /chat HTTP/1.1\r\nHost: a\r\n{WEBSOCKET}{announced}\r\n0\r\n\r\n");
        assert_eq!(status(&gateway, &request).await, 400, "{announced}");
        recorder.victim(&gateway, announced).await;
        assert_eq!(recorder.messages().len(), 1, "{announced}");
    }
}

#[tokio::test]
async fn an_extended_connect_has_no_content() {
    let recorder = Recorder::start(OK).await;
    let gateway = Gateway::before(&recorder.url);
    let fields = extended(&[("content-length", "50")]);
    for then in [Then::Open, Then::End, Then::Data("a")] {
        let reply = ask(&gateway, &fields, then).await;
        assert!(reply.is_refusal(), "{then:?}: {reply:?}");
    }
    recorder.victim(&gateway, "extended CONNECT").await;
    assert_eq!(recorder.messages().len(), 1);
}

/// A server that would not change: what it makes of the bytes that follow is not known.
#[tokio::test]
async fn a_connection_that_might_have_changed_is_not_used_again() {
    for answer in [OK, "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n"] {
        let recorder = Recorder::start(answer).await;
        let gateway = Gateway::before(&recorder.url);
        let status = answer[9..12].parse().unwrap();
        assert_eq!(ask(&gateway, &extended(&[]), Then::Open).await, Reply::Status(status));
        let victim = recorder.victim(&gateway, answer).await;
        assert_eq!((victim.connection, recorder.messages().len()), (1, 2), "{answer}");
    }
}

/// It may know nothing of chunks, and hyper would speak to it as it did.
#[tokio::test]
async fn a_server_of_http_1_0_gets_one_request_a_connection() {
    let recorder =
        Recorder::start("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok")
            .await;
    let gateway = Gateway::before(&recorder.url);
    let first = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(gateway.raw(first).await.starts_with("HTTP/1.1 200 "));
    let second = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(gateway.raw(second).await.starts_with("HTTP/1.1 200 "));
    let messages = recorder.count(2, "an upload").await;
    assert_eq!(messages[1].body, b"3\r\nabc\r\n0\r\n\r\n", "{messages:?}");
    assert_eq!(recorder.victim(&gateway, "HTTP/1.0").await.connection, 2);
}
