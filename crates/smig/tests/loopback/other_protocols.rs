//! HTTP/1.1 on both sides, and cleartext.

use std::num::NonZeroUsize;

use crate::support::{answer, bytes, certificate, digest, get, loopback, sha256, url, within};
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use smig::{Cleartext, CleartextTrust, Client, Server, ServerTls, Trust};
use tower::service_fn;

/// A server without HTTP/2, and a client that trusts it.
fn http1_pair() -> (Server, Client) {
    let test_certificate = certificate();
    let chain =
        rustls::pki_types::pem::PemObject::pem_slice_iter(test_certificate.certificate.as_bytes());
    let chain: Vec<rustls::pki_types::CertificateDer<'static>> =
        chain.collect::<Result<_, _>>().unwrap();
    let key =
        rustls::pki_types::pem::PemObject::from_pem_slice(test_certificate.key.as_bytes()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = Server::builder()
        .listen(loopback(), ServerTls::from_rustls(config))
        .workers(NonZeroUsize::MIN)
        .start(service_fn(answer))
        .unwrap();
    let client = Client::builder().trust(Trust::Pem(test_certificate.certificate.into_bytes()));
    (server, client.build().unwrap())
}

#[tokio::test]
async fn a_server_without_http2_is_reached_over_http1() {
    const LEN: usize = 3 << 20;
    let (server, client) = http1_pair();
    let response = client.request(get(url(&server, "/"))).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");

    let upload = Request::post(url(&server, "/digest")).body(Full::new(bytes(LEN))).unwrap();
    let response = client.request(upload).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, &sha256(&bytes(LEN))[..]);

    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (client.clone(), url(&server, &format!("/bytes/{LEN}")));
        tasks.spawn(async move {
            let response = client.request(get(url)).await.unwrap();
            assert_eq!(digest(response.into_body()).await.unwrap().1, LEN as u64);
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn cleartext_serves_http1_and_http2() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(service_fn(answer))
        .unwrap();
    let url = format!("http://{}/", server.local_addrs()[0]);
    for (cleartext, version) in [
        (Cleartext::Http1, Version::HTTP_11),
        (Cleartext::PriorKnowledge(CleartextTrust::None), Version::HTTP_2),
    ] {
        let client = Client::builder().cleartext(cleartext).build().unwrap();
        let response = client.request(get(&url)).await.unwrap();
        assert_eq!(response.version(), version);
        let body: Bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "hello");
    }
}

#[tokio::test]
async fn a_silent_client_is_closed_after_the_handshake_timeout() {
    use tokio::io::AsyncReadExt as _;
    let (server, _) = crate::support::pair();
    let limit = std::time::Duration::from_millis(20);
    let (observer, mut events) = crate::support::EventRecorder::new();
    let server =
        server.handshake_timeout(limit).observer(observer).start(service_fn(answer)).unwrap();
    let mut silent = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    crate::support::wait_for_event(&mut events, |event| {
        matches!(event, smig::ObserverEvent::HandshakeFailed)
    })
    .await;
}

#[tokio::test]
async fn http1_heads_have_the_limit_of_http2_heads() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(service_fn(answer))
        .unwrap();
    for (len, status) in [(60 << 10, "HTTP/1.1 200 "), (70 << 10, "HTTP/1.1 431 ")] {
        let mut tcp = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
        // The server reads no more than the limit of an oversized head. So the head sent here stops before
        // its end: unread data would turn the close into a reset, which could overtake the response.
        let end = if len > 64 << 10 { "" } else { "\r\n\r\n" };
        let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: ";
        let fill = "a".repeat(len.min(64 << 10) - head.len() - end.len());
        tcp.write_all(format!("{head}{fill}{end}").as_bytes()).await.unwrap();
        let mut response = String::new();
        tcp.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(status), "{len}: {response}");
    }
}

#[tokio::test]
async fn empty_lines_before_the_first_request_are_skipped() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(service_fn(answer))
        .unwrap();
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    for (count, request, status) in
        [(1, request, "HTTP/1.1 200 "), (8, request, "HTTP/1.1 200 "), (9, "", "HTTP/1.1 400 ")]
    {
        let mut tcp = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
        let lines = "\r\n".repeat(count);
        tcp.write_all(format!("{lines}{request}").as_bytes()).await.unwrap();
        let mut response = String::new();
        let read = within("an answer", tcp.read_to_string(&mut response)).await;
        assert!(read.is_ok() && response.starts_with(status), "{count}: {read:?} {response}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    // The limit for all clients, and that for one address.
    for per_client in [false, true] {
        let (server, client) = crate::support::pair();
        let server = if per_client {
            server.max_connections_per_client(1)
        } else {
            server.max_connections(1)
        };
        let server = server.start(service_fn(answer)).unwrap();
        let client = client.spares(0).build().unwrap();
        let response = client.request(get(url(&server, "/"))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        let addr = server.local_addrs()[0];
        let mut second = tokio::net::TcpStream::connect(addr).await.unwrap();
        assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(server.stats().limits_hit, 1);
        let response = client.request(get(url(&server, "/"))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        if per_client {
            // Another address of the same host is another client.
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let mut other_client = socket.connect(addr).await.unwrap();
            other_client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            let read = other_client.read(&mut [0; 1]).await;
            assert!(read.is_ok(), "{read:?}");
            assert_eq!(server.stats().limits_hit, 1);
        }
    }
}

#[tokio::test]
async fn a_connection_in_the_backlog_at_shutdown_is_served() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for _ in 0..20 {
        let server = Server::builder()
            .listen_cleartext(loopback(), CleartextTrust::None)
            .workers(NonZeroUsize::MIN)
            .start(service_fn(answer))
            .unwrap();
        let mut late_client =
            tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
        let shutdown_task = tokio::spawn(server.shutdown(std::time::Duration::from_secs(3600)));
        tokio::task::yield_now().await;
        late_client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut response = String::new();
        late_client.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("hello"), "{response}");
        shutdown_task.await.unwrap().unwrap();
    }
}

/// Over HTTP/1.1 only the head separates the content from the next request.
#[tokio::test]
async fn http1_content_must_match_its_head() {
    let (server, client) = http1_pair();
    let url = |path| url(&server, path);
    for (fields, why) in [
        (&["50"][..], "content-length without content"),
        (&["0", "0"], "more than one content-length"),
    ] {
        let mut request = get(url("/"));
        for field in fields {
            request.headers_mut().append("content-length", field.parse().unwrap());
        }
        let error = client.request(request).await.unwrap_err();
        assert!(error.is_user() && error.to_string().contains(why), "{error}");
    }
    let frame = http_body::Frame::data(bytes(3));
    let unsized_body = http_body_util::StreamBody::new(futures_util::stream::iter([Ok::<
        _,
        smig::BoxError,
    >(frame)]));
    let request = Request::get(url("/digest")).body(unsized_body).unwrap();
    let response = client.request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, &sha256(&bytes(3))[..]);
}
