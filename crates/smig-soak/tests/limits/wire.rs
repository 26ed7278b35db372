//! A client that says whatever bytes it likes, over TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use smig::{BoxError, Config, Incoming, Server, ServerBuilder, ServerTls};
use tower::service_fn;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// `GET https://localhost/`, in fields of HPACK's static table.
pub(crate) const GET: &[u8] = b"\x82\x84\x87\x41\x09localhost";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A machine under load is slow; a server that never answers is worse.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes that the server answers with: more than any window takes.
const BIG: usize = 4 << 20;

/// A server and the certificate that it shows.
pub(crate) struct Target {
    pub(crate) server: Server,
    roots: RootCertStore,
}

/// A server with one worker that answers `/` with a big body.
pub(crate) fn target(
    change: impl FnOnce(&mut Config),
    build: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> Target {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    let mut config = Config::server();
    // Only what a test is about may be short.
    config.limits.preface_timeout = PATIENCE;
    change(&mut config);
    let big = bytes::Bytes::from(vec![b'x'; BIG]);
    let service = service_fn(move |_: Request<Incoming>| {
        let big = big.clone();
        async move { Ok::<_, BoxError>(Response::new(Full::new(big))) }
    });
    let builder = Server::builder()
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls)
        .workers(NonZeroUsize::MIN)
        .handshake_timeout(PATIENCE)
        .engine(config);
    let server = build(builder).start(service).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    Target { server, roots }
}

impl Target {
    /// A TCP connection, nothing said.
    pub(crate) fn tcp(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.server.local_addrs()[0]).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.set_write_timeout(Some(PATIENCE)).unwrap();
        tcp
    }

    /// A TLS connection with ALPN h2, nothing said in HTTP/2.
    pub(crate) fn tls(&self) -> Wire {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(tls, self.tcp());
        stream.flush().unwrap();
        Wire { stream }
    }

    /// An HTTP/2 connection with empty SETTINGS.
    pub(crate) fn http2(&self) -> Wire {
        let mut wire = self.tls();
        wire.stream.write_all(PREFACE).unwrap();
        wire.send(SETTINGS, 0, 0, &[]).unwrap();
        wire.send(SETTINGS, ACK, 0, &[]).unwrap();
        wire
    }

    /// Waits until a counter says so.
    pub(crate) fn until(&self, wanted: impl Fn(&smig::Stats) -> bool) {
        let since = std::time::Instant::now();
        while !wanted(&self.server.stats()) {
            assert!(since.elapsed() < PATIENCE, "{:?}", self.server.stats());
            std::thread::yield_now();
        }
    }
}

/// A connection that is written and read frame by frame.
pub(crate) struct Wire {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Came {
    /// The 32-bit word at an offset of the payload.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![len[1], len[2], len[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

impl Wire {
    pub(crate) fn send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        self.send_bytes(&frame(kind, flags, stream, payload))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next frame; `None` when the server ended the connection.
    pub(crate) fn next(&mut self) -> Option<Came> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        self.read(&mut payload)?;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Came { kind: head[3], flags: head[4], stream, payload })
    }

    fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) => {
                let late =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(!late, "the server says nothing: {error}");
                None
            }
        }
    }

    /// Reads until a frame of this kind comes.
    pub(crate) fn until(&mut self, kind: u8) -> Came {
        loop {
            let came = self.next().expect("the frame comes before the end");
            if came.kind == kind {
                return came;
            }
        }
    }

    /// Reads to the end; the code of the last GOAWAY, if there was one.
    pub(crate) fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(came) = self.next() {
            if came.kind == GOAWAY {
                code = Some(came.word(4));
            }
        }
        code
    }

    /// The connection still answers.
    pub(crate) fn is_well(&mut self) {
        self.send(PING, 0, 0, b"are you?").unwrap();
        loop {
            let came = self.until(PING);
            if came.flags & ACK != 0 && came.payload == b"are you?" {
                return;
            }
        }
    }
}
