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
use crate::exit::{CliError, Exit};

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Result of a read.
#[derive(Debug)]
pub(super) enum ProbeEvent {
    Frame(Frame),
    /// The connection is closed; holds the error's text if the peer did not close it cleanly.
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
pub(super) struct ClientAcceptor(Option<TlsAcceptor>);

impl ClientAcceptor {
    pub(super) fn new(security: ProbeSecurity) -> Result<Self, CliError> {
        if security == ProbeSecurity::Cleartext {
            return Ok(Self(None));
        }
        let config =
            server_config().map_err(|error| CliError::new(Exit::Tls, format!("{error:#}")))?;
        Ok(Self(Some(TlsAcceptor::from(Arc::new(config)))))
    }
}

/// One connection.
pub(super) struct Peer {
    /// `None` after [`Self::close`].
    stream: Option<Box<dyn ByteStream>>,
    /// Description of the peer, for messages.
    pub(super) description: String,
    buffer: Vec<u8>,
    preface: Preface,
    hpack: Decoder,
    /// The field block being received.
    block: Option<Vec<u8>>,
    end: Option<Option<String>>,
}

/// Whether the peer's next bytes are a client's connection preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preface {
    Expected,
    NotExpected,
}

fn connect_error(target: &str, error: &io::Error) -> CliError {
    CliError::new(Exit::Connect, format!("cannot connect to {target}: {error}"))
}

impl Peer {
    /// Connects to a server.
    pub(super) async fn connect(
        target: &str,
        security: ProbeSecurity,
        limit: Duration,
    ) -> Result<Self, CliError> {
        let timed_out =
            |_| CliError::new(Exit::Timeout, format!("{target}: not connected within {limit:?}"));
        let connecting = tokio::time::timeout(limit, TcpStream::connect(target));
        let tcp =
            connecting.await.map_err(timed_out)?.map_err(|error| connect_error(target, &error))?;
        // Send small frames without delay.
        let _ = tcp.set_nodelay(true);
        if security == ProbeSecurity::Cleartext {
            return Ok(Self::new(
                Box::new(tcp),
                format!("connected to {target}, cleartext"),
                Preface::NotExpected,
            ));
        }
        let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host)
            .map_err(|_| CliError::new(Exit::Usage, format!("{target}: not a host name")))?;
        let config = unverified::config()
            .map_err(|error| CliError::new(Exit::Tls, format!("TLS: {error}")))?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        let tls =
            tokio::time::timeout(limit, handshake).await.map_err(timed_out)?.map_err(|error| {
                let hint = "--cleartext disables TLS";
                CliError::new(Exit::Tls, format!("TLS with {target} failed: {error}; {hint}"))
            })?;
        let about = format!("connected to {target}, {}", describe_tls(tls.get_ref().1));
        Ok(Self::new(Box::new(tls), about, Preface::NotExpected))
    }

    /// Waits for a client to connect.
    pub(super) async fn accept(
        listener: &TcpListener,
        acceptor: &ClientAcceptor,
    ) -> Result<Self, CliError> {
        let accept_failed = |error: &io::Error| {
            CliError::new(Exit::Connect, format!("cannot accept a connection: {error}"))
        };
        let (tcp, client_addr) = listener.accept().await.map_err(|error| accept_failed(&error))?;
        let _ = tcp.set_nodelay(true);
        let Some(tls_acceptor) = &acceptor.0 else {
            return Ok(Self::new(
                Box::new(tcp),
                format!("connection from {client_addr}, cleartext"),
                Preface::Expected,
            ));
        };
        let tls = tls_acceptor.accept(tcp).await.map_err(|error| {
            CliError::new(Exit::Tls, format!("TLS with {client_addr} failed: {error}"))
        })?;
        let about = format!("connection from {client_addr}, {}", describe_tls(tls.get_ref().1));
        Ok(Self::new(Box::new(tls), about, Preface::Expected))
    }

    fn new(stream: Box<dyn ByteStream>, about: String, preface: Preface) -> Self {
        Self {
            stream: Some(stream),
            description: about,
            buffer: Vec::new(),
            preface,
            hpack: Decoder::new(4096),
            block: None,
            end: None,
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(bytes).await?;
        stream.flush().await
    }

    /// Closes the sending side (TLS: close_notify; TCP: FIN).
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Some(stream) => stream.shutdown().await,
            None => Ok(()),
        }
    }

    /// Closes the connection: the sending side first, and then the socket.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        let result = self.finish().await;
        self.stream = None;
        result
    }

    /// Returns the next frame, the end of the connection, or silence until `deadline`.
    pub(super) async fn next(&mut self, deadline: Instant) -> Result<ProbeEvent, CliError> {
        loop {
            self.strip_preface()?;
            if self.preface == Preface::NotExpected
                && let Some(frame) = self.take_frame()
            {
                return Ok(ProbeEvent::Frame(frame));
            }
            if let Some(end) = &self.end {
                return Ok(ProbeEvent::End(end.clone()));
            }
            let Some(stream) = &mut self.stream else { return Ok(ProbeEvent::End(None)) };
            let mut chunk = [0; 16_384];
            match timeout_at(deadline, stream.read(&mut chunk)).await {
                Err(_) => return Ok(ProbeEvent::Silence),
                Ok(Ok(0)) => self.end = Some(self.incomplete_frame()),
                Ok(Ok(read)) => self.buffer.extend(chunk.get(..read).unwrap_or_default()),
                // Many peers close TLS without close_notify.
                Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.end = Some(self.incomplete_frame());
                }
                Ok(Err(error)) => self.end = Some(Some(error.to_string())),
            }
        }
    }

    /// Describes an incomplete frame left in the buffer at the end of the connection.
    fn incomplete_frame(&self) -> Option<String> {
        (!self.buffer.is_empty())
            .then(|| format!("{} bytes of an incomplete frame", self.buffer.len()))
    }

    fn strip_preface(&mut self) -> Result<(), CliError> {
        let checked_bytes = self.buffer.len().min(wire::PREFACE.len());
        if self.preface == Preface::NotExpected || checked_bytes == 0 {
            return Ok(());
        }
        if self.buffer.get(..checked_bytes) != wire::PREFACE.get(..checked_bytes) {
            let start =
                String::from_utf8_lossy(self.buffer.get(..checked_bytes).unwrap_or_default())
                    .into_owned();
            return Err(CliError::new(
                Exit::Failure,
                format!("the client sent no HTTP/2 connection preface but {start:?}"),
            ));
        }
        if checked_bytes == wire::PREFACE.len() {
            self.buffer.drain(..checked_bytes);
            self.preface = Preface::NotExpected;
        }
        Ok(())
    }

    /// Removes a complete frame from the buffer.
    fn take_frame(&mut self) -> Option<Frame> {
        let &[l0, l1, l2, kind, flags, s0, s1, s2, s3] =
            self.buffer.first_chunk::<{ wire::FRAME_HEADER_BYTES }>()?;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let payload =
            self.buffer.get(wire::FRAME_HEADER_BYTES..wire::FRAME_HEADER_BYTES + length)?.to_vec();
        self.buffer.drain(..wire::FRAME_HEADER_BYTES + length);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        let fields = self.collect_fields(kind, flags, &payload);
        Some(Frame { kind, flags, stream, payload, fields })
    }

    /// Collects a field block, and decodes it at its end.
    fn collect_fields(
        &mut self,
        kind: u8,
        flags: u8,
        payload: &[u8],
    ) -> Option<Result<Fields, String>> {
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
            fields.push(match &*field {
                Field::Pseudo(name, value) => (name.as_str().to_owned(), text(value)),
                Field::Regular(name, value) => (name.as_str().to_owned(), text(value.as_bytes())),
                Field::Malformed(why, _) => ("(malformed)".to_owned(), (*why).to_owned()),
            });
        });
        Some(decoded.map(|()| fields).map_err(|error| error.to_string()))
    }
}

fn describe_tls(tls: &rustls::CommonState) -> String {
    let version = tls.protocol_version().map_or_else(String::new, |version| format!("{version:?}"));
    match tls.alpn_protocol() {
        Some(alpn) => format!("{version}, {}", String::from_utf8_lossy(alpn)),
        None => format!("{version}, no ALPN"),
    }
}

fn server_config() -> anyhow::Result<rustls::ServerConfig> {
    let cert = dev_cert::obtain(&[])?;
    let chain = CertificateDer::pem_slice_iter(&cert.certificate).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&cert.key)?;
    let mut config = rustls::ServerConfig::builder_with_provider(unverified::provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
