//! Each kind of server: the same exchange over HTTP/1.1, HTTP/2, TLS, Unix sockets and SMig.

use std::convert::Infallible;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use smig::{
    BoxError, CleartextTrust, ConnectionInfo, Incoming, InformationalSender, Server, ServerTls,
};
use smig_gateway::upstream::UpstreamSpec;

use crate::support::{Gateway, client, get, loopback, spec, text};

/// Responds with the request's body, and with parts of its header section as fields.
#[derive(Clone)]
pub(crate) struct Echo;

impl tower_service::Service<Request<Incoming>> for Echo {
    type Response = Response<BoxBody<Bytes, BoxError>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() == "/early"
                && let Some(informational) = request.extensions().get::<InformationalSender>()
            {
                let headers = [("link".parse().unwrap(), "</a>".parse().unwrap())];
                informational.send(http::StatusCode::EARLY_HINTS, headers.into_iter().collect());
            }
            let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
            let host =
                host.or_else(|| Some(request.headers().get("host")?.to_str().unwrap().to_owned()));
            let is_tls = request.extensions().get::<Arc<ConnectionInfo>>().unwrap().tls().is_some();
            let response = Response::builder()
                .header("x-version", format!("{:?}", request.version()))
                .header("x-host", host.unwrap())
                .header("x-scheme", request.uri().scheme_str().unwrap_or("none"))
                .header("x-tls", is_tls.to_string())
                .header("x-path", request.uri().path())
                .body(request.into_body().map_err(BoxError::from).boxed())
                .unwrap();
            Ok(response)
        })
    }
}

/// Returns settings of a TLS server that offers these protocols, and its certificate.
pub(crate) fn tls_config(alpn: &[&str]) -> (rustls::ServerConfig, String) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let (pem, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let chain = rustls::pki_types::pem::PemObject::pem_slice_iter(pem.as_bytes());
    let chain: Vec<rustls::pki_types::CertificateDer<'static>> =
        chain.collect::<Result<_, _>>().unwrap();
    let key = rustls::pki_types::pem::PemObject::from_pem_slice(key.as_bytes()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    (config, pem)
}

/// Starts a TLS server that offers these protocols; returns it with its certificate.
fn tls_server(alpn: &[&str]) -> (Server, String) {
    let (config, pem) = tls_config(alpn);
    let server = Server::builder()
        .listen(loopback(), ServerTls::from_rustls(config))
        .workers(NonZeroUsize::MIN)
        .start(Echo)
        .unwrap();
    (server, pem)
}

fn trusting_spec(url: &str, pem: &str) -> (UpstreamSpec, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let mut spec = spec(&[url]);
    spec.tls.ca = Some(file.path().to_owned());
    (spec, file)
}

/// Sends small and big requests, with and without a body; returns the HTTP version that the server received.
async fn exercise(gateway: &Gateway, scheme: &str) -> String {
    let client = client();
    let response = client.request(get(gateway.url("/a?b"))).await.unwrap();
    assert_eq!(response.status(), 200, "{:?}", response.headers());
    let headers = response.headers().clone();
    assert_eq!(headers["x-host"], gateway.addr().to_string());
    assert_eq!(headers["x-path"], "/a");
    assert_eq!(headers["x-scheme"], scheme);
    assert_eq!(text(response.into_body()).await, "");
    let big_body = Bytes::from(vec![b'x'; 3 << 20]);
    for _ in 0..3 {
        let request = Request::post(gateway.url("/")).body(Full::new(big_body.clone())).unwrap();
        let response = client.request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body == big_body, "{} bytes", body.len());
    }
    // HTTP/1.1 on the client's side.
    let answer = gateway
        .send_and_read_to_end("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hi"), "{answer}");
    assert_eq!(gateway.upstream.load(), 0);
    headers["x-version"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn requests_are_forwarded_over_http1_and_h2c() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(Echo)
        .unwrap();
    let addr = server.local_addrs()[0];
    let gateway = Gateway::in_front_of(format!("http://{addr}"));
    assert_eq!(exercise(&gateway, "none").await, "HTTP/1.1");
    let status = gateway.upstream.servers()[0].status();
    assert_eq!((status.connection_attempts, status.open_connections), (1, 1));
    let gateway = Gateway::in_front_of(format!("h2c://{addr}"));
    assert_eq!(exercise(&gateway, "http").await, "HTTP/2.0");
    assert_eq!(gateway.upstream.servers()[0].status().open_connections, 1);
}

#[tokio::test]
async fn alpn_selects_the_http_version() {
    for (alpn, version, scheme) in
        [(&["h2", "http/1.1"][..], "HTTP/2.0", "https"), (&["http/1.1"], "HTTP/1.1", "none")]
    {
        let (server, pem) = tls_server(alpn);
        let url = format!("https://localhost:{}", server.local_addrs()[0].port());
        let (spec, _file) = trusting_spec(&url, &pem);
        let gateway = Gateway::start(&spec);
        assert_eq!(exercise(&gateway, scheme).await, version);
    }
}

#[tokio::test]
async fn requests_are_forwarded_over_smig() {
    let (server, pem) = tls_server(&["h2"]);
    let url = format!("smig://localhost:{}", server.local_addrs()[0].port());
    let (spec, _file) = trusting_spec(&url, &pem);
    let gateway = Gateway::start(&spec);
    assert_eq!(exercise(&gateway, "https").await, "HTTP/2.0");
    assert_eq!(server.stats().sessions_established, 1);
}

#[tokio::test]
async fn an_untrusted_certificate_is_a_tls_error() {
    let (server, _) = tls_server(&["h2"]);
    let (_, other_pem) = tls_server(&["h2"]);
    let port = server.local_addrs()[0].port();
    for scheme in ["https", "smig"] {
        let (mut spec, _file) = trusting_spec(&format!("{scheme}://localhost:{port}"), &other_pem);
        spec.retries = 0;
        let gateway = Gateway::start(&spec);
        let response = client().request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 502);
        let why = response.headers()["proxy-status"].to_str().unwrap();
        assert!(why.starts_with("smig; error=tls_"), "{scheme}: {why}");
    }
}

#[tokio::test]
async fn requests_are_forwarded_over_unix_sockets() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut unix, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        loop {
            while !bytes.ends_with(b"\r\n\r\n") {
                if unix.read_buf(&mut bytes).await.unwrap() == 0 {
                    return;
                }
            }
            bytes.clear();
            unix.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nunix").await.unwrap();
        }
    });
    let gateway = Gateway::in_front_of(format!("unix:{}", path.display()));
    let client = client();
    for _ in 0..3 {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "unix");
    }
}

#[tokio::test]
async fn early_hints_are_forwarded_over_http2() {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(Echo)
        .unwrap();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let (hint_tx, mut hint_rx) = tokio::sync::mpsc::unbounded_channel();
    let mut request = get(gateway.url("/early"));
    smig::on_informational(&mut request, move |status, headers| {
        hint_tx.send((status.as_u16(), headers["link"].clone())).unwrap();
    });
    let response = client().request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(hint_rx.try_recv().unwrap(), (103, "</a>".parse().unwrap()));
}
