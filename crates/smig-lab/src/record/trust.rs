//! What a recording browser trusts besides its own authorities.
//!
//! Chromium takes no file of authorities, only the keys of certificates that it is to accept. So the lab connects to a server itself,
//! verifies its certificate against the file as any client does, and names its key to the browser. An authority's own key is never named: whoever
//! has its public certificate could then pass for any host.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use smig_browser::{PageRecording, RequestEnd, key_sha256};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::RecordError;

/// Time limit of each connection, and of its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of servers that are checked.
const MAX_HOSTS: usize = 20;

/// The keys that the browser is to accept.
pub(super) struct TrustedKeys {
    /// `None` without a file: nothing is added.
    config: Option<Arc<ClientConfig>>,
    keys: BTreeSet<String>,
    /// Hosts, with ports, whose servers were asked.
    known: BTreeSet<(String, u16)>,
}

impl TrustedKeys {
    /// Reads the file, and asks the page's own server. That it cannot be reached, or is not trusted, the browser will report.
    pub(super) fn new(cacert: Option<&Path>, url: &Url) -> Result<Self, RecordError> {
        let mut trusted = Self { config: None, keys: BTreeSet::new(), known: BTreeSet::new() };
        let Some(path) = cacert else { return Ok(trusted) };
        let fail = |why: &dyn std::fmt::Display| {
            RecordError::Trust(format!(
                "{}: {why}; --cacert takes a file of certificates in PEM",
                path.display()
            ))
        };
        let pem = fs::read(path).map_err(|error| fail(&error))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| fail(&error))?;
            roots.add(certificate).map_err(|error| fail(&error))?;
        }
        if roots.is_empty() {
            return Err(fail(&"there is no certificate in it"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| fail(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        trusted.config = Some(Arc::new(config));
        trusted.ask(url);
        Ok(trusted)
    }

    /// Returns the keys as the browser's command line takes them.
    pub(super) fn as_argument(&self) -> String {
        self.keys.iter().map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Asks the servers whose certificates the browser has refused; returns whether it is to accept more now.
    pub(super) fn add_refused(
        &mut self,
        recording: &PageRecording,
        stop: &CancellationToken,
    ) -> bool {
        if self.config.is_none() {
            return false;
        }
        let before = self.keys.len();
        for request in &recording.requests {
            if stop.is_cancelled() || self.known.len() >= MAX_HOSTS {
                break;
            }
            let is_refused = matches!(&request.end,
                Some((_, RequestEnd::Failed(why))) if why.contains("ERR_CERT_"));
            if is_refused && let Ok(url) = Url::parse(&request.url) {
                self.ask(&url);
            }
        }
        self.keys.len() > before
    }

    fn ask(&mut self, url: &Url) {
        let (Some(config), Some(host)) = (&self.config, url.host_str()) else { return };
        let port = url.port_or_known_default().unwrap_or(443);
        if url.scheme() != "https" || !self.known.insert((host.to_owned(), port)) {
            return;
        }
        if let Ok(key) = server_key(Arc::clone(config), host, port) {
            self.keys.insert(key);
        }
    }
}

/// Returns the key of a server whose certificate is valid.
fn server_key(config: Arc<ClientConfig>, host: &str, port: u16) -> io::Result<String> {
    let host = host.trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let no_address = || io::Error::other("no address");
    let mut last_error = no_address();
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(mut tcp) => {
                tcp.set_read_timeout(Some(CONNECT_TIMEOUT))?;
                tcp.set_write_timeout(Some(CONNECT_TIMEOUT))?;
                let deadline = Instant::now() + CONNECT_TIMEOUT;
                while connection.is_handshaking() {
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    step(&mut connection, &mut tcp)?;
                }
                connection.send_close_notify();
                // It has served its purpose.
                let _ = connection.complete_io(&mut tcp).and_then(|_| tcp.flush());
                let certificate = connection.peer_certificates().and_then(<[_]>::first);
                let certificate = certificate.ok_or_else(no_address)?;
                return key_sha256(certificate).map_err(io::Error::other);
            }
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Writes what the handshake has to send, or reads once, so that its deadline is seen between two reads.
fn step(connection: &mut ClientConnection, tcp: &mut TcpStream) -> io::Result<()> {
    if connection.wants_write() {
        connection.write_tls(tcp)?;
    } else if connection.read_tls(tcp)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    } else {
        connection.process_new_packets().map_err(io::Error::other)?;
    }
    Ok(())
}
