//! An HTTP server with hyper and tokio-rustls on one thread, which serves the files of a directory
//! from memory: `hyper-peer DIR CERT KEY`.
//!
//! A baseline: a minimal server, without file I/O, ranges or validators.

use std::{collections::HashMap, convert::Infallible, path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming, header, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

type Files = HashMap<String, Bytes>;

fn load(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = format!("/{}", entry.file_name().to_string_lossy());
            files.insert(name, std::fs::read(entry.path())?.into());
        }
    }
    Ok(files)
}

fn tls(cert: &Path, key: &Path) -> Result<rustls::ServerConfig> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn answer(files: &Files, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    match files.get(request.uri().path()) {
        Some(file) => {
            let kind = header::HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            *response.body_mut() = Full::new(file.clone());
        }
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, folder, cert, key] = args.as_slice() else {
        anyhow::bail!("usage: hyper-peer DIR CERT KEY")
    };
    let files = Arc::new(load(folder.as_ref()).with_context(|| format!("cannot read {folder}"))?);
    let acceptor = TlsAcceptor::from(Arc::new(tls(cert.as_ref(), key.as_ref())?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on https://{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let (acceptor, files) = (acceptor.clone(), Arc::clone(&files));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| {
                let response = answer(&files, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http2().max_concurrent_streams(1000);
            // The load generator handles failed connections.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
