//! Holds HTTP/2 connections over TLS: `hold PORT CA COUNT` idle ones, `hold PORT CA COUNT PATH CREDIT` with a download
//! of PATH each that is hardly read.
//!
//! Each connection sends the preface and SETTINGS and acknowledges the server's SETTINGS, so that the server has done
//! all its work before a first request. A download's stream and connection begin with CREDIT bytes of flow-control
//! credit; each second 1 KB is read and its credit returned. With little credit the server may send no more than that;
//! with much, TCP alone limits what it sends, as the client does not read.
//!
//! Prints "holding COUNT after SECONDS s" when all connections are open and the downloads' responses have begun. Exits
//! at the end of its standard input; with an error if a connection ends or a download is reset.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration, time::Instant};

use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const AT_ONCE: usize = 64;
const READ_EACH_SECOND: u32 = 1024;
/// Of Ethernet: with loopback's 64 KB, ten segments would fill megabytes of send buffer, as on no real path.
const SEGMENT: u32 = 1448;
/// What has arrived and is not read lies in the client's kernel, whose memory is not measured but limited.
const RECEIVE_BUFFER: usize = 16 * 1024;
const INITIAL_CREDIT: u32 = 65_535; // RFC 9113, section 6.9.2

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;
const STATUS_200: u8 = 0x88; // RFC 7541, appendix A

type Tls = TlsStream<TcpStream>;

#[derive(Clone)]
struct Download {
    path: String,
    credit: u32,
}

struct Head {
    length: usize,
    kind: u8,
    flags: u8,
}

fn tls(ca: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// The preface, SETTINGS and, for a download, its credit and its request.
fn opening(download: Option<&Download>) -> Result<Vec<u8>> {
    let Some(Download { path, credit }) = download else {
        return Ok([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    };
    let initial_window_size = [&[0, 4], &credit.to_be_bytes()[..]].concat();
    let mut sent = [PREFACE, &frame(SETTINGS, 0, 0, &initial_window_size)].concat();
    if let Some(more @ 1..) = credit.checked_sub(INITIAL_CREDIT) {
        sent.extend(window_update(0, more));
    }
    // GET and https from the static table; :path and :authority as literals without indexing.
    let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len())?];
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    sent.extend(frame(HEADERS, END_STREAM_AND_HEADERS, 1, &block));
    Ok(sent)
}

async fn read_head(stream: &mut Tls) -> Result<Head> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]).try_into()?;
    Ok(Head { length, kind: head[3], flags: head[4] })
}

async fn send(stream: &mut Tls, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Reads the payload of a frame other than DATA, and acknowledges it if need be.
async fn handle(stream: &mut Tls, head: &Head) -> Result<Vec<u8>> {
    let mut payload = vec![0; head.length];
    stream.read_exact(&mut payload).await?;
    ensure!(![RST_STREAM, GOAWAY].contains(&head.kind), "frame {} {payload:?}", head.kind);
    if [SETTINGS, PING].contains(&head.kind) && head.flags & ACK == 0 {
        let echo = if head.kind == PING { &payload[..] } else { &[] };
        send(stream, &frame(head.kind, ACK, 0, echo)).await?;
    }
    Ok(payload)
}

async fn connect(port: u16) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_mss(SEGMENT)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    Ok(TcpSocket::from_std_stream(socket.into())
        .connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .await?)
}

/// Opens a connection; returns once the server's SETTINGS, or the head of the response, have arrived.
async fn open(connector: TlsConnector, port: u16, download: Option<Download>) -> Result<Tls> {
    let mut stream =
        connector.connect(ServerName::try_from("localhost")?, connect(port).await?).await?;
    send(&mut stream, &opening(download.as_ref())?).await?;
    let last = if download.is_some() { HEADERS } else { SETTINGS };
    let mut first = true;
    loop {
        let head = read_head(&mut stream).await?;
        ensure!(
            !first || head.kind == SETTINGS,
            "the first frame is of type {}, not SETTINGS",
            head.kind
        );
        first = false;
        let payload = handle(&mut stream, &head).await?;
        ensure!(head.kind != HEADERS || payload.contains(&STATUS_200), "the status is not 200");
        if head.kind == last {
            return Ok(stream);
        }
    }
}

/// Reads 1 KB each second and returns its credit.
async fn read_slowly(mut stream: Tls) -> Result<()> {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut bytes = [0; READ_EACH_SECOND as usize];
    let mut left_of_frame = 0;
    loop {
        second.tick().await;
        let mut room = bytes.len();
        while room > 0 {
            if left_of_frame == 0 {
                let head = read_head(&mut stream).await?;
                if head.kind == DATA {
                    left_of_frame = head.length;
                } else {
                    handle(&mut stream, &head).await?;
                }
            } else {
                let some = room.min(left_of_frame);
                stream.read_exact(&mut bytes[..some]).await?;
                (room, left_of_frame) = (room - some, left_of_frame - some);
            }
        }
        let credit =
            [window_update(0, READ_EACH_SECOND), window_update(1, READ_EACH_SECOND)].concat();
        send(&mut stream, &credit).await?;
    }
}

/// Waits for the end of an idle connection. It needs no TLS session for that, which 100,000 of them save.
async fn stay_idle(stream: Tls) -> Result<()> {
    let (mut tcp, _) = stream.into_inner();
    while tcp.read(&mut [0; 64]).await? > 0 {}
    anyhow::bail!("closed by the server")
}

async fn hold(stream: Tls, download: bool) {
    let ended = if download { read_slowly(stream).await } else { stay_idle(stream).await };
    if let Err(error) = ended {
        eprintln!("a connection has ended: {error}");
        std::process::exit(1);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (port, ca, count, download) = match args.as_slice() {
        [port, ca, count] => (port, ca, count, None),
        [port, ca, count, path, credit] => {
            (port, ca, count, Some(Download { path: path.clone(), credit: credit.parse()? }))
        }
        _ => anyhow::bail!("usage: hold PORT CA COUNT [PATH CREDIT]"),
    };
    let (port, count): (u16, usize) = (port.parse()?, count.parse()?);
    let connector = TlsConnector::from(Arc::new(tls(ca.as_ref())?));
    let start = Instant::now();
    let mut held = 0;
    while held < count {
        let opening: Vec<_> = (0..AT_ONCE.min(count - held))
            .map(|_| tokio::spawn(open(connector.clone(), port, download.clone())))
            .collect();
        for task in opening {
            let stream = task.await?.with_context(|| format!("connection {held}"))?;
            tokio::spawn(hold(stream, download.is_some()));
            held += 1;
        }
    }
    println!("holding {held} after {:.1} s", start.elapsed().as_secs_f64());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
