//! Informational responses.

use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Gateway, Origin, client, get, text};

#[tokio::test]
async fn early_hints_are_forwarded_before_the_response() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let received_hints = Arc::new(Mutex::new(Vec::new()));
    let mut request = get(gateway.url("/"));
    let received_in_callback = Arc::clone(&received_hints);
    let (hint_tx, mut hint_rx) = tokio::sync::mpsc::unbounded_channel();
    smig::on_informational(&mut request, move |status, headers| {
        let link = headers["link"].to_str().unwrap().to_owned();
        assert!(!headers.contains_key("connection"));
        received_in_callback.lock().unwrap().push((status.as_u16(), link));
        hint_tx.send(()).unwrap();
    });
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 103 Early\r\nLink: </a>\r\nConnection: x\r\n\r\n").await;
        // It arrives before the final response is sent.
        hint_rx.recv().await.unwrap();
        received_request.respond("HTTP/1.1 103 Early\r\nLink: </b>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    };
    let client = client();
    let (response, ()) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    let expected = [(103, "</a>".to_owned()), (103, "</b>".to_owned())];
    assert_eq!(*received_hints.lock().unwrap(), expected);
    assert_eq!(response.status(), 200);
    assert_eq!(text(response.into_body()).await, "ok");
}

#[tokio::test]
async fn an_upload_begins_after_the_origins_100_continue() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway
        .connect("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut received_request = origin.accept_request().await;
    assert!(received_request.has_field("expect: 100-continue"), "{}", received_request.head);
    received_request.respond("HTTP/1.1 100 Continue\r\n\r\n").await;
    let mut response = [0; 25];
    tcp.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 100 Continue\r\n\r\n");
    tcp.write_all(b"body").await.unwrap();
    assert_eq!(received_request.read_until("body").await, "body");
    received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let mut response = [0; 12];
    tcp.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200");
}

#[tokio::test]
async fn an_origin_that_refuses_an_upload_does_not_receive_it() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway
        .connect("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut received_request = origin.accept_request().await;
    received_request.respond("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").await;
    let mut response = [0; 12];
    tcp.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 401");
    let mut rest = Vec::new();
    let _ = received_request.tcp.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[tokio::test]
async fn an_upload_begins_after_a_timeout_without_100_continue() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let request = Request::post(gateway.url("/"))
        .header("expect", "100-continue")
        .body(Full::<bytes::Bytes>::from("body"))
        .unwrap();
    let client = client();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert_eq!(received_request.read_until("body").await, "body");
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    };
    let (response, ()) = tokio::join!(client.request(request), server_side);
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test]
async fn early_hints_are_forwarded_over_http1() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut tcp = gateway.connect(request).await;
    let mut received_request = Some(origin.accept_request().await);
    for _ in 0..2 {
        let mut current_request = received_request.take().unwrap();
        current_request.respond("HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n").await;
        let expected = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        let mut bytes = vec![0; expected.len()];
        tcp.read_exact(&mut bytes).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        // The next informational response is sent together with the final one.
        current_request
            .respond("HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
        let mut bytes = vec![0; expected.len()];
        tcp.read_exact(&mut bytes).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok") {
            assert_ne!(tcp.read_buf(&mut response).await.unwrap(), 0);
        }
        assert!(response.starts_with(b"HTTP/1.1 200 "));
        tcp.write_all(request.as_bytes()).await.unwrap();
        received_request = current_request.next().await;
    }
}

#[tokio::test]
async fn http10_gets_no_informational_response() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway.connect("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let mut received_request = origin.accept_request().await;
    received_request
        .respond("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let mut response = String::new();
    tcp.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.0 200 "), "{response}");
}
