//! One TCP connection with its TLS state: bytes in, bytes out.
//!
//! Owns the socket, the rustls connection and the decrypted input that the engine has not taken yet. Independent
//! of HTTP. Holds no buffer while idle: input passes through one buffer per thread, and output is
//! sealed at the last moment, when the socket can take it.

mod half_closed;
mod handshake;
mod http1;
mod scratch;
mod tls_io;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::Connection as Tls;
use smig_proto::{KeyingRequest, OutputBuffer, Security};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(crate) use half_closed::HalfClosedTransport;
pub(crate) use handshake::{accept, connect};

use crate::entropy;
use crate::limits::OpenPermit;
use crate::socket::ConnectionAddrs;
use tls_io::Socket;

/// Maximum number of slices per write call: more than the frames of a turn.
const MAX_SLICES: usize = 64;
/// As many as a response of two payloads has: each follows its frame header. To initialise an array of the maximum takes
/// longer than to seal a small response's frames.
const FEW_SLICES: usize = 4;

/// Longest payload of a TLS record, and what a record adds in TLS 1.3: header, content type and tag (RFC 8446
/// section 5.2).
const MAX_RECORD_BYTES: usize = 16 << 10;
const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveOutcome {
    /// Input was added, or TLS made progress.
    Progress,
    /// The peer has closed its half.
    End,
}

/// A TCP connection with or without TLS, after its handshake.
#[derive(Debug)]
pub(crate) struct Transport<T = TcpStream> {
    tcp: T,
    channel: Channel,
    input: BytesMut,
    /// The peer has sent close_notify. Its TCP half may still be open.
    received_close_notify: bool,
    /// About how many sealed bytes wait for the socket.
    sealed_unwritten: usize,
    peer: SocketAddr,
    local: SocketAddr,
    permit: Option<OpenPermit>,
}

#[derive(Debug)]
enum Channel {
    Cleartext,
    Tls(Box<Tls>),
}

/// A transport that is registered with no runtime: in transit to another worker.
pub(crate) type DetachedTransport = Transport<std::net::TcpStream>;

impl Transport {
    /// Creates a transport without TLS.
    pub(crate) fn cleartext(tcp: TcpStream) -> io::Result<Self> {
        Self::new(tcp, Channel::Cleartext)
    }

    fn new(tcp: TcpStream, channel: Channel) -> io::Result<Self> {
        let (peer, local) = (tcp.peer_addr()?, tcp.local_addr()?);
        let (input, received_close_notify) = (BytesMut::new(), false);
        Ok(Self {
            tcp,
            channel,
            input,
            received_close_notify,
            sealed_unwritten: 0,
            peer,
            local,
            permit: None,
        })
    }

    /// Counts the connection as open until it is dropped.
    pub(crate) fn with_permit(mut self, permit: OpenPermit) -> Self {
        self.permit = Some(permit);
        self
    }

    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns both addresses.
    pub(crate) const fn addrs(&self) -> ConnectionAddrs {
        ConnectionAddrs { local: self.local, peer: self.peer }
    }

    /// Returns the TLS connection, if there is one.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.channel {
            Channel::Cleartext => None,
            Channel::Tls(tls) => Some(tls),
        }
    }

    /// Returns the security of this connection for the engine; `cleartext_security` is that of cleartext.
    pub(crate) fn security(&self, cleartext_security: Security) -> Security {
        match &self.channel {
            Channel::Cleartext => cleartext_security,
            Channel::Tls(tls) => match tls.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_3) => Security::Tls13,
                _ => Security::Ineligible,
            },
        }
    }

    /// Returns the protocol that ALPN negotiated.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls().and_then(|tls| tls.alpn_protocol())
    }

    /// Returns the name that the peer sent by SNI (server side).
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.tls() {
            Some(Tls::Server(tls)) => tls.server_name(),
            _ => None,
        }
    }

    /// Returns the keying material that the engine requests, usually from a TLS exporter (RFC 8446 section 7.5).
    pub(crate) fn keying_material(
        &self,
        request: &KeyingRequest,
    ) -> Result<[u8; 32], rustls::Error> {
        let (label, context) = match request {
            KeyingRequest::Random => return Ok(entropy::bytes()),
            KeyingRequest::Zero => return Ok([0; 32]),
            KeyingRequest::Exporter { label, context } => (label, context),
        };
        let Some(tls) = self.tls() else { return Err(rustls::Error::HandshakeNotComplete) };
        tls.export_keying_material([0; 32], label.as_bytes(), Some(context))
    }

    /// Returns the decrypted input that was not taken yet.
    pub(crate) const fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Frees the input buffer if it is empty.
    pub(crate) fn release_idle_memory(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
        }
    }

    /// Reads once from the socket into the input.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ReceiveOutcome>> {
        scratch::with(|buffer| {
            let mut read_buf = ReadBuf::new(buffer);
            ready!(tokio::io::AsyncRead::poll_read(Pin::new(&mut self.tcp), cx, &mut read_buf))?;
            if read_buf.filled().is_empty() {
                return Poll::Ready(Ok(ReceiveOutcome::End));
            }
            Poll::Ready(self.append_input(read_buf.filled()))
        })
    }

    /// Appends bytes from the socket to the input, decrypted.
    fn append_input(&mut self, mut bytes: &[u8]) -> io::Result<ReceiveOutcome> {
        let Channel::Tls(tls) = &mut self.channel else {
            make_room(&mut self.input, bytes.len());
            self.input.extend_from_slice(bytes);
            return Ok(ReceiveOutcome::Progress);
        };
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes)?;
            let state = tls.process_new_packets().map_err(invalid_data)?;
            if state.plaintext_bytes_to_read() > 0 {
                drain_plaintext(tls, &mut self.input, state.plaintext_bytes_to_read())?;
            }
            if state.peer_has_closed() {
                self.received_close_notify = true;
                return Ok(ReceiveOutcome::End);
            }
        }
        Ok(ReceiveOutcome::Progress)
    }

    /// Appends application data that arrived with the last message of the handshake to the input.
    fn take_handshake_input(&mut self) -> io::Result<()> {
        if let Channel::Tls(tls) = &mut self.channel {
            let plaintext_bytes =
                tls.process_new_packets().map_err(invalid_data)?.plaintext_bytes_to_read();
            if plaintext_bytes > 0 {
                drain_plaintext(tls, &mut self.input, plaintext_bytes)?;
            }
        }
        Ok(())
    }

    /// Returns whether the stream may be truncated: TCP ended without a close_notify (RFC 8446 section 6.1).
    /// Without TLS this cannot be detected.
    const fn is_truncated(&self) -> bool {
        matches!(self.channel, Channel::Tls(_)) && !self.received_close_notify
    }

    /// Returns whether sealed bytes wait for the socket.
    pub(crate) fn has_sealed(&self) -> bool {
        self.tls().is_some_and(|tls| tls.wants_write())
    }

    /// Returns the sealed bytes that wait for the socket.
    pub(crate) const fn sealed_unwritten(&self) -> usize {
        self.sealed_unwritten
    }

    /// Returns the bytes on the wire for `bytes` bytes of output that are sealed at once.
    pub(crate) const fn sealed_bytes(&self, bytes: usize) -> usize {
        match &self.channel {
            Channel::Cleartext => bytes,
            Channel::Tls(_) => bytes + bytes.div_ceil(MAX_RECORD_BYTES) * RECORD_OVERHEAD_BYTES,
        }
    }

    /// Returns how many bytes of output, sealed at once, take at most `bytes` bytes on the wire.
    pub(crate) const fn unsealed_bytes(&self, bytes: usize) -> usize {
        match &self.channel {
            Channel::Cleartext => bytes,
            Channel::Tls(_) => {
                let records = bytes.div_ceil(MAX_RECORD_BYTES + RECORD_OVERHEAD_BYTES);
                bytes.saturating_sub(records * RECORD_OVERHEAD_BYTES)
            }
        }
    }

    /// Seals all of `output` (TLS), so that [`Self::poll_flush`] sends it.
    pub(crate) fn seal(&mut self, output: &mut OutputBuffer) -> io::Result<()> {
        let Channel::Tls(tls) = &mut self.channel else { return Ok(()) };
        while !output.is_empty() {
            let taken = match output.max_chunk_count() {
                ..=FEW_SLICES => seal_chunks::<FEW_SLICES>(tls, output)?,
                _ => seal_chunks::<MAX_SLICES>(tls, output)?,
            };
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            output.advance(taken);
            let records = taken.div_ceil(MAX_RECORD_BYTES);
            self.sealed_unwritten += taken + records * RECORD_OVERHEAD_BYTES;
        }
        Ok(())
    }

    /// Seals `output` and writes all that is sealed. `Pending` if the socket is full.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut OutputBuffer,
    ) -> Poll<io::Result<()>> {
        self.seal(output)?;
        if matches!(self.channel, Channel::Tls(_)) {
            return self.poll_flush_sealed(cx);
        }
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = output.chunks(&mut slices);
            let slices = slices.get(..used).unwrap_or_default();
            let written = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            output.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is sealed.
    fn poll_flush_sealed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Channel::Tls(tls) = &mut self.channel else { return Poll::Ready(Ok(())) };
        while tls.wants_write() {
            match tls.write_tls(&mut Socket::new(&mut self.tcp, cx)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    self.sealed_unwritten = self.sealed_unwritten.saturating_sub(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.sealed_unwritten = 0;
        Poll::Ready(Ok(()))
    }

    /// Queues a close_notify, which the next flush sends.
    pub(crate) fn queue_close_notify(&mut self) {
        if let Channel::Tls(tls) = &mut self.channel {
            tls.send_close_notify();
        }
    }

    /// Closes this end's half of the connection.
    pub(crate) fn poll_close_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    /// Deregisters the transport from this runtime.
    pub(crate) fn detach(self) -> io::Result<DetachedTransport> {
        self.convert_socket(TcpStream::into_std)
    }
}

impl DetachedTransport {
    /// Registers the transport with the runtime of the calling task.
    pub(crate) fn attach(self) -> io::Result<Transport> {
        self.convert_socket(TcpStream::from_std)
    }
}

impl<T> Transport<T> {
    fn convert_socket<U>(
        self,
        convert: impl FnOnce(T) -> io::Result<U>,
    ) -> io::Result<Transport<U>> {
        let Self {
            tcp,
            channel,
            input,
            received_close_notify,
            sealed_unwritten,
            peer,
            local,
            permit,
        } = self;
        Ok(Transport {
            tcp: convert(tcp)?,
            channel,
            input,
            received_close_notify,
            sealed_unwritten,
            peer,
            local,
            permit,
        })
    }
}

/// Reserves room for `additional` bytes in a buffer as small as possible. `BytesMut` on its own would double for each
/// partial frame, and a part that the engine retains keeps the whole allocation alive.
fn make_room(input: &mut BytesMut, additional: usize) {
    if input.capacity() - input.len() >= additional || input.try_reclaim(additional) {
        return;
    }
    let doubled = (2 * input.capacity()).min(scratch::BUFFER_BYTES);
    let mut larger = BytesMut::with_capacity((input.len() + additional).max(doubled));
    larger.extend_from_slice(input);
    *input = larger;
}

/// Seals the first chunks of `output`, `N` at most. Returns the number of their bytes.
fn seal_chunks<const N: usize>(tls: &mut Tls, output: &OutputBuffer) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); N];
    let used = output.chunks(&mut slices);
    tls.writer().write_vectored(slices.get(..used).unwrap_or_default())
}

fn drain_plaintext(tls: &mut Tls, input: &mut BytesMut, plaintext_bytes: usize) -> io::Result<()> {
    make_room(input, plaintext_bytes);
    let start = input.len();
    input.resize(start + plaintext_bytes, 0);
    let read = tls.reader().read(input.get_mut(start..).unwrap_or_default())?;
    input.truncate(start + read);
    Ok(())
}

fn invalid_data(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
