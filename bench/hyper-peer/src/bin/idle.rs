//! Opens HTTP/2 connections over TLS and keeps them idle: `idle PORT CA COUNT`.
//!
//! Each connection sends the preface and an empty SETTINGS frame and acknowledges the server's
//! SETTINGS, so that the server has done all its work before a first request. Prints "holding COUNT
//! after SECONDS s" when all connections are open, and exits at the end of its standard input.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::{Context, Result, bail};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const SETTINGS_ACK: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];
const AT_ONCE: usize = 64;

fn tls(ca: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca)? {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn open(connector: TlsConnector, port: u16) -> Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;
    stream.write_all(&[PREFACE, &EMPTY_SETTINGS].concat()).await?;
    stream.flush().await?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    if head[3] != 4 {
        bail!("the server's first frame is of type {}, not SETTINGS", head[3]);
    }
    let mut settings = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut settings).await?;
    stream.write_all(&SETTINGS_ACK).await?;
    stream.flush().await?;
    Ok(stream)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, port, ca, count] = args.as_slice() else { bail!("usage: idle PORT CA COUNT") };
    let (port, count): (u16, usize) = (port.parse()?, count.parse()?);
    let connector = TlsConnector::from(Arc::new(tls(ca.as_ref())?));
    let start = Instant::now();
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        let batch = AT_ONCE.min(count - held.len());
        let opening: Vec<_> =
            (0..batch).map(|_| tokio::spawn(open(connector.clone(), port))).collect();
        for task in opening {
            held.push(task.await?.with_context(|| format!("connection {}", held.len()))?);
        }
    }
    println!("holding {} after {:.1} s", held.len(), start.elapsed().as_secs_f64());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
