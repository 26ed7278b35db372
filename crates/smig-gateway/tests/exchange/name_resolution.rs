//! Server names: several addresses, unreachable ones, and addresses that change.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{CleartextTrust, Incoming, Resolver, Server};
use socket2::{Domain, Socket, Type};

use crate::support::{Gateway, client, get, spec, text};

/// A server that responds with its name.
fn named_server(addr: SocketAddr, name: &'static str) -> Result<Server, smig::Error> {
    let handler = async move |_: Request<Incoming>| {
        Ok::<_, io::Error>(Response::new(Full::new(Bytes::from_static(name.as_bytes()))))
    };
    Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(addr, CleartextTrust::None)
        .start(tower::service_fn(handler))
}

/// Two servers on the same port of two addresses.
fn two_servers() -> (Server, Server, u16) {
    loop {
        let first = named_server(SocketAddr::from(([127, 0, 0, 1], 0)), "first").unwrap();
        let port = first.local_addrs()[0].port();
        // Another process may have that port.
        if let Ok(second) = named_server(SocketAddr::from(([127, 0, 0, 2], port)), "second") {
            return (first, second, port);
        }
    }
}

async fn ask(gateway: &Gateway) -> String {
    text(client().request(get(gateway.url("/"))).await.unwrap().into_body()).await
}

#[tokio::test]
async fn a_dead_address_does_not_hide_a_good_one() {
    let server = named_server(SocketAddr::from(([127, 0, 0, 1], 0)), "good").unwrap();
    let port = server.local_addrs()[0].port();
    // An address with a full accept queue does not accept connections.
    let dead_listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    dead_listener.bind(&SocketAddr::from(([127, 0, 0, 3], port)).into()).unwrap();
    dead_listener.listen(0).unwrap();
    let fill = || {
        std::net::TcpStream::connect_timeout(
            &SocketAddr::from(([127, 0, 0, 3], port)),
            Duration::from_millis(100),
        )
    };
    let _full: Vec<_> = std::iter::from_fn(|| fill().ok()).collect();
    for scheme in ["http", "h2c"] {
        let resolver = Resolver::from_fn(|_| {
            Ok(vec![Ipv4Addr::new(127, 0, 0, 3).into(), Ipv4Addr::LOCALHOST.into()])
        });
        let mut spec = spec(&[&format!("{scheme}://a.example:{port}")]);
        // The unreachable address alone would use up this timeout.
        spec.timeouts.connect = Duration::from_secs(60);
        let gateway = Gateway::with_resolver(&spec, resolver);
        assert_eq!(ask(&gateway).await, "good");
    }
}

#[tokio::test]
async fn a_dead_address_of_the_other_family_does_not_hide_a_good_one() {
    let server = named_server(SocketAddr::from(([127, 0, 0, 1], 0)), "good").unwrap();
    let port = server.local_addrs()[0].port();
    for scheme in ["http", "h2c"] {
        // An AAAA record to which there is no route, or at which nothing answers: for documentation (RFC 3849).
        let resolver = Resolver::from_fn(|_| {
            let dead = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            Ok(vec![dead.into(), Ipv4Addr::LOCALHOST.into()])
        });
        let mut spec = spec(&[&format!("{scheme}://a.example:{port}")]);
        spec.timeouts.connect = Duration::from_secs(60);
        let gateway = Gateway::with_resolver(&spec, resolver);
        assert_eq!(ask(&gateway).await, "good");
    }
}

#[tokio::test]
async fn requests_follow_a_name_to_its_new_address() {
    for scheme in ["http", "h2c"] {
        let (_first, _second, port) = two_servers();
        let last_byte = Arc::new(AtomicUsize::new(1));
        let current_last_byte = Arc::clone(&last_byte);
        let resolver = Resolver::from_fn(move |_| {
            let last = u8::try_from(current_last_byte.load(Ordering::Relaxed)).unwrap();
            Ok(vec![IpAddr::from([127, 0, 0, last])])
        });
        let mut spec = spec(&[&format!("{scheme}://a.example:{port}")]);
        spec.dns_cache_time = Duration::ZERO;
        let gateway = Gateway::with_resolver(&spec, resolver);
        assert_eq!(ask(&gateway).await, "first");
        last_byte.store(2, Ordering::Relaxed);
        // The idle connection is closed once the name has been resolved to another address.
        while ask(&gateway).await != "second" {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask(&gateway).await, "second");
    }
}
