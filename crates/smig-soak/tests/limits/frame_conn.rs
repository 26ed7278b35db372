//! A client that sends arbitrary bytes over TLS.

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

/// `GET https://localhost/` as a field block: indexed fields, and a literal authority.
pub(crate) const GET_FIELD_BLOCK: &[u8] = b"\x82\x84\x87\x41\x09localhost";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Timeout of operations that are not under test: long, for machines under load.
const IO_TIMEOUT: Duration = Duration::from_secs(120);
/// Size of a response's body: more than the initial windows.
const RESPONSE_BYTES: usize = 4 << 20;

/// A server and the root certificate for its clients.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    roots: RootCertStore,
}

/// Starts a server with one worker that sends a large body in each response.
pub(crate) fn start_server(
    configure: impl FnOnce(&mut Config),
    configure_builder: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> TestServer {
    let generated_cert = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) =
        (generated_cert.cert.pem(), generated_cert.signing_key.serialize_pem());
    let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    let mut config = Config::server();
    // Only the timeout under test may be short.
    config.limits.preface_timeout = IO_TIMEOUT;
    configure(&mut config);
    let content = bytes::Bytes::from(vec![b'x'; RESPONSE_BYTES]);
    let service = service_fn(move |_: Request<Incoming>| {
        let content = content.clone();
        async move { Ok::<_, BoxError>(Response::new(Full::new(content))) }
    });
    let builder = Server::builder()
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls)
        .workers(NonZeroUsize::MIN)
        .handshake_timeout(IO_TIMEOUT)
        .engine(config);
    let server = configure_builder(builder).start(service).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(generated_cert.cert.der().clone()).unwrap();
    TestServer { server, roots }
}

impl TestServer {
    /// Opens a TCP connection and sends nothing.
    pub(crate) fn connect_tcp(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.server.local_addrs()[0]).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        tcp.set_write_timeout(Some(IO_TIMEOUT)).unwrap();
        tcp
    }

    /// Opens a TLS connection with ALPN h2 and sends nothing in it.
    pub(crate) fn connect_tls(&self) -> FrameConn {
        let mut config = ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(tls, self.connect_tcp());
        stream.flush().unwrap();
        FrameConn { stream }
    }

    /// Opens an HTTP/2 connection with empty SETTINGS.
    pub(crate) fn connect_http2(&self) -> FrameConn {
        let mut conn = self.connect_tls();
        conn.stream.write_all(PREFACE).unwrap();
        conn.send(SETTINGS, 0, 0, &[]).unwrap();
        conn.send(SETTINGS, ACK, 0, &[]).unwrap();
        conn
    }

    /// Waits until the server's counters meet a condition.
    pub(crate) fn wait_for_stats(&self, condition: impl Fn(&smig::Stats) -> bool) {
        let start = std::time::Instant::now();
        while !condition(&self.server.stats()) {
            assert!(start.elapsed() < IO_TIMEOUT, "{:?}", self.server.stats());
            std::thread::yield_now();
        }
    }
}

/// A connection that is written and read frame by frame.
pub(crate) struct FrameConn {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Returns the 32-bit word at an offset of the payload.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// Encodes a frame.
pub(crate) fn encode_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![len[1], len[2], len[3], kind, flags];
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

impl FrameConn {
    pub(crate) fn send(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        self.send_bytes(&encode_frame(kind, flags, stream, payload))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Returns the next frame; `None` if the server closed the connection.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; len];
        self.read(&mut payload)?;
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn read(&mut self, into: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(into) {
            Ok(()) => Some(()),
            Err(error) => {
                let timed_out =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(!timed_out, "the server sent nothing in time: {error}");
                None
            }
        }
    }

    /// Reads until a frame of this kind, and returns it.
    pub(crate) fn next_of_kind(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("the frame arrives before the end");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads to the end; returns the code of the last GOAWAY, if any.
    pub(crate) fn read_goaway_code(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                code = Some(frame.word(4));
            }
        }
        code
    }

    /// Checks that the server still responds to a PING.
    pub(crate) fn assert_responsive(&mut self) {
        self.send(PING, 0, 0, b"testping").unwrap();
        loop {
            let frame = self.next_of_kind(PING);
            if frame.flags & ACK != 0 && frame.payload == b"testping" {
                return;
            }
        }
    }
}
