//! A reverse proxy without a front: `reverse LISTEN CERTIFICATE KEY SERVER...`, or without TLS
//! `reverse LISTEN - - SERVER...`. What `bench/gateway` measures.

use std::convert::Infallible;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use smig::{ClearTrust, ConnectionInfo, Incoming, Server, ServerTls};
use smig_gateway::proxy::{self, Body};
use smig_gateway::upstream::{Upstream, UpstreamSpec};

#[derive(Clone)]
struct Front(Arc<Upstream>);

impl tower_service::Service<Request<Incoming>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let upstream = Arc::clone(&self.0);
        Box::pin(async move {
            let info = request.extensions().get::<Arc<ConnectionInfo>>();
            let client = info.map_or_else(|| ([0; 4], 0).into(), |info| info.peer_addr());
            Ok(proxy::exchange(request, &upstream, client).await)
        })
    }
}

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next =
        |what: &'static str| args.next().ok_or_else(|| anyhow::anyhow!("{what} is missing"));
    let listen = next("the address to listen at")?.parse()?;
    let (certificate, key) = (next("the certificate's file")?, next("the key's file")?);
    let servers = args.map(|url| url.parse().map_err(anyhow::Error::msg));
    let upstream = Upstream::new("all", &UpstreamSpec::new(servers.collect::<Result<_, _>>()?))?;
    let server = Server::builder().workers(NonZeroUsize::MIN);
    let server = match &*certificate {
        "-" => server.listen_cleartext(listen, ClearTrust::None),
        _ => {
            server.listen(listen, ServerTls::from_files(Path::new(&certificate), Path::new(&key))?)
        }
    };
    let server = server.start(Front(upstream))?;
    println!("listens at {:?}", server.local_addrs());
    loop {
        std::thread::park();
    }
}
