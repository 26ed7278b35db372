//! HTTP/1.1 client like a browser: a few connections, each with one request at a time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;

use super::body::Upload;

/// Connection pool of a client to one server.
#[derive(Debug)]
pub(super) struct Pool {
    server: SocketAddr,
    tls: TlsConnectorBox,
    idle: Arc<Mutex<Vec<Line>>>,
    places: Arc<Semaphore>,
}

/// An idle connection.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Upload>,
    local: SocketAddr,
}

/// A response whose body is being read. If it is dropped before its end, its connection is closed.
#[derive(Debug)]
pub(super) struct Reply {
    body: Incoming,
    line: Option<Line>,
    place: Option<OwnedSemaphorePermit>,
    idle: Arc<Mutex<Vec<Line>>>,
    local: SocketAddr,
}

struct TlsConnectorBox(TlsConnector);

impl std::fmt::Debug for TlsConnectorBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConnector")
    }
}

fn lock(idle: &Mutex<Vec<Line>>) -> std::sync::MutexGuard<'_, Vec<Line>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the TLS connector for HTTP/1.1 to servers with this certificate.
///
/// # Errors
/// The certificate is not PEM.
pub fn connector(certificate: &str) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
        roots.add(certificate.map_err(shown)?).map_err(shown)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(shown)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Pool {
    /// Creates a pool of at most `connections` to a server with this certificate.
    pub(super) fn new(
        server: SocketAddr,
        certificate: &str,
        connections: usize,
    ) -> Result<Self, String> {
        Ok(Self {
            server,
            tls: TlsConnectorBox(connector(certificate)?),
            idle: Arc::default(),
            places: Arc::new(Semaphore::new(connections)),
        })
    }

    async fn connect(&self) -> Result<Line, String> {
        let tcp = TcpStream::connect(self.server).await.map_err(shown)?;
        tcp.set_nodelay(true).map_err(shown)?;
        let local = tcp.local_addr().map_err(shown)?;
        let name = ServerName::IpAddress(self.server.ip().into());
        let tls = self.tls.0.connect(name, tcp).await.map_err(shown)?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await.map_err(shown)?;
        // Its errors are reported by the requests.
        tokio::spawn(connection);
        Ok(Line { sender, local })
    }

    /// Sends a request as soon as a connection is available.
    pub(super) async fn request(
        &self,
        request: Request<Upload>,
    ) -> Result<Response<Reply>, String> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(shown)?;
        let free = {
            let mut idle = lock(&self.idle);
            idle.retain(|line| !line.sender.is_closed());
            idle.pop()
        };
        let mut line = match free {
            Some(line) => line,
            None => self.connect().await?,
        };
        let response = line.sender.send_request(request).await.map_err(shown)?;
        let local = line.local;
        let idle = Arc::clone(&self.idle);
        Ok(response.map(|body| Reply { body, line: Some(line), place: Some(place), idle, local }))
    }
}

impl Reply {
    /// Returns the next bytes; at the end it returns the connection to the pool.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => return Some(Err(shown(error))),
                None => {
                    self.give_back();
                    return None;
                }
            }
        }
    }

    /// Returns the local address of the connection.
    pub(super) const fn local(&self) -> SocketAddr {
        self.local
    }

    fn give_back(&mut self) {
        let (Some(mut line), place) = (self.line.take(), self.place.take()) else { return };
        let idle = Arc::clone(&self.idle);
        tokio::spawn(async move {
            if line.sender.ready().await.is_ok() {
                lock(&idle).push(line);
            }
            drop(place);
        });
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}
