//! The download beside the page: HTTPS through the agent's proxy, like any other program's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use smig_lab::workload::build_connector;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::error::BrowserError;
use super::scenario::BIG_FILE_NAME;

/// A running download. It ends on drop.
#[derive(Debug)]
pub(super) struct Download {
    received_bytes: Arc<AtomicU64>,
    fetch_task: JoinHandle<Result<(), String>>,
    /// Its thread is in the host of the thread that started the download.
    runtime: Runtime,
}

impl Download {
    /// Starts the download in the calling thread's host, from a server with this certificate.
    pub(super) fn start(
        proxy: SocketAddr,
        server: SocketAddr,
        certificate: String,
    ) -> Result<Self, BrowserError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let received_bytes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received_bytes);
        let fetch_task =
            runtime.spawn(async move { fetch(proxy, server, &certificate, &count).await });
        Ok(Self { received_bytes, fetch_task, runtime })
    }

    /// Returns the number of body bytes received so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Returns an error if the download has ended, which it must not.
    pub(super) fn check_running(&mut self) -> Result<(), BrowserError> {
        if !self.fetch_task.is_finished() {
            return Ok(());
        }
        let result = self.runtime.block_on(&mut self.fetch_task);
        let result = result.map_err(|_| BrowserError::Panicked("download"))?;
        let why = result.err().unwrap_or_else(|| "it ended before the last page load".to_owned());
        Err(BrowserError::Download(why))
    }
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn fetch(
    proxy: SocketAddr,
    server: SocketAddr,
    certificate: &str,
    bytes: &AtomicU64,
) -> Result<(), String> {
    let mut tcp = TcpStream::connect(proxy).await.map_err(to_text)?;
    open_tunnel(&mut tcp, &server.to_string()).await.map_err(to_text)?;
    let name = ServerName::IpAddress(server.ip().into());
    let tls = build_connector(certificate)?.connect(name, tcp).await.map_err(to_text)?;
    let (mut sender, connection) = handshake(TokioIo::new(tls)).await.map_err(to_text)?;
    // Its errors also fail the response.
    tokio::spawn(connection);
    let request = Request::get(format!("/{BIG_FILE_NAME}"))
        .header(http::header::HOST, server.ip().to_string())
        .body(Empty::<Bytes>::new())
        .map_err(to_text)?;
    let response = sender.send_request(request).await.map_err(to_text)?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status()));
    }
    let mut body: Incoming = response.into_body();
    while let Some(frame) = body.frame().await {
        let size = frame.map_err(to_text)?.data_ref().map_or(0, Bytes::len);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open_with_response(response: &'static str) -> (io::Result<()>, String) {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut proxy) = tokio::io::duplex(1 << 10);
            proxy.write_all(response.as_bytes()).await.unwrap();
            let result = open_tunnel(&mut client, "10.0.0.1:443").await;
            drop(proxy);
            let mut remaining = String::new();
            client.read_to_string(&mut remaining).await.unwrap();
            (result, remaining)
        })
    }

    #[test]
    fn bytes_after_the_proxys_response_belong_to_the_tunnel() {
        let (result, remaining) = open_with_response("HTTP/1.1 200 OK\r\nvia: x\r\n\r\nTLS!");
        result.unwrap();
        assert_eq!(remaining, "TLS!");
    }

    #[test]
    fn a_refused_tunnel_is_an_error() {
        let (result, _) = open_with_response("HTTP/1.1 502 Bad Gateway\r\n\r\n");
        assert!(result.unwrap_err().to_string().contains("502"));
    }
}
