//! Origins, gateways, clients.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use smig::{BoxError, CleartextTrust, Incoming, Server};
use smig_gateway::Gateway;
use smig_gateway::config::Config;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::service_fn;

/// An origin that responds with its name, the request's method and URI, and its fields; to `/bytes/N` with N bytes.
pub(crate) fn origin(name: &'static str) -> Server {
    let handler = move |request: Request<Incoming>| async move {
        if let Some(length) = request.uri().path().strip_prefix("/bytes/") {
            let body = Full::new(Bytes::from(vec![b'x'; length.parse()?]));
            return Ok::<_, BoxError>(Response::new(body));
        }
        let mut text = format!("{name}\n{} {}\n", request.method(), request.uri());
        for (field, value) in request.headers() {
            text.push_str(&format!("{field}: {}\n", value.to_str()?));
        }
        let mut response = Response::new(Full::new(Bytes::from(text)));
        response.headers_mut().insert("server", "origin".parse()?);
        Ok(response)
    };
    Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(service_fn(handler))
        .unwrap()
}

pub(crate) fn url(origin: &Server) -> String {
    format!("http://{}", origin.local_addrs()[0])
}

/// A directory with a gateway's files.
pub(crate) struct GatewayDir(TempDir);

impl GatewayDir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        // Atomically, as tools that renew certificates do.
        std::fs::write(self.path("new"), content).unwrap();
        std::fs::rename(self.path("new"), self.path(name)).unwrap();
        self.path(name)
    }

    /// Writes a certificate for these names, signed by `ca`.
    pub(crate) fn write_certificate(&self, ca: &TestCa, file: &str, names: &[&str]) {
        let (chain, key) = ca.sign(names, None);
        self.write(&format!("{file}.key"), &key);
        self.write(&format!("{file}.pem"), &chain);
    }

    /// Loads a configuration, with one worker and a long handshake timeout.
    pub(crate) fn load_config(&self, text: &str) -> Config {
        let text = format!("{text}\n[server]\nworkers = 1\nhandshake_timeout = '1h'\n");
        Config::load(&self.write("gateway.toml", &text)).unwrap_or_else(|faults| panic!("{faults}"))
    }

    pub(crate) fn start_gateway(&self, text: &str) -> Gateway {
        Gateway::start(self.load_config(text)).unwrap_or_else(|error| panic!("{error}"))
    }
}

pub(crate) fn address(gateway: &Gateway) -> SocketAddr {
    gateway.listeners().next().unwrap().0
}

/// A certificate authority.
pub(crate) struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl TestCa {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority for tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a certificate chain and its key.
    pub(crate) fn sign(&self, names: &[&str], common_name: Option<&str>) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        (chain, key.serialize_pem())
    }
}

/// The TLS settings of a client.
pub(crate) struct TlsDialer<'a> {
    pub(crate) ca: &'a TestCa,
    pub(crate) alpn: &'static str,
    pub(crate) identity: Option<(String, String)>,
}

impl<'a> TlsDialer<'a> {
    pub(crate) const fn new(ca: &'a TestCa, alpn: &'static str) -> Self {
        Self { ca, alpn, identity: None }
    }

    pub(crate) async fn connect(
        &self,
        addr: SocketAddr,
        name: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca.pem.as_bytes()).unwrap()).unwrap();
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        config.alpn_protocols = vec![self.alpn.as_bytes().to_vec()];
        let tcp = TcpStream::connect(addr).await?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }
}

/// Returns the certificate that a server presents for a name.
pub(crate) async fn served_certificate(
    dialer: &TlsDialer<'_>,
    addr: SocketAddr,
    name: &str,
) -> Option<Vec<u8>> {
    let stream = dialer.connect(addr, name).await.ok()?;
    let (_, tls) = stream.get_ref();
    tls.peer_certificates()?.first().map(|certificate| certificate.to_vec())
}

/// Sends an HTTP/1.1 request with its line ends converted, and reads to the end of the connection.
pub(crate) async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, text: &str) -> String {
    try_exchange(stream, text).await.unwrap()
}

/// As [`exchange`], over a connection that may have been reset before the request.
pub(crate) async fn try_exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    text: &str,
) -> io::Result<String> {
    stream.write_all(text.replace('\n', "\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    // Whether TLS was closed properly is irrelevant.
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Sends a GET over cleartext; `fields` follow Host.
pub(crate) async fn get(addr: SocketAddr, host: &str, path: &str, fields: &str) -> String {
    send_request("GET", addr, host, path, fields).await
}

pub(crate) async fn send_request(
    method: &str,
    addr: SocketAddr,
    host: &str,
    path: &str,
    fields: &str,
) -> String {
    let stream = TcpStream::connect(addr).await.unwrap();
    let text = format!("{method} {path} HTTP/1.1\nHost: {host}\nConnection: close\n{fields}\n");
    exchange(stream, &text).await
}

#[track_caller]
pub(crate) fn assert_status(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
}

/// Sends requests over HTTP/2 on one connection, each for its own authority.
pub(crate) async fn get_over_http2(
    stream: TlsStream<TcpStream>,
    urls: &[String],
) -> Vec<(u16, String)> {
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut answers = Vec::new();
    for url in urls {
        let request = Request::get(url).body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        answers.push((status, String::from_utf8_lossy(&body).into_owned()));
    }
    drop(sender);
    let _ = driver.await;
    answers
}

/// Waits for an event of this name.
pub(crate) async fn within<T>(event: &str, future: impl Future<Output = T>) -> T {
    // Longer than any test takes.
    let test_timeout = Duration::from_secs(60);
    tokio::time::timeout(test_timeout, future)
        .await
        .unwrap_or_else(|_| panic!("timed out: {event}"))
}

/// Polls a file until its content is as expected; returns it.
pub(crate) async fn wait_for_file(path: &Path, is_expected: impl Fn(&str) -> bool) -> String {
    let polling = async {
        loop {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if is_expected(&text) {
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    within(&format!("the content of {}", path.display()), polling).await
}
