//! The agent's SOCKS5 proxy.

use smig_agent::Agent;
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Gateway, default_spec, echo, origin, spec};

/// Performs the handshake and sends a request; returns the reply's code.
async fn request_tunnel(agent: &Agent, request: &[u8]) -> (TcpStream, u8) {
    let mut tcp = TcpStream::connect(agent.socks_addrs()[0]).await.unwrap();
    tcp.write_all(&[5, 2, 2, 0]).await.unwrap();
    let mut chosen = [0; 2];
    tcp.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    tcp.write_all(request).await.unwrap();
    let mut reply = [0; 10];
    tcp.read_exact(&mut reply).await.unwrap();
    assert_eq!((reply[0], reply[2], reply[3]), (5, 0, 1));
    (tcp, reply[1])
}

fn request(command: u8, kind: u8, host: &[u8], port: u16) -> Vec<u8> {
    [&[5, command, 0, kind], host, &port.to_be_bytes()].concat()
}

fn domain_name(name: &str) -> Vec<u8> {
    [&[name.len() as u8], name.as_bytes()].concat()
}

async fn assert_echo(mut tcp: TcpStream) {
    tcp.write_all(b"hello").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut echoed = String::new();
    tcp.read_to_string(&mut echoed).await.unwrap();
    assert_eq!(echoed, "hello");
}

#[tokio::test]
async fn addresses_and_names_are_reached() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let port = origin(echo).await.port();
    for (kind, host) in
        [(1, vec![127, 0, 0, 1]), (3, domain_name("localhost")), (3, domain_name("127.0.0.1"))]
    {
        let (tcp, reply) = request_tunnel(&agent, &request(1, kind, &host, port)).await;
        assert_eq!(reply, 0);
        assert_echo(tcp).await;
    }
}

#[tokio::test]
async fn each_failure_has_its_reply() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let unused_port = ReservedPort::new();
    let port = unused_port.addr().port();
    let loopback = [127, 0, 0, 1];
    for (message, expected) in [
        (request(1, 1, &loopback, port), 5),
        (request(1, 1, &[10, 0, 0, 1], port), 2),
        (request(1, 4, &std::net::Ipv6Addr::LOCALHOST.octets(), port), 2),
        (request(1, 3, &domain_name("localhost"), 25), 2),
        (request(2, 1, &loopback, port), 7),
        (request(3, 1, &loopback, port), 7),
        (vec![5, 1, 0, 9], 8),
        (request(1, 3, &domain_name("a@b"), port), 4),
        (request(1, 3, &domain_name(""), port), 4),
    ] {
        let (mut tcp, reply) = request_tunnel(&agent, &message).await;
        assert_eq!(reply, expected, "{message:?}");
        assert_eq!(tcp.read(&mut [0]).await.unwrap(), 0, "{message:?}");
    }
    let gateway = Gateway::start(default_spec());
    let agent = gateway.agent(Vec::new()).await;
    assert_eq!(request_tunnel(&agent, &request(1, 1, &loopback, port)).await.1, 2);
}

#[tokio::test]
async fn authentication_is_not_supported() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let mut tcp = TcpStream::connect(agent.socks_addrs()[0]).await.unwrap();
    tcp.write_all(&[5, 1, 2]).await.unwrap();
    let mut response = Vec::new();
    tcp.read_to_end(&mut response).await.unwrap();
    assert_eq!(response, [5, 0xff]);
    let mut tcp = TcpStream::connect(agent.socks_addrs()[0]).await.unwrap();
    // SOCKS4. The proxy may close before it has read everything.
    tcp.write_all(&[4]).await.unwrap();
    assert_eq!(tcp.read(&mut [0]).await.unwrap(), 0);
}
