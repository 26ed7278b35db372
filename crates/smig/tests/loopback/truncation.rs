//! Truncated HTTP/1.1 connections: a partial body must never appear complete.

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::rt::ReadBuf;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use smig::{BoxError, CleartextTrust, Client, Incoming, Server, ServerTls, Trust, UpgradedIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tower::service_fn;

use crate::support::{CertificatePem, bytes, certificate, get, loopback};

/// How the scripted peer closes its connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CloseMode {
    /// TCP is closed without a TLS close_notify, as when a process is killed.
    TcpOnly,
    /// TLS is closed; TCP stays open.
    CloseNotify,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    rustls::crypto::aws_lc_rs::default_provider().into()
}

/// Responds to one request with a body delimited by the end of the connection.
fn raw_server(test_certificate: &CertificatePem, mode: CloseMode) -> u16 {
    let chain = CertificateDer::pem_slice_iter(test_certificate.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(test_certificate.key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let listener = std::net::TcpListener::bind(loopback()).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (tcp, _) = listener.accept().unwrap();
        let tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = rustls::StreamOwned::new(tls, tcp);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        tls.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf").unwrap();
        close_by(&mut tls.conn, &mut tls.sock, mode);
    });
    port
}

/// Connects with TLS without ALPN, which selects HTTP/1.1.
fn raw_client(
    test_certificate: &CertificatePem,
    tcp: std::net::TcpStream,
) -> rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(test_certificate.certificate.as_bytes()).unwrap())
        .unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    rustls::StreamOwned::new(tls, tcp)
}

/// Closes a connection, then waits until the peer does.
fn close_by<S>(
    tls: &mut rustls::ConnectionCommon<S>,
    tcp: &mut std::net::TcpStream,
    mode: CloseMode,
) {
    match mode {
        CloseMode::TcpOnly => tcp.shutdown(std::net::Shutdown::Write).unwrap(),
        CloseMode::CloseNotify => {
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(tcp).unwrap();
            }
        }
    }
    // Unread data would turn the close into a reset, which is never a clean end.
    let _ = tcp.read_to_end(&mut Vec::new());
}

#[tokio::test]
async fn a_body_delimited_by_close_needs_a_close_notify() {
    for mode in [CloseMode::TcpOnly, CloseMode::CloseNotify] {
        let test_certificate = certificate();
        let port = raw_server(&test_certificate, mode);
        let trust = Trust::Pem(test_certificate.certificate.clone().into_bytes());
        let client = Client::builder().trust(trust).build().unwrap();
        let response = client.request(get(format!("https://localhost:{port}/"))).await.unwrap();
        let body = response.into_body().collect().await;
        match mode {
            CloseMode::TcpOnly => assert!(body.unwrap_err().is_transport()),
            CloseMode::CloseNotify => assert_eq!(body.unwrap().to_bytes(), "half"),
        }
    }
}

/// Switches protocols, and reports how reading from the connection ended.
async fn upgrade(
    mut request: Request<Incoming>,
    result_sender: mpsc::UnboundedSender<Result<usize, ErrorKind>>,
) -> Result<
    Response<StreamBody<futures_util::stream::Empty<Result<Frame<Bytes>, BoxError>>>>,
    Infallible,
> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let (mut io, first) = UpgradedIo::from_upgraded(upgraded.await.unwrap()).unwrap();
        let mut received_len = first.len();
        let end = loop {
            let mut space = [0; 64];
            let mut buffer = ReadBuf::new(&mut space);
            let read = std::future::poll_fn(|cx| {
                hyper::rt::Read::poll_read(std::pin::Pin::new(&mut io), cx, buffer.unfilled())
            });
            match read.await {
                Ok(()) if buffer.filled().is_empty() => break Ok(received_len),
                Ok(()) => received_len += buffer.filled().len(),
                Err(error) => break Err(error.kind()),
            }
        };
        result_sender.send(end).unwrap();
    });
    let mut response = Response::new(StreamBody::new(futures_util::stream::empty()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", "upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", "bytes".parse().unwrap());
    Ok(response)
}

#[tokio::test]
async fn a_tunnel_without_close_notify_is_truncated() {
    for mode in [CloseMode::TcpOnly, CloseMode::CloseNotify] {
        let test_certificate = certificate();
        let tls = ServerTls::from_pem(
            test_certificate.certificate.as_bytes(),
            test_certificate.key.as_bytes(),
        )
        .unwrap();
        let (sender, mut results) = mpsc::unbounded_channel();
        let server = Server::builder()
            .listen(loopback(), tls)
            .workers(NonZeroUsize::MIN)
            .start(service_fn(move |request| upgrade(request, sender.clone())))
            .unwrap();
        let addr = server.local_addrs()[0];
        let client = std::thread::spawn(move || {
            let mut tls =
                raw_client(&test_certificate, std::net::TcpStream::connect(addr).unwrap());
            let request =
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: bytes\r\n\r\n";
            tls.write_all(request.as_bytes()).unwrap();
            let mut head = [0; 12];
            tls.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"HTTP/1.1 101");
            tls.write_all(b"some").unwrap();
            close_by(&mut tls.conn, &mut tls.sock, mode);
        });
        let expected = match mode {
            CloseMode::TcpOnly => Err(ErrorKind::UnexpectedEof),
            CloseMode::CloseNotify => Ok(4),
        };
        assert_eq!(results.recv().await.unwrap(), expected, "{mode:?}");
        drop(server);
        client.join().unwrap();
    }
}

/// Chunks of a response's body; an error truncates it.
type Chunks = mpsc::UnboundedReceiver<Result<Bytes, BoxError>>;

/// A server whose response body the test sends, and an HTTP/1.0 client that has read its head: the body is
/// delimited by the end of the connection.
async fn start_download() -> (Server, TcpStream, mpsc::UnboundedSender<Result<Bytes, BoxError>>) {
    let (sender, chunks) = mpsc::unbounded_channel();
    let chunks = Arc::new(std::sync::Mutex::new(Some(chunks)));
    let handler = move |_: Request<Incoming>| {
        let chunks: Chunks = chunks.lock().unwrap().take().unwrap();
        let frames = futures_util::stream::unfold(chunks, async |mut pieces| {
            Some((pieces.recv().await?.map(Frame::data), pieces))
        });
        std::future::ready(Ok::<_, Infallible>(Response::new(StreamBody::new(frames.boxed()))))
    };
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(service_fn(handler))
        .unwrap();
    let mut tcp = TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    sender.send(Ok("half".into())).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\nhalf") {
        head.push(tcp.read_u8().await.unwrap());
    }
    (server, tcp, sender)
}

#[tokio::test]
async fn a_failed_body_delimited_by_close_resets_the_connection() {
    let (_server, mut tcp, sender) = start_download().await;
    sender.send(Err("broken".into())).unwrap();
    let error = tcp.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    let (_server, mut tcp, sender) = start_download().await;
    sender.send(Ok(" and half".into())).unwrap();
    drop(sender);
    let mut rest = String::new();
    tcp.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, " and half");
}

#[tokio::test]
async fn a_shutdown_resets_the_connection_of_a_partial_body_delimited_by_close() {
    let (server, mut tcp, _sender) = start_download().await;
    server.shutdown(Duration::ZERO).await.unwrap();
    let error = tcp.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Size of a response that is sent before its request is complete. It fits into the kernel's buffer.
const EARLY_RESPONSE_BYTES: usize = 600_000;

/// Reads in small parts, and continues its upload in between.
fn read_while_uploading(mut io: impl Read + Write) -> Vec<u8> {
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    io.write_all(request).unwrap();
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        // A reset shows where the response ends.
        let _ = io.write_all(&[b'x'; 100]);
        match io.read(&mut chunk) {
            Ok(read @ 1..) => received.extend_from_slice(&chunk[..read]),
            Ok(0) | Err(_) => return received,
        }
    }
}

#[test]
fn a_response_is_complete_although_the_client_continues_to_send() {
    for uses_tls in [false, true] {
        let test_certificate = certificate();
        let server = Server::builder().workers(NonZeroUsize::MIN);
        let server = if uses_tls {
            let server_tls = ServerTls::from_pem(
                test_certificate.certificate.as_bytes(),
                test_certificate.key.as_bytes(),
            );
            server.listen(loopback(), server_tls.unwrap())
        } else {
            server.listen_cleartext(loopback(), CleartextTrust::None)
        };
        let handler = |_: Request<Incoming>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(bytes(
                EARLY_RESPONSE_BYTES,
            )))))
        };
        let server = server.start(service_fn(handler)).unwrap();
        // A small receive buffer, so that most of the response waits at the server.
        let stream = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, stream, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.connect(&server.local_addrs()[0].into()).unwrap();
        let tcp = std::net::TcpStream::from(socket);
        let received = match uses_tls {
            false => read_while_uploading(tcp),
            true => read_while_uploading(raw_client(&test_certificate, tcp)),
        };
        let is_complete =
            received.ends_with(&bytes(EARLY_RESPONSE_BYTES)[EARLY_RESPONSE_BYTES - 100..]);
        assert!(
            is_complete,
            "TLS: {uses_tls}; {} bytes received of {EARLY_RESPONSE_BYTES} and a head",
            received.len()
        );
    }
}
