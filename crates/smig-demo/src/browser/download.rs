//! The download beside the page: HTTPS through the agent's proxy, like any other program's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use smig_lab::workload::connector;
use smig_testbed::netns::{Host, HostThread};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::error::BrowserError;
use super::material::{ADDRESS, BIG_FILE, ORIGIN_PORT};

/// Poll interval of the stop flag: a dropped download ends within this time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A running download. It ends on drop.
pub(super) struct Download {
    bytes: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<HostThread<Result<(), String>>>,
}

impl Download {
    /// Starts the download in the browser's host.
    pub(super) fn start(
        host: &Host,
        proxy: SocketAddr,
        certificate: &str,
    ) -> Result<Self, BrowserError> {
        let (bytes, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&bytes), Arc::clone(&ended));
        let certificate = certificate.to_owned();
        let thread = host.run(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(shown)?.block_on(async {
                let mut clock = tokio::time::interval(LOOK_EVERY);
                let fetch = fetch(proxy, &certificate, &count);
                tokio::pin!(fetch);
                loop {
                    tokio::select! {
                        ended = &mut fetch => return ended,
                        _ = clock.tick() => if end.load(Ordering::Relaxed) { return Ok(()) },
                    }
                }
            })
        })?;
        Ok(Self { bytes, ended, thread: Some(thread) })
    }

    /// Returns the bytes of its body so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns an error if the download has ended.
    pub(super) fn check(&mut self) -> Result<(), BrowserError> {
        let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) else {
            return Ok(());
        };
        let ended = thread.join().map_err(|_| BrowserError::Panicked("download"))?;
        let why = ended.err().unwrap_or_else(|| "it ended before the last page load".to_owned());
        Err(BrowserError::Download(why))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The download is no longer needed, so its outcome does not matter.
            let _ = thread.join();
        }
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn fetch(proxy: SocketAddr, certificate: &str, bytes: &AtomicU64) -> Result<(), String> {
    let mut tcp = TcpStream::connect(proxy).await.map_err(shown)?;
    open_tunnel(&mut tcp, &format!("{ADDRESS}:{ORIGIN_PORT}")).await.map_err(shown)?;
    let name = ServerName::IpAddress(std::net::IpAddr::V4(ADDRESS).into());
    let tls = connector(certificate)?.connect(name, tcp).await.map_err(shown)?;
    let (mut sender, connection) = handshake(TokioIo::new(tls)).await.map_err(shown)?;
    // Its errors are also those of the response.
    tokio::spawn(connection);
    let request = Request::get(format!("/{BIG_FILE}"))
        .header(http::header::HOST, ADDRESS.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(shown)?;
    let response = sender.send_request(request).await.map_err(shown)?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status()));
    }
    let mut body: Incoming = response.into_body();
    while let Some(frame) = body.frame().await {
        let size = frame.map_err(shown)?.data_ref().map_or(0, Bytes::len);
        bytes.fetch_add(size as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Requests a tunnel from a proxy.
async fn open_tunnel<S>(proxy: &mut S, target: &str) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    proxy.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // Byte by byte: the data after the header section belongs to the tunnel.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8 << 10 {
            return Err(io::Error::other("the header section of the proxy's response is too long"));
        }
        head.push(proxy.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(io::Error::other(format!("the proxy refused the tunnel: {line}")))
        }
    }
}

/// Sends a GET in cleartext to a server of a host, and returns the response.
pub(super) fn get(host: &Host, at: SocketAddr, path: &str) -> Result<String, BrowserError> {
    let path = path.to_owned();
    let asked = host.run(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(shown)?.block_on(async {
            let tcp = TcpStream::connect(at).await.map_err(shown)?;
            let (mut sender, connection) = handshake(TokioIo::new(tcp)).await.map_err(shown)?;
            tokio::spawn(connection);
            let request = Request::get(path)
                .header(http::header::HOST, at.to_string())
                .body(Empty::<Bytes>::new())
                .map_err(shown)?;
            let response = sender.send_request(request).await.map_err(shown)?;
            let body = response.into_body().collect().await.map_err(shown)?.to_bytes();
            Ok(String::from_utf8_lossy(&body).into_owned())
        })
    })?;
    let answer: Result<String, String> =
        asked.join().map_err(|_| BrowserError::Panicked("host"))?;
    answer.map_err(|why| BrowserError::Io(io::Error::other(format!("{at}: {why}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(answer: &'static str) -> (io::Result<()>, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, mut far) = tokio::io::duplex(1 << 10);
            far.write_all(answer.as_bytes()).await.unwrap();
            let opened = open_tunnel(&mut near, "10.0.0.1:443").await;
            drop(far);
            let mut rest = String::new();
            near.read_to_string(&mut rest).await.unwrap();
            (opened, rest)
        })
    }

    #[test]
    fn what_comes_behind_the_proxys_answer_is_the_tunnels() {
        let (opened, rest) = answered("HTTP/1.1 200 OK\r\nvia: x\r\n\r\nTLS!");
        opened.unwrap();
        assert_eq!(rest, "TLS!");
    }

    #[test]
    fn a_proxy_that_refuses_is_an_error() {
        let (opened, _) = answered("HTTP/1.1 502 Bad Gateway\r\n\r\n");
        assert!(opened.unwrap_err().to_string().contains("502"));
    }
}
