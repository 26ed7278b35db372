//! hyper's own HTTP/1.1 server, without our code: responds to every request with a summary of what
//! it received, in the field `x-seen`. `interop/framing` puts it behind a gateway.

use std::convert::Infallible;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    // An incomplete request gets no response.
    let body = body.collect().await?.to_bytes();
    let mut summary = format!("{} {} {} ", parts.method, parts.uri, body.len());
    for byte in Sha256::digest(&body).iter().take(8) {
        write!(summary, "{byte:02x}")?;
    }
    let response_body = Full::from(format!("seen {summary}\n"));
    Response::builder()
        .header("x-seen", summary)
        .body(response_body)
        .context("the target is not a field value")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<Infallible> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        tokio::spawn(async move {
            let server = hyper::server::conn::http1::Builder::new();
            // Failed connections are expected: the requests are attacks.
            let _ = server.serve_connection(TokioIo::new(tcp), service_fn(respond)).await;
        });
    }
}
