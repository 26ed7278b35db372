//! A minimal server: cleartext, the same text for every request, whether it has a body or not.
//!
//! `cargo run -p smig --example hello -- 127.0.0.1:8080`, then `curl --http2-prior-knowledge
//! 127.0.0.1:8080`. The httpwg HTTP/2 test suite uses it.

use std::num::NonZeroUsize;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{BoxError, CleartextTrust, Incoming, Server};
use tower::service_fn;

/// Long enough that a small flow-control window splits it.
const TEXT: Bytes = Bytes::from_static(&[b'.'; 512]);

fn main() -> Result<(), BoxError> {
    let addr =
        std::env::args().nth(1).ok_or("missing argument: address, such as 127.0.0.1:8080")?;
    let server = Server::builder()
        .listen_cleartext(addr.parse()?, CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(service_fn(|_: Request<Incoming>| {
            std::future::ready(Ok::<_, BoxError>(Response::new(Full::new(TEXT))))
        }))?;
    for addr in server.local_addrs() {
        println!("listening on http://{addr}");
    }
    loop {
        std::thread::park();
    }
}
