//! The connection to the probed peer: sends bytes, receives frames.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use smig_proto::hpack::{Decoder, Field};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::frame::{Fields, Frame, fragment};
use super::unverified;
use super::wire::{self, CONTINUATION, END_HEADERS, HEADERS, PUSH_PROMISE};
use crate::dev_cert;
use crate::exit::{Exit, Failure};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Result of a read.
#[derive(Debug)]
pub(super) enum ProbeEvent {
    Frame(Frame),
    /// The peer closed the connection; holds the error's text if it did not close cleanly.
    End(Option<String>),
    /// Nothing arrived before the deadline.
    Silence,
}

/// Whether the connection uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeSecurity {
    Tls,
    Cleartext,
}

/// Acceptor for a client: TLS with the development certificate, or none for cleartext.
pub(super) struct TlsListener(Option<TlsAcceptor>);

impl TlsListener {
    pub(super) fn new(wire: ProbeSecurity) -> Result<Self, Failure> {
        if wire == ProbeSecurity::Cleartext {
            return Ok(Self(None));
        }
        let config =
            server_config().map_err(|error| Failure::new(Exit::Tls, format!("{error:#}")))?;
        Ok(Self(Some(TlsAcceptor::from(Arc::new(config)))))
    }
}

/// One connection.
pub(super) struct Peer {
    stream: Box<dyn Stream>,
    /// Description of the peer, for messages.
    pub(super) about: String,
    buffer: Vec<u8>,
    preface: Preface,
    hpack: Decoder,
    /// The field block being received.
    block: Option<Vec<u8>>,
    end: Option<Option<String>>,
}

/// Whether the peer's first bytes are a client's connection preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preface {
    Due,
    Done,
}

fn connect_failed(target: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Connect, format!("cannot connect to {target}: {error}"))
}

impl Peer {
    /// Connects to a server.
    pub(super) async fn connect(
        target: &str,
        wire: ProbeSecurity,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let late =
            |_| Failure::new(Exit::Timeout, format!("{target}: not connected within {limit:?}"));
        let connecting = tokio::time::timeout(limit, TcpStream::connect(target));
        let tcp =
            connecting.await.map_err(late)?.map_err(|error| connect_failed(target, &error))?;
        // Send small frames without delay.
        let _ = tcp.set_nodelay(true);
        if wire == ProbeSecurity::Cleartext {
            return Ok(Self::new(
                Box::new(tcp),
                format!("connected to {target}, cleartext"),
                Preface::Done,
            ));
        }
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| Failure::new(Exit::Usage, format!("{target}: not a host name")))?;
        let config = unverified::config()
            .map_err(|error| Failure::new(Exit::Tls, format!("TLS: {error}")))?;
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        let tls = tokio::time::timeout(limit, shaking).await.map_err(late)?.map_err(|error| {
            let hint = "--cleartext disables TLS";
            Failure::new(Exit::Tls, format!("TLS with {target} failed: {error}; {hint}"))
        })?;
        let about = format!("connected to {target}, {}", agreed(tls.get_ref().1));
        Ok(Self::new(Box::new(tls), about, Preface::Done))
    }

    /// Waits for a client to connect.
    pub(super) async fn accept(
        listener: &TcpListener,
        door: &TlsListener,
    ) -> Result<Self, Failure> {
        let failed = |error: &io::Error| {
            Failure::new(Exit::Connect, format!("cannot accept a connection: {error}"))
        };
        let (tcp, from) = listener.accept().await.map_err(|error| failed(&error))?;
        let _ = tcp.set_nodelay(true);
        let Some(tls) = &door.0 else {
            return Ok(Self::new(
                Box::new(tcp),
                format!("connection from {from}, cleartext"),
                Preface::Due,
            ));
        };
        let tls = tls
            .accept(tcp)
            .await
            .map_err(|error| Failure::new(Exit::Tls, format!("TLS with {from} failed: {error}")))?;
        let about = format!("connection from {from}, {}", agreed(tls.get_ref().1));
        Ok(Self::new(Box::new(tls), about, Preface::Due))
    }

    fn new(stream: Box<dyn Stream>, about: String, preface: Preface) -> Self {
        Self {
            stream,
            about,
            buffer: Vec::new(),
            preface,
            hpack: Decoder::new(4096),
            block: None,
            end: None,
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Closes the sending direction (TLS: close_notify; TCP: FIN).
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Returns the next frame, the end of the connection, or silence until `deadline`.
    pub(super) async fn next(&mut self, deadline: Instant) -> Result<ProbeEvent, Failure> {
        loop {
            self.strip_preface()?;
            if self.preface == Preface::Done
                && let Some(frame) = self.take()
            {
                return Ok(ProbeEvent::Frame(frame));
            }
            if let Some(end) = &self.end {
                return Ok(ProbeEvent::End(end.clone()));
            }
            let mut chunk = [0; 16_384];
            match timeout_at(deadline, self.stream.read(&mut chunk)).await {
                Err(_) => return Ok(ProbeEvent::Silence),
                Ok(Ok(0)) => self.end = Some(self.cut_short()),
                Ok(Ok(read)) => self.buffer.extend(chunk.get(..read).unwrap_or_default()),
                // Many peers close TLS without close_notify.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.end = Some(self.cut_short());
                }
                Ok(Err(error)) => self.end = Some(Some(error.to_string())),
            }
        }
    }

    /// Describes an incomplete frame left in the buffer at the end of the connection.
    fn cut_short(&self) -> Option<String> {
        (!self.buffer.is_empty())
            .then(|| format!("{} bytes of an incomplete frame", self.buffer.len()))
    }

    fn strip_preface(&mut self) -> Result<(), Failure> {
        let seen = self.buffer.len().min(wire::PREFACE.len());
        if self.preface == Preface::Done || seen == 0 {
            return Ok(());
        }
        if self.buffer.get(..seen) != wire::PREFACE.get(..seen) {
            let start =
                String::from_utf8_lossy(self.buffer.get(..seen).unwrap_or_default()).into_owned();
            return Err(Failure::new(
                Exit::Failure,
                format!("the client sent no HTTP/2 connection preface but {start:?}"),
            ));
        }
        if seen == wire::PREFACE.len() {
            self.buffer.drain(..seen);
            self.preface = Preface::Done;
        }
        Ok(())
    }

    /// Removes a complete frame from the buffer.
    fn take(&mut self) -> Option<Frame> {
        let &[l0, l1, l2, kind, flags, s0, s1, s2, s3] =
            self.buffer.first_chunk::<{ wire::HEAD }>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let payload = self.buffer.get(wire::HEAD..wire::HEAD + length)?.to_vec();
        self.buffer.drain(..wire::HEAD + length);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        let fields = self.fields(kind, flags, &payload);
        Some(Frame { kind, flags, stream, payload, fields })
    }

    /// Collects a field block, and decodes it at its end.
    fn fields(&mut self, kind: u8, flags: u8, payload: &[u8]) -> Option<Result<Fields, String>> {
        if !matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            return None;
        }
        let mut block = self.block.take().unwrap_or_default();
        block.extend(fragment(kind, flags, payload));
        if flags & END_HEADERS == 0 {
            self.block = Some(block);
            return None;
        }
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let decoded = self.hpack.decode(&block, |field| {
            fields.push(match field {
                Field::Pseudo(name, value) => (name.as_str().to_owned(), text(&value)),
                Field::Regular(name, value) => (name.as_str().to_owned(), text(value.as_bytes())),
                Field::Malformed(why, _) => ("(malformed)".to_owned(), why.to_owned()),
            });
        });
        Some(decoded.map(|()| fields).map_err(|error| error.to_string()))
    }
}

fn agreed(tls: &rustls::CommonState) -> String {
    let version = tls.protocol_version().map_or_else(String::new, |version| format!("{version:?}"));
    match tls.alpn_protocol() {
        Some(alpn) => format!("{version}, {}", String::from_utf8_lossy(alpn)),
        None => format!("{version}, no ALPN"),
    }
}

fn server_config() -> anyhow::Result<rustls::ServerConfig> {
    let made = dev_cert::obtain(&[])?;
    let chain = CertificateDer::pem_slice_iter(&made.certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&made.key)?;
    let mut config = rustls::ServerConfig::builder_with_provider(unverified::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
