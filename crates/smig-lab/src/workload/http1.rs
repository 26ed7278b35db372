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
use super::client::SendTimes;
use super::run::now_ns;

/// Connection pool of a client to one server.
#[derive(Debug)]
pub(super) struct Http1Pool {
    /// Number in the run.
    number: u32,
    server: SocketAddr,
    tls: DebugTlsConnector,
    idle_connections: Arc<Mutex<Vec<PooledConnection>>>,
    permits: Arc<Semaphore>,
}

/// A connection of the pool.
#[derive(Debug)]
struct PooledConnection {
    sender: SendRequest<Upload>,
    local_addr: SocketAddr,
}

/// A response whose body is being read. Dropping it before the end closes the connection.
#[derive(Debug)]
pub(super) struct Http1Response {
    pool: u32,
    body: Incoming,
    connection: Option<PooledConnection>,
    permit: Option<OwnedSemaphorePermit>,
    idle_connections: Arc<Mutex<Vec<PooledConnection>>>,
    local_addr: SocketAddr,
}

struct DebugTlsConnector(TlsConnector);

impl std::fmt::Debug for DebugTlsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConnector")
    }
}

fn lock(idle: &Mutex<Vec<PooledConnection>>) -> std::sync::MutexGuard<'_, Vec<PooledConnection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the TLS connector for HTTP/1.1 to servers with this certificate.
///
/// # Errors
/// The certificate is not PEM.
pub fn build_connector(certificate: &str) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
        roots.add(certificate.map_err(to_text)?).map_err(to_text)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(to_text)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Http1Pool {
    /// Creates a pool of at most `connections` to a server with this certificate.
    pub(super) fn new(
        server: SocketAddr,
        certificate: &str,
        connections: usize,
        number: u32,
    ) -> Result<Self, String> {
        Ok(Self {
            number,
            server,
            tls: DebugTlsConnector(build_connector(certificate)?),
            idle_connections: Arc::default(),
            permits: Arc::new(Semaphore::new(connections)),
        })
    }

    /// Returns its number in the run.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    async fn connect(&self) -> Result<PooledConnection, String> {
        let tcp = TcpStream::connect(self.server).await.map_err(to_text)?;
        tcp.set_nodelay(true).map_err(to_text)?;
        let local = tcp.local_addr().map_err(to_text)?;
        let name = ServerName::IpAddress(self.server.ip().into());
        let tls = self.tls.0.connect(name, tcp).await.map_err(to_text)?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await.map_err(to_text)?;
        // Errors of the connection are reported by its requests.
        tokio::spawn(connection);
        Ok(PooledConnection { sender, local_addr: local })
    }

    /// Sends a request as soon as a connection is available; returns when that was with its response.
    pub(super) async fn request(
        &self,
        request: Request<Upload>,
    ) -> Result<(Response<Http1Response>, SendTimes), String> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(to_text)?;
        let idle_connection = {
            let mut idle = lock(&self.idle_connections);
            idle.retain(|connection| !connection.sender.is_closed());
            idle.pop()
        };
        let mut times = SendTimes::default();
        let mut connection = match idle_connection {
            Some(connection) => connection,
            None => {
                times.connect_ns = Some(now_ns());
                self.connect().await?
            }
        };
        times.sent_ns = Some(now_ns());
        let response = connection.sender.send_request(request).await.map_err(to_text)?;
        let local = connection.local_addr;
        let idle = Arc::clone(&self.idle_connections);
        let pool = self.number;
        let response = response.map(|body| Http1Response {
            pool,
            body,
            connection: Some(connection),
            permit: Some(permit),
            idle_connections: idle,
            local_addr: local,
        });
        Ok((response, times))
    }
}

impl Http1Response {
    /// Returns the number of its pool.
    pub(super) const fn pool(&self) -> u32 {
        self.pool
    }

    /// Returns the next bytes; at the end it returns the connection to the pool.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => return Some(Err(to_text(error))),
                None => {
                    self.return_to_pool();
                    return None;
                }
            }
        }
    }

    /// Returns the local address of the connection.
    pub(super) const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn return_to_pool(&mut self) {
        let (Some(mut connection), permit) = (self.connection.take(), self.permit.take()) else {
            return;
        };
        let idle = Arc::clone(&self.idle_connections);
        tokio::spawn(async move {
            if connection.sender.ready().await.is_ok() {
                lock(&idle).push(connection);
            }
            drop(permit);
        });
    }
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
