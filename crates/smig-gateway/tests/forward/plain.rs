//! Requests to `http://` origins.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use smig::Incoming;
use smig_gateway::forward_proxy::ForwardProxySpec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::{
    Gateway, TOKEN, bytes, default_spec, echo_server, origin, proxy_status, read_head, spec, text,
    uri,
};

async fn send(gateway: &Gateway, url: String, h2c: bool, body: Bytes) -> Response<Incoming> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(uri(url))
        .header("proxy-authorization", format!("Bearer {TOKEN}"));
    if h2c {
        request = request.header("smig-origin-protocol", "h2c");
    }
    let request = request.body(Full::new(body)).unwrap();
    gateway.client.request_to(&gateway.origin, request).await.unwrap()
}

#[tokio::test]
async fn http1_origins_are_reached_repeatedly() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    for _ in 0..3 {
        let sent_body = bytes(300_000);
        let response = send(&gateway, url.clone(), false, sent_body.clone()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-version"], "HTTP/1.1");
        assert_eq!(response.headers()["x-via"], "2 smig");
        assert_eq!(response.headers()["via"], "1.1 smig");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), sent_body);
    }
}

#[tokio::test]
async fn http2_origins_are_reached_with_trailers() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    for _ in 0..3 {
        let sent_body = bytes(300_000);
        let response = send(&gateway, url.clone(), true, sent_body.clone()).await;
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(response.headers()["x-version"], "HTTP/2.0");
        assert_eq!(response.headers()["via"], "2 smig");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-length"], "300000");
        assert_eq!(body.to_bytes(), sent_body);
    }
    assert_eq!(server.stats().connections_opened, 1);
}

#[tokio::test]
async fn idempotent_requests_are_retried_when_a_reused_connection_ends() {
    let gateway = Gateway::start(spec());
    // Each connection responds once, and closes after the second request has arrived.
    let origin = origin(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        let _ = tcp.read(&mut [0; 1000]).await;
    })
    .await;
    for _ in 0..4 {
        let request = Request::get(uri(format!("http://{origin}/")))
            .header("proxy-authorization", format!("Bearer {TOKEN}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = gateway.client.request_to(&gateway.origin, request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
}

#[tokio::test]
async fn rules_apply_to_requests() {
    let (gateway, server) = (Gateway::start(default_spec()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    let response = send(&gateway, url, false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(proxy_status(&response).contains("destination_ip_prohibited"));
    assert_eq!(server.stats().connections_opened, 0);
    let url = "https://example.com/".to_owned();
    assert_eq!(send(&gateway, url, false, Bytes::new()).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn connections_per_origin_are_limited() {
    let gateway =
        Gateway::start(ForwardProxySpec { max_connections: 1, max_pending_requests: 0, ..spec() });
    let resume_first = Arc::new(Notify::new());
    let resume_in_origin = Arc::clone(&resume_first);
    let origin = origin(move |mut tcp| {
        let resume = Arc::clone(&resume_in_origin);
        async move {
            read_head(&mut tcp).await;
            tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await.unwrap();
            resume.notified().await;
            tcp.write_all(b"k").await.unwrap();
        }
    })
    .await;
    let url = format!("http://{origin}/");
    let first = send(&gateway, url.clone(), false, Bytes::new()).await;
    assert_eq!(first.status(), StatusCode::OK);
    let second = send(&gateway, url, false, Bytes::new()).await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(proxy_status(&second).contains("connection_limit_reached"));
    resume_first.notify_one();
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn a_truncated_body_is_an_error() {
    let gateway = Gateway::start(spec());
    for head in
        ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"]
    {
        let truncating_origin = origin(move |mut tcp| async move {
            read_head(&mut tcp).await;
            tcp.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).await.unwrap();
        })
        .await;
        let response =
            send(&gateway, format!("http://{truncating_origin}/"), false, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.into_body().collect().await.is_err(), "{head}");
    }
}

#[tokio::test]
async fn an_origin_without_a_response_is_named() {
    let gateway = Gateway::start(spec());
    let silent_origin = origin(async |tcp| drop(tcp)).await;
    let response = send(&gateway, format!("http://{silent_origin}/"), false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(text(response).await.contains(&silent_origin.to_string()));
    let non_http_origin = origin(async |mut tcp| {
        // The peer may close first.
        let _ = tcp.write_all(b"220 no HTTP\r\n\r\n").await;
    })
    .await;
    let response = send(&gateway, format!("http://{non_http_origin}/"), false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn http1_clients_send_absolute_form() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let target = server.local_addrs()[0];
    let ask = async |target: SocketAddr, extra: &str| {
        let mut tcp = TcpStream::connect(gateway.server.local_addrs()[1]).await.unwrap();
        let head = format!(
            "POST http://{target}/ HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\
             Proxy-Authorization: Bearer {TOKEN}\r\n{extra}"
        );
        tcp.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask(target, "Content-Length: 5\r\n\r\nhello").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hello"), "{answer}");
    // Requests that two parsers could interpret differently are rejected.
    for ambiguous_fields in [
        "Host: twice.example\r\nContent-Length: 0\r\n\r\n",
        "Connection: content-length\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let answer = ask(target, ambiguous_fields).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{ambiguous_fields:?}: {answer}");
    }
}

#[tokio::test]
async fn connect_requests_with_content_are_rejected() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let target = server.local_addrs()[0];
    for field in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let mut tcp = TcpStream::connect(gateway.server.local_addrs()[1]).await.unwrap();
        let head = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {TOKEN}\r\n{field}"
        );
        tcp.write_all(head.as_bytes()).await.unwrap();
        assert!(read_head(&mut tcp).await.starts_with("HTTP/1.1 400 "), "{field}");
    }
    assert_eq!(server.stats().connections_opened, 0);
}

/// Such a response was not requested, or its end is uncertain.
#[tokio::test]
async fn a_connection_is_not_reused_after_an_ambiguous_response() {
    for (answer, status, via) in [
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            502,
            None,
        ),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, Some("1.1 smig")),
        (
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
            200,
            Some("1.0 smig"),
        ),
    ] {
        let gateway = Gateway::start(spec());
        // Each connection responds only once.
        let single_response_origin = origin(move |mut tcp| async move {
            read_head(&mut tcp).await;
            tcp.write_all(answer.as_bytes()).await.unwrap();
            let _ = tcp.read(&mut [0; 1]).await;
        })
        .await;
        for _ in 0..2 {
            let response =
                send(&gateway, format!("http://{single_response_origin}/"), false, Bytes::new())
                    .await;
            assert_eq!(response.status(), status, "{answer}");
            let received_via = response.headers().get("via").map(|value| value.to_str().unwrap());
            assert_eq!(received_via, via, "{answer}");
        }
    }
}

#[tokio::test]
async fn via_is_added_to_informational_and_final_responses() {
    let gateway = Gateway::start(spec());
    let hinting_origin = origin(async |mut tcp| {
        read_head(&mut tcp).await;
        let answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
             HTTP/1.1 200 OK\r\nVia: 1.1 other\r\nContent-Length: 0\r\n\r\n";
        tcp.write_all(answer.as_bytes()).await.unwrap();
        let _ = tcp.read(&mut [0; 1]).await;
    })
    .await;
    let mut request = Request::get(uri(format!("http://{hinting_origin}/")))
        .header("proxy-authorization", format!("Bearer {TOKEN}"))
        .body(Full::<Bytes>::default())
        .unwrap();
    let (via_tx, mut via_rx) = tokio::sync::mpsc::unbounded_channel();
    smig::on_informational(&mut request, move |_, headers| {
        via_tx.send(headers.get("via").cloned()).unwrap();
    });
    let response = gateway.client.request_to(&gateway.origin, request).await.unwrap();
    let via: Vec<_> = response.headers().get_all("via").iter().collect();
    assert_eq!(via, ["1.1 other", "1.1 smig"]);
    assert_eq!(via_rx.recv().await.unwrap().unwrap(), "1.1 smig");
}

#[tokio::test]
async fn options_asterisk_respects_max_forwards() {
    let gateway = Gateway::start(spec());
    let target = origin(async |mut tcp| {
        let head = read_head(&mut tcp).await;
        let line = head.lines().next().unwrap();
        let remaining_hops =
            head.lines().find_map(|line| line.strip_prefix("max-forwards: ")).unwrap();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nX-Got: {line}, {remaining_hops}\r\nContent-Length: 0\r\n\r\n"
        );
        tcp.write_all(answer.as_bytes()).await.unwrap();
        let _ = tcp.read(&mut [0; 1]).await;
    })
    .await;
    let mut parts = uri(format!("http://{target}/")).into_parts();
    parts.path_and_query = Some("*".parse().unwrap());
    let star = http::Uri::from_parts(parts).unwrap();
    for (hops, status, expected) in [("5", 200, Some("OPTIONS * HTTP/1.1, 4")), ("0", 204, None)] {
        let request = Request::builder()
            .method(Method::OPTIONS)
            .uri(star.clone())
            .header("proxy-authorization", format!("Bearer {TOKEN}"))
            .header("max-forwards", hops)
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = gateway.client.request_to(&gateway.origin, request).await.unwrap();
        assert_eq!(response.status(), status, "{hops}");
        let received_fields = response.headers().get("x-got").map(|value| value.to_str().unwrap());
        assert_eq!(received_fields, expected, "{hops}");
        assert_eq!(response.headers().contains_key("via"), expected.is_some(), "{hops}");
    }
}
