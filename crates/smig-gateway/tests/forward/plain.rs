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
    Gateway, TOKEN, bytes, echo_server, origin, proxy_status, read_head, spec, strict, text, uri,
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
async fn an_origin_of_http1_is_reached_again_and_again() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    for _ in 0..3 {
        let sent = bytes(300_000);
        let response = send(&gateway, url.clone(), false, sent.clone()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-version"], "HTTP/1.1");
        assert_eq!(response.headers()["x-via"], "2 smig");
        assert_eq!(response.headers()["via"], "1.1 smig");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), sent);
    }
}

#[tokio::test]
async fn an_origin_of_http2_is_reached_with_trailers() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    for _ in 0..3 {
        let sent = bytes(300_000);
        let response = send(&gateway, url.clone(), true, sent.clone()).await;
        assert_eq!(response.version(), Version::HTTP_2);
        assert_eq!(response.headers()["x-version"], "HTTP/2.0");
        assert_eq!(response.headers()["via"], "2 smig");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-length"], "300000");
        assert_eq!(body.to_bytes(), sent);
    }
    assert_eq!(server.stats().connections_opened, 1);
}

#[tokio::test]
async fn a_kept_connection_that_ends_is_no_failure_for_idempotent_requests() {
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
async fn the_rules_hold_for_requests_too() {
    let (gateway, server) = (Gateway::start(strict()), echo_server());
    let url = format!("http://{}/x", server.local_addrs()[0]);
    let response = send(&gateway, url, false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(proxy_status(&response).contains("destination_ip_prohibited"));
    assert_eq!(server.stats().connections_opened, 0);
    let url = "https://example.com/".to_owned();
    assert_eq!(send(&gateway, url, false, Bytes::new()).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn an_origin_has_so_many_connections_and_no_more() {
    let gateway =
        Gateway::start(ForwardProxySpec { max_connections: 1, max_pending_requests: 0, ..spec() });
    let refused = Arc::new(Notify::new());
    let go_on = Arc::clone(&refused);
    let origin = origin(move |mut tcp| {
        let go_on = Arc::clone(&go_on);
        async move {
            read_head(&mut tcp).await;
            tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await.unwrap();
            go_on.notified().await;
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
    refused.notify_one();
    assert_eq!(first.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error() {
    let gateway = Gateway::start(spec());
    for head in
        ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"]
    {
        let lying = origin(move |mut tcp| async move {
            read_head(&mut tcp).await;
            tcp.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).await.unwrap();
        })
        .await;
        let response = send(&gateway, format!("http://{lying}/"), false, Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.into_body().collect().await.is_err(), "{head}");
    }
}

#[tokio::test]
async fn an_origin_that_gives_no_response_is_named() {
    let gateway = Gateway::start(spec());
    let silent = origin(async |tcp| drop(tcp)).await;
    let response = send(&gateway, format!("http://{silent}/"), false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(text(response).await.contains(&silent.to_string()));
    let babbling = origin(async |mut tcp| {
        // The peer may close first.
        let _ = tcp.write_all(b"220 no HTTP\r\n\r\n").await;
    })
    .await;
    let response = send(&gateway, format!("http://{babbling}/"), false, Bytes::new()).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_client_of_http1_asks_in_absolute_form() {
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
    for smuggling in [
        "Host: twice.example\r\nContent-Length: 0\r\n\r\n",
        "Connection: content-length\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let answer = ask(target, smuggling).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{smuggling:?}: {answer}");
    }
}

#[tokio::test]
async fn a_tunnel_has_no_content() {
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
async fn a_doubtful_response_is_the_last_of_its_connection() {
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
        let once = origin(move |mut tcp| async move {
            read_head(&mut tcp).await;
            tcp.write_all(answer.as_bytes()).await.unwrap();
            let _ = tcp.read(&mut [0; 1]).await;
        })
        .await;
        for _ in 0..2 {
            let response = send(&gateway, format!("http://{once}/"), false, Bytes::new()).await;
            assert_eq!(response.status(), status, "{answer}");
            let said = response.headers().get("via").map(|said| said.to_str().unwrap());
            assert_eq!(said, via, "{answer}");
        }
    }
}

#[tokio::test]
async fn early_hints_say_by_whom_they_came() {
    let gateway = Gateway::start(spec());
    let hinting = origin(async |mut tcp| {
        read_head(&mut tcp).await;
        let answer = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
             HTTP/1.1 200 OK\r\nVia: 1.1 other\r\nContent-Length: 0\r\n\r\n";
        tcp.write_all(answer.as_bytes()).await.unwrap();
        let _ = tcp.read(&mut [0; 1]).await;
    })
    .await;
    let mut request = Request::get(uri(format!("http://{hinting}/")))
        .header("proxy-authorization", format!("Bearer {TOKEN}"))
        .body(Full::<Bytes>::default())
        .unwrap();
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    smig::on_informational(&mut request, move |_, headers| {
        told.send(headers.get("via").cloned()).unwrap();
    });
    let response = gateway.client.request_to(&gateway.origin, request).await.unwrap();
    let said: Vec<_> = response.headers().get_all("via").iter().collect();
    assert_eq!(said, ["1.1 other", "1.1 smig"]);
    assert_eq!(hears.recv().await.unwrap().unwrap(), "1.1 smig");
}

#[tokio::test]
async fn options_are_of_the_whole_origin_or_of_the_proxy() {
    let gateway = Gateway::start(spec());
    let target = origin(async |mut tcp| {
        let head = read_head(&mut tcp).await;
        let line = head.lines().next().unwrap();
        let left = head.lines().find_map(|line| line.strip_prefix("max-forwards: ")).unwrap();
        let answer =
            format!("HTTP/1.1 200 OK\r\nX-Got: {line}, {left}\r\nContent-Length: 0\r\n\r\n");
        tcp.write_all(answer.as_bytes()).await.unwrap();
        let _ = tcp.read(&mut [0; 1]).await;
    })
    .await;
    let mut parts = uri(format!("http://{target}/")).into_parts();
    parts.path_and_query = Some("*".parse().unwrap());
    let star = http::Uri::from_parts(parts).unwrap();
    for (hops, status, got) in [("5", 200, Some("OPTIONS * HTTP/1.1, 4")), ("0", 204, None)] {
        let request = Request::builder()
            .method(Method::OPTIONS)
            .uri(star.clone())
            .header("proxy-authorization", format!("Bearer {TOKEN}"))
            .header("max-forwards", hops)
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = gateway.client.request_to(&gateway.origin, request).await.unwrap();
        assert_eq!(response.status(), status, "{hops}");
        let said = response.headers().get("x-got").map(|said| said.to_str().unwrap());
        assert_eq!(said, got, "{hops}");
        assert_eq!(response.headers().contains_key("via"), got.is_some(), "{hops}");
    }
}
