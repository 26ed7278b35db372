//! A server with response bodies of fixed sizes from memory, to measure only the library.
//!
//! `cargo run --release -p smig --example fixed -- 127.0.0.1:8443 [workers]`, then request `/1024`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{BoxError, CleartextTrust, Incoming, Server, ServerTls};
use tower::service_fn;

fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let addr: std::net::SocketAddr = args.next().ok_or("missing argument: address")?.parse()?;
    let workers = args.next().as_deref().unwrap_or("1").parse::<NonZeroUsize>()?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let tls = ServerTls::from_pem(
        made.cert.pem().as_bytes(),
        made.signing_key.serialize_pem().as_bytes(),
    )?;
    let bodies: BTreeMap<String, Bytes> = [0, 1 << 10, 10 << 10, 128 << 10, 50 << 20]
        .into_iter()
        .map(|len| (format!("/{len}"), Bytes::from(vec![b'x'; len])))
        .collect();
    let bodies = Arc::new(bodies);
    let service = service_fn(move |request: Request<Incoming>| {
        let body = bodies.get(request.uri().path()).cloned();
        std::future::ready(Ok::<_, BoxError>(match body {
            Some(body) => Response::new(Full::new(body)),
            None => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                response
            }
        }))
    });
    let cleartext_addr = std::net::SocketAddr::new(addr.ip(), addr.port() + 1);
    let server = Server::builder()
        .listen(addr, tls)
        .listen_cleartext(cleartext_addr, CleartextTrust::None)
        .workers(workers)
        .start(service)?;
    println!("https://{addr} and http://{cleartext_addr}");
    loop {
        std::thread::park();
        println!("{:?}", server.stats());
    }
}
