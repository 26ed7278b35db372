//! One TCP connection with its TLS state: octets in, octets out.
//!
//! Owns the socket, the rustls connection and the decrypted input that the engine has not taken
//! yet. Knows nothing of HTTP. Holds no buffer while idle: what is read passes through one buffer
//! a thread, and output is sealed at the last moment, when the socket can take it.

mod handshake;
mod http1;
mod scratch;
mod spent;
mod tls_io;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::Connection as Tls;
use smig_proto::{KeyingRequest, Security, Transmit};
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(crate) use handshake::{accept, connect};
pub(crate) use spent::Spent;

use crate::connection::Permit;
use crate::entropy;
use crate::observe::Ends;
use tls_io::Socket;

/// Slices given to one write call. More than a turn's frames make.
const MAX_SLICES: usize = 64;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Something was added to the input, or TLS made progress.
    Progress,
    /// The peer will send no more.
    End,
}

/// A TCP connection with or without TLS, its handshake done.
#[derive(Debug)]
pub(crate) struct Transport {
    tcp: TcpStream,
    channel: Channel,
    input: BytesMut,
    /// The peer has said at the TLS level that it sends no more. Its TCP may go on.
    said_goodbye: bool,
    peer: SocketAddr,
    local: SocketAddr,
    permit: Option<Permit>,
}

#[derive(Debug)]
enum Channel {
    Clear,
    Tls(Box<Tls>),
}

/// A transport without a runtime: on its way to another worker.
#[derive(Debug)]
pub(crate) struct Parted {
    tcp: std::net::TcpStream,
    channel: Channel,
    input: BytesMut,
    said_goodbye: bool,
    peer: SocketAddr,
    local: SocketAddr,
    permit: Option<Permit>,
}

impl Transport {
    /// A connection without TLS.
    pub(crate) fn clear(tcp: TcpStream) -> io::Result<Self> {
        Self::new(tcp, Channel::Clear)
    }

    fn new(tcp: TcpStream, channel: Channel) -> io::Result<Self> {
        let (peer, local) = (tcp.peer_addr()?, tcp.local_addr()?);
        let (input, said_goodbye) = (BytesMut::new(), false);
        Ok(Self { tcp, channel, input, said_goodbye, peer, local, permit: None })
    }

    /// Counts the connection as open until it is dropped.
    pub(crate) fn count(mut self, permit: Permit) -> Self {
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

    /// Both addresses.
    pub(crate) const fn ends(&self) -> Ends {
        Ends { local: self.local, peer: self.peer }
    }

    /// The TLS connection, if there is one.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.channel {
            Channel::Clear => None,
            Channel::Tls(tls) => Some(tls),
        }
    }

    /// What the engine may trust this connection with. `clear` says what cleartext counts as.
    pub(crate) fn security(&self, clear: Security) -> Security {
        match &self.channel {
            Channel::Clear => clear,
            Channel::Tls(tls) => match tls.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_3) => Security::Tls13,
                _ => Security::Plain,
            },
        }
    }

    /// The protocol that ALPN chose.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls().and_then(|tls| tls.alpn_protocol())
    }

    /// The server name that the peer asked for (server side).
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self.tls() {
            Some(Tls::Server(tls)) => tls.server_name(),
            _ => None,
        }
    }

    /// What the engine asks for, a TLS exporter's value above all (RFC 8446 section 7.5).
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

    /// Decrypted octets that nobody took yet.
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
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Received>> {
        scratch::with(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(tokio::io::AsyncRead::poll_read(Pin::new(&mut self.tcp), cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(Received::End));
            }
            Poll::Ready(self.take(read.filled()))
        })
    }

    /// Takes in what came from the socket.
    fn take(&mut self, mut octets: &[u8]) -> io::Result<Received> {
        let Channel::Tls(tls) = &mut self.channel else {
            make_room(&mut self.input, octets.len());
            self.input.extend_from_slice(octets);
            return Ok(Received::Progress);
        };
        while !octets.is_empty() {
            tls.read_tls(&mut octets)?;
            let state = tls.process_new_packets().map_err(invalid)?;
            if state.plaintext_bytes_to_read() > 0 {
                drain_plaintext(tls, &mut self.input, state.plaintext_bytes_to_read())?;
            }
            if state.peer_has_closed() {
                self.said_goodbye = true;
                return Ok(Received::End);
            }
        }
        Ok(Received::Progress)
    }

    /// Takes what the handshake's last read already decrypted.
    fn take_early(&mut self) -> io::Result<()> {
        if let Channel::Tls(tls) = &mut self.channel {
            let ready = tls.process_new_packets().map_err(invalid)?.plaintext_bytes_to_read();
            if ready > 0 {
                drain_plaintext(tls, &mut self.input, ready)?;
            }
        }
        Ok(())
    }

    /// Whether the peer may have been cut off: its TCP has ended, and TLS before it has not (RFC 8446
    /// section 6.1). Without TLS there is no way to tell.
    const fn is_cut(&self) -> bool {
        matches!(self.channel, Channel::Tls(_)) && !self.said_goodbye
    }

    /// Whether sealed octets wait for the socket.
    pub(crate) fn has_sealed(&self) -> bool {
        self.tls().is_some_and(|tls| tls.wants_write())
    }

    /// Seals all of `output` (TLS), so that [`Self::poll_flush`] sends it.
    pub(crate) fn seal(&mut self, output: &mut Transmit) -> io::Result<()> {
        let Channel::Tls(tls) = &mut self.channel else { return Ok(()) };
        while !output.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = output.chunks(&mut slices);
            let taken = tls.writer().write_vectored(slices.get(..used).unwrap_or_default())?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            output.advance(taken);
        }
        Ok(())
    }

    /// Seals `output` and writes all that is sealed. `Pending`: the socket is full.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Transmit,
    ) -> Poll<io::Result<()>> {
        self.seal(output)?;
        if matches!(self.channel, Channel::Tls(_)) {
            return self.poll_sealed(cx);
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
    fn poll_sealed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Channel::Tls(tls) = &mut self.channel else { return Poll::Ready(Ok(())) };
        while tls.wants_write() {
            match tls.write_tls(&mut Socket::new(&mut self.tcp, cx)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Says goodbye at the TLS level; sent by the next flush.
    pub(crate) fn queue_close(&mut self) {
        if let Channel::Tls(tls) = &mut self.channel {
            tls.send_close_notify();
        }
    }

    /// Closes our half of the connection.
    pub(crate) fn poll_close_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    /// Takes it off this runtime.
    pub(crate) fn part(self) -> io::Result<Parted> {
        let Self { tcp, channel, input, said_goodbye, peer, local, permit } = self;
        Ok(Parted { tcp: tcp.into_std()?, channel, input, said_goodbye, peer, local, permit })
    }
}

impl Parted {
    /// Puts it on the runtime of the calling task.
    pub(crate) fn join(self) -> io::Result<Transport> {
        let Self { tcp, channel, input, said_goodbye, peer, local, permit } = self;
        let tcp = TcpStream::from_std(tcp)?;
        Ok(Transport { tcp, channel, input, said_goodbye, peer, local, permit })
    }
}

/// Makes room for `more` octets in a buffer as small as will do. Left to itself it would double for
/// each rest of a frame, and what the engine keeps of it, it keeps whole.
fn make_room(input: &mut BytesMut, more: usize) {
    if input.capacity() - input.len() >= more || input.try_reclaim(more) {
        return;
    }
    let doubled = (2 * input.capacity()).min(scratch::SIZE);
    let mut larger = BytesMut::with_capacity((input.len() + more).max(doubled));
    larger.extend_from_slice(input);
    *input = larger;
}

fn drain_plaintext(tls: &mut Tls, input: &mut BytesMut, ready: usize) -> io::Result<()> {
    make_room(input, ready);
    let start = input.len();
    input.resize(start + ready, 0);
    let read = tls.reader().read(input.get_mut(start..).unwrap_or_default())?;
    input.truncate(start + read);
    Ok(())
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
