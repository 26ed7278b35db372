//! Gateways, clients and origins on loopback.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{
    BoxError, CleartextTrust, Client, Config, Incoming, MigrationConfig, MigrationMode, Origin,
    Server, ServerTls, Trust,
};
use smig_admin::{ReportedStats, StatsSource as _, TunnelReport};
use smig_gateway::forward_proxy::{ForwardProxy, ForwardProxySpec, SecretDigest};
use smig_proxy::tunnel::{self, ConnectResponse, Stream, TunnelRegistry};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const TOKEN: &str = "a-long-secret";

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A proxy with access to loopback.
pub(crate) fn spec() -> ForwardProxySpec {
    ForwardProxySpec { allow: vec!["127.0.0.0/8".parse().unwrap()], ..default_spec() }
}

/// A proxy with the default rules.
pub(crate) fn default_spec() -> ForwardProxySpec {
    ForwardProxySpec {
        users: [("ann".to_owned(), SecretDigest::of(TOKEN.as_bytes()))].into(),
        ..ForwardProxySpec::default()
    }
}

/// A forward proxy with TLS and a cleartext port, and a client that trusts it.
pub(crate) struct Gateway {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) origin: Origin,
    pub(crate) identity: Identity,
    pub(crate) tunnels: TunnelRegistry,
}

/// A certificate and its key, PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    key: String,
}

impl Gateway {
    pub(crate) fn start(spec: ForwardProxySpec) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        let identity = Identity { certificate, key };
        let tunnels = TunnelRegistry::of_gateway();
        let server = serve(spec, &tunnels, loopback(), &identity);
        let client = Client::builder()
            .trust(Trust::Pem(identity.certificate.clone().into()))
            .build()
            .unwrap();
        let origin = Origin::https("localhost", server.local_addrs()[0].port());
        Self { server, client, origin, identity, tunnels }
    }

    /// Requests a tunnel with the token.
    pub(crate) async fn open(&self, target: impl Display) -> ConnectResponse {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(target.to_string())
            .header("proxy-authorization", format!("Bearer {TOKEN}"))
            .body(())
            .unwrap();
        tunnel::open(&self.client, &self.origin, request).await.unwrap()
    }

    pub(crate) async fn tunnel(&self, target: impl Display) -> Stream {
        match self.open(target).await {
            ConnectResponse::Tunnel(_, stream) => stream,
            ConnectResponse::Refused(response) => panic!("refused: {response:?}"),
        }
    }

    pub(crate) async fn refused(&self, target: impl Display) -> Response<Incoming> {
        match self.open(target).await {
            ConnectResponse::Tunnel(..) => panic!("the tunnel was opened"),
            ConnectResponse::Refused(response) => response,
        }
    }
}

/// Starts the server of a gateway at an address.
pub(crate) fn serve(
    spec: ForwardProxySpec,
    tunnels: &TunnelRegistry,
    addr: SocketAddr,
    identity: &Identity,
) -> Server {
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(chain(&identity.certificate), private_key(&identity.key))
    .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let forward_proxy = ForwardProxy::new(spec, tunnels).unwrap();
    Server::builder()
        .workers(NonZeroUsize::MIN)
        .engine(Config { max_concurrent_streams: 1024, ..Config::server() })
        .migration(early_migration())
        .listen(addr, ServerTls::from_rustls(tls))
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(move |request: Request<Incoming>| {
            let forward = Arc::clone(&forward_proxy);
            async move { Ok::<_, Infallible>(forward.serve(request, None).await) }
        }))
        .unwrap()
}

/// Migrates streams after 100,000 bytes.
fn early_migration() -> MigrationConfig {
    let mut config = MigrationConfig::default();
    config.mode = MigrationMode::At(vec![100_000]);
    config
}

fn chain(pem: &str) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

fn private_key(pem: &str) -> rustls::pki_types::PrivateKeyDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A TCP server that handles each connection with `handle_connection`.
pub(crate) async fn origin<F>(
    handle_connection: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(handle_connection(tcp));
        }
    });
    addr
}

/// Sends back what it receives, until the peer sends FIN.
pub(crate) async fn echo(mut tcp: TcpStream) {
    let (mut read, mut write) = tcp.split();
    if tokio::io::copy(&mut read, &mut write).await.is_ok() {
        // The peer may have disconnected.
        let _ = write.shutdown().await;
    }
}

/// Waits until `is_expected` accepts the report on tunnels of one kind, and returns the report.
pub(crate) async fn wait_for_report(
    tunnels: &TunnelRegistry,
    kind: &str,
    is_expected: impl Fn(&TunnelReport) -> bool,
) -> TunnelReport {
    loop {
        let mut stats = ReportedStats::default();
        tunnels.report(&mut stats);
        let report = stats.tunnels.into_iter().find(|one| one.kind == kind).unwrap();
        if is_expected(&report) {
            return report;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns `len` bytes that differ by position.
pub(crate) fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<_>>().into()
}

/// Reads until a header section is complete.
pub(crate) async fn read_head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) fn proxy_status<B>(response: &Response<B>) -> &str {
    response.headers()["proxy-status"].to_str().unwrap()
}

pub(crate) fn uri(text: impl AsRef<str>) -> Uri {
    text.as_ref().parse().unwrap()
}

/// An origin that sends the request's body back, with the request's version in `x-version` and the body's length in a
/// trailer.
pub(crate) fn echo_server() -> Server {
    let handler = async |request: Request<Incoming>| {
        let version = format!("{:?}", request.version());
        let via = request.headers().get("via").cloned();
        assert!(!request.headers().contains_key("proxy-authorization"));
        let data = request.into_body().collect().await?.to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-length", data.len().into());
        let frames = [Ok::<_, BoxError>(Frame::data(data)), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(stream::iter(frames)));
        response.headers_mut().insert("x-version", HeaderValue::from_str(&version)?);
        if let Some(via) = via {
            response.headers_mut().insert("x-via", via);
        }
        Ok::<_, BoxError>(response)
    };
    Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap()
}
