//! Header sections: what is removed, what is forwarded, what is rejected.

use std::num::NonZeroUsize;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Full;
use smig::{CleartextTrust, Incoming, Server};

use crate::support::{Gateway, Origin, client, fixed_response_origin, get, loopback, text};

#[tokio::test]
async fn hop_by_hop_fields_are_removed() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client_side = gateway.send_and_read_to_end(
        "GET /a?b HTTP/1.1\r\nHost: example.org\r\nConnection: close, X-Mine, TE\r\nX-Mine: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nTE: gzip, trailers\r\n\
         X-Other: 2\r\n\r\n",
    );
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert!(
            received_request.head.starts_with("GET /a?b HTTP/1.1\r\n"),
            "{}",
            received_request.head
        );
        for field in ["host: example.org", "te: trailers", "connection: te", "x-other: 2"] {
            assert!(received_request.has_field(field), "{field}: {}", received_request.head);
        }
        let lower = received_request.head.to_ascii_lowercase();
        for name in ["x-mine", "keep-alive", "proxy-connection", "upgrade", "close"] {
            assert!(!lower.contains(name), "{name}: {}", received_request.head);
        }
        received_request.respond(
            "HTTP/1.1 200 Fine\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
             Upgrade: h2c\r\nContent-Length: 2\r\nX-Kept: 3\r\n\r\nok",
        )
        .await;
    };
    let (response, ()) = tokio::join!(client_side, server_side);
    let lower = response.to_ascii_lowercase();
    assert!(lower.starts_with("http/1.1 200 ") && lower.ends_with("ok"), "{response}");
    assert!(lower.contains("x-kept: 3") && lower.contains("content-length: 2"), "{response}");
    for name in ["x-hop", "keep-alive", "upgrade"] {
        assert!(!lower.contains(name), "{name}: {response}");
    }
}

/// RFC 9110 section 11.7: these fields concern only a client and its proxy.
#[tokio::test]
async fn proxy_authentication_fields_are_removed() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    for protocol in ["HTTP/1.1", "HTTP/2"] {
        let client_side = async {
            if protocol == "HTTP/1.1" {
                return gateway
                    .send_and_read_to_end(
                        "GET / HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic eDp5\r\n\
                         Authorization: Basic YTpi\r\nConnection: close\r\n\r\n",
                    )
                    .await
                    .to_ascii_lowercase();
            }
            let mut request = get(gateway.url("/"));
            let headers = request.headers_mut();
            headers.insert("proxy-authorization", "Basic eDp5".parse().unwrap());
            headers.insert("authorization", "Basic YTpi".parse().unwrap());
            let response = client().request(request).await.unwrap();
            let names = response.headers().keys().map(|name| format!("{name}: \r\n"));
            names.collect::<String>() + &text(response.into_body()).await
        };
        let server_side = async {
            let mut received_request = origin.accept_request().await;
            assert!(
                received_request.has_field("authorization: Basic YTpi"),
                "{protocol}: {}",
                received_request.head
            );
            assert!(
                !received_request.head.to_ascii_lowercase().contains("proxy-"),
                "{protocol}: {}",
                received_request.head
            );
            received_request
                .respond(
                    "HTTP/1.1 401 No\r\nProxy-Authenticate: Basic realm=a\r\nContent-Length: 2\r\n\
                 Proxy-Authentication-Info: x\r\nWWW-Authenticate: Basic realm=a\r\n\r\nok",
                )
                .await;
        };
        let (response, ()) = tokio::join!(client_side, server_side);
        assert!(
            response.ends_with("ok") && response.contains("www-authenticate: "),
            "{protocol}: {response}"
        );
        assert!(!response.contains("proxy-auth"), "{protocol}: {response}");
    }
}

#[tokio::test]
async fn proxy_authentication_fields_are_removed_for_http2_servers() {
    let handler = async |request: Request<Incoming>| {
        let has_credentials = request.headers().contains_key("proxy-authorization");
        let response = Response::builder()
            .header("proxy-authenticate", "Basic realm=a")
            .header("proxy-authentication-info", "x")
            .header("x-seen", has_credentials.to_string());
        response.body(Full::<Bytes>::from("ok"))
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let mut request = get(gateway.url("/"));
    request.headers_mut().insert("proxy-authorization", "Basic eDp5".parse().unwrap());
    let response = client().request(request).await.unwrap();
    assert_eq!(response.headers()["x-seen"], "false");
    for name in ["proxy-authenticate", "proxy-authentication-info"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    assert_eq!(text(response.into_body()).await, "ok");
}

#[tokio::test]
async fn http2_becomes_http1_and_back() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let request = Request::post(gateway.url("/p?q=1"))
        .header("te", "trailers")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::<Bytes>::from("body"))
        .unwrap();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert!(
            received_request.head.starts_with("POST /p?q=1 HTTP/1.1\r\n"),
            "{}",
            received_request.head
        );
        let host = format!("host: {}", gateway.addr());
        for field in
            [&*host, "te: trailers", "connection: te", "cookie: a=1; b=2", "content-length: 4"]
        {
            assert!(received_request.has_field(field), "{field}: {}", received_request.head);
        }
        assert_eq!(received_request.read_until("body").await, "body");
        received_request
            .respond("HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            .await;
    };
    let (response, ()) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (201, Version::HTTP_2));
    assert!(!response.headers().contains_key("transfer-encoding"));
    assert_eq!(text(response.into_body()).await, "ok");
}

/// RFC 9110 section 7.6.3.
#[tokio::test]
async fn a_gateway_forwards_via_and_adds_none() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    for (version, via_line, expected) in [
        ("1.1", "", &[][..]),
        ("1.0", "", &[]),
        ("1.1", "Via: 1.0 other, 2 more\r\n", &["via: 1.0 other, 2 more"]),
    ] {
        let client_side = gateway.send_and_read_to_end(format!(
            "GET / HTTP/{version}\r\nHost: a\r\n{via_line}Connection: close\r\n\r\n"
        ));
        let server_side = async {
            let mut received_request = origin.accept_request().await;
            let via: Vec<_> =
                received_request.head.lines().filter(|line| line.starts_with("via:")).collect();
            assert_eq!(via, expected, "{version} {via_line}");
            received_request
                .respond("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .await;
        };
        let (response, ()) = tokio::join!(client_side, server_side);
        assert!(response.contains(" 200 ") && !response.contains("via:"), "{response}");
    }
}

/// RFC 9110 section 7.6.2.
#[tokio::test]
async fn max_forwards_is_respected() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let send = |method: &str, hops: &str| {
        gateway.send_and_read_to_end(format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nMax-Forwards: {hops}\r\nConnection: close\r\n\r\n"
        ))
    };
    for (method, hops, status) in [
        ("OPTIONS", "0", "204"),
        ("TRACE", "0", "405"),
        ("OPTIONS", "-1", "400"),
        ("TRACE", "1\r\nMax-Forwards: 1", "400"),
        ("OPTIONS", "1\r\nConnection: max-forwards", "400"),
    ] {
        let response = send(method, hops).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method} {hops}: {response}"
        );
        assert_eq!(response.contains("allow: OPTIONS"), status == "405", "{response}");
    }
    assert!(origin.has_no_pending_connection());
    for (method, hops, remaining_hops) in
        [("OPTIONS", "1", "0"), ("TRACE", "7", "6"), ("GET", "0", "0")]
    {
        let server_side = async {
            let mut received_request = origin.accept_request().await;
            assert!(
                received_request.has_field(&format!("max-forwards: {remaining_hops}")),
                "{method}: {}",
                received_request.head
            );
            received_request
                .respond("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .await;
        };
        let (response, ()) = tokio::join!(send(method, hops), server_side);
        assert!(response.starts_with("HTTP/1.1 200 "), "{method}: {response}");
    }
}

/// Requests that a server might frame or route in another way than the gateway, each with its description.
fn ambiguous_requests() -> Vec<(&'static str, String)> {
    let post_with = |fields: &str| format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n");
    vec![
        ("two hosts", post_with("Host: a\r\nHost: b\r\nContent-Length: 0")),
        ("no host", post_with("Content-Length: 0")),
        ("userinfo", post_with("Host: u@a\r\nContent-Length: 0")),
        ("host is a path", post_with("Host: a/b\r\nContent-Length: 0")),
        ("a port of letters", post_with("Host: a:http\r\nContent-Length: 0")),
        ("a port of letters in the target", "GET http://a:http/ HTTP/1.0\r\n\r\n".to_owned()),
        ("another host", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("gzip, chunked", post_with("Host: a\r\nTransfer-Encoding: gzip, chunked")),
        ("chunked, gzip", post_with("Host: a\r\nTransfer-Encoding: chunked, gzip")),
        (
            "chunked twice",
            post_with("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        ),
        ("vertical tab", post_with("Host: a\r\nTransfer-Encoding: \x0bchunked")),
        ("identity", post_with("Host: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5")),
        ("sign", post_with("Host: a\r\nContent-Length: +5")),
        ("hexadecimal", post_with("Host: a\r\nContent-Length: 0x5")),
        ("empty", post_with("Host: a\r\nContent-Length:")),
        ("list", post_with("Host: a\r\nContent-Length: 5, 5")),
        ("two lengths", post_with("Host: a\r\nContent-Length: 5\r\nContent-Length: 6")),
        ("equal lengths", post_with("Host: a\r\nContent-Length: 5\r\nContent-Length: 5")),
        ("both", post_with("Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked")),
        (
            "both, the other way",
            post_with("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"),
        ),
        ("xchunked", post_with("Host: a\r\nTransfer-Encoding: xchunked")),
        (
            "Transfer_Encoding",
            post_with("Host: a\r\nContent-Length: 0\r\nTransfer_Encoding: chunked"),
        ),
        (
            "X_Forwarded_For",
            post_with("Host: a\r\nContent-Length: 0\r\nX_Forwarded_For: 192.0.2.1"),
        ),
        ("LF alone", post_with("Host: a\nContent-Length: 5")),
        ("a fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("2^63", post_with("Host: a\r\nContent-Length: 9223372036854775808")),
        ("too long", post_with("Host: a\r\nContent-Length: 99999999999999999999")),
        ("folded", post_with("Host: a\r\nX: 1\r\n 2")),
        ("space before colon", post_with("Host: a\r\nContent-Length : 5")),
        ("NUL", post_with("Host: a\r\nX: 1\u{0}2")),
        ("bare CR", post_with("Host: a\r\nX: 1\r2")),
        ("bad name", post_with("Host: a\r\nX(): 1")),
        ("no name", post_with("Host: a\r\n: 1")),
        (
            "HTTP/1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ),
        ("no path", "GET a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("CONNECT to a path", "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("star", "GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (
            "names Authorization",
            post_with("Host: a\r\nConnection: close, authorization\r\nContent-Length: 0"),
        ),
        (
            "Connection names X-Forwarded-For",
            post_with("Host: a\r\nConnection: X-Forwarded-For\r\nContent-Length: 0"),
        ),
    ]
}

#[tokio::test]
async fn ambiguous_requests_are_refused_before_an_origin_sees_them() {
    let mut origin = Origin::start().await;
    let dir = tempfile::tempdir().unwrap();
    let unix = dir.path().join("app.sock");
    let unix_origin = std::os::unix::net::UnixListener::bind(&unix).unwrap();
    unix_origin.set_nonblocking(true).unwrap();
    let kinds = ["http", "h2c", "https", "smig"].map(|kind| format!("{kind}://{}", origin.addr));
    for server in kinds.into_iter().chain([format!("unix:{}", unix.display())]) {
        let gateway = Gateway::in_front_of(&server);
        for (case, bytes) in &ambiguous_requests() {
            let mut tcp = gateway.connect(bytes).await;
            let mut line = [0; 12];
            tokio::io::AsyncReadExt::read_exact(&mut tcp, &mut line)
                .await
                .unwrap_or_else(|e| panic!("{server}, {case}: {e}"));
            let line = String::from_utf8_lossy(&line);
            assert!(line.ends_with("400") || line.ends_with("501"), "{server}, {case}: {line}");
        }
    }
    assert!(origin.has_no_pending_connection());
    assert_eq!(unix_origin.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn ambiguous_responses_are_refused() {
    for (case, bytes) in [
        (
            "both",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
        ("same lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"),
        ("no number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok"),
        ("folded", "HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok"),
        ("bare CR", "HTTP/1.1 200 OK\r\nX: 1\r2\r\nContent-Length: 2\r\n\r\nok"),
        ("bad name", "HTTP/1.1 200 OK\r\nX(): 1\r\nContent-Length: 2\r\n\r\nok"),
        (
            "101 without an upgrade request",
            "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
        ("Set-Cookie", "HTTP/1.1 200 OK\r\nConnection: set-cookie\r\nContent-Length: 2\r\n\r\nok"),
        ("not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ] {
        let (addr, _) = fixed_response_origin(bytes).await;
        let gateway = Gateway::in_front_of(format!("http://{addr}"));
        let response = client().request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 502, "{case}");
        assert_eq!(response.headers()["proxy-status"], "smig; error=http_protocol_error", "{case}");
    }
}

#[tokio::test]
async fn an_endless_header_section_is_rejected() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 200 OK\r\n").await;
        let field = format!("x: {}\r\n", "y".repeat(1000));
        while tokio::io::AsyncWriteExt::write_all(&mut received_request.tcp, field.as_bytes())
            .await
            .is_ok()
        {}
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let (response, ()) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=http_response_header_section_size");
}

#[tokio::test]
async fn bodiless_responses_keep_their_length_and_the_connection() {
    for (method, bytes, length) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Some("5")),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Some("5")),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", None),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 00\r\n\r\n", Some("0")),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 005\r\n\r\n", Some("5")),
    ] {
        let (addr, connections) = fixed_response_origin(bytes).await;
        let gateway = Gateway::in_front_of(format!("http://{addr}"));
        let client = client();
        for _ in 0..3 {
            let request = Request::builder().method(method).uri(gateway.url("/"));
            let request = request.body(Full::<Bytes>::default()).unwrap();
            let response = client.request(request).await.unwrap();
            let found = response.headers().get("content-length").map(|l| l.to_str().unwrap());
            assert_eq!(found, length, "{bytes}");
            assert_eq!(text(response.into_body()).await, "");
        }
        assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}
