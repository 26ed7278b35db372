//! Forwarded ports: individual requests for HTTP/2, tunnels for all other protocols.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use smig::{Cleartext, CleartextTrust, Client, NegotiatedProtocol, Origin};
use smig_agent::{Agent, AgentOptions, PortForward, PortProtocol, UplinkState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use smig_testkit::port::ReservedPort;

use crate::support::{Gateway, bytes, echo, echo_server, loopback, origin, spec, wait_for_state};

fn new_forward(target: std::net::SocketAddr, protocol: PortProtocol) -> PortForward {
    PortForward { listen: loopback(), target: target.to_string().parse().unwrap(), protocol }
}

#[tokio::test]
async fn each_http2_request_is_a_stream_of_its_own() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let forward = new_forward(server.local_addrs()[0], PortProtocol::Detect);
    let agent = gateway.agent(vec![forward]).await;
    wait_for_state(&agent, |link| *link == UplinkState::Up(NegotiatedProtocol::Smig)).await;
    let cleartext = Cleartext::PriorKnowledge(CleartextTrust::None);
    let client = Client::builder().cleartext(cleartext).build().unwrap();
    let url = format!("http://{}/package.Service/Call", agent.forward_addrs()[0]);
    let call = async |payload: bytes::Bytes| {
        let request = Request::builder()
            .method(Method::POST)
            .uri(&url)
            .header("te", "trailers")
            .body(Full::new(payload.clone()))
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.headers()["x-version"], "HTTP/2.0");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-length"], payload.len().to_string());
        assert!(body.to_bytes() == payload);
    };
    let (small, big) = (bytes(10), bytes(2 << 20));
    tokio::join!(call(small.clone()), call(big), call(small.clone()), call(small));
    assert_eq!(client.stats().connections_opened, 1);
    assert_eq!(gateway.server.stats().streams_opened, 4);
    assert!(gateway.server.stats().migrations > 0, "the large one migrated");
    assert_eq!(server.stats().connections_opened, 1);
}

#[tokio::test]
async fn a_grpc_call_without_a_gateway_gets_a_grpc_status() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let forward = new_forward(server.local_addrs()[0], PortProtocol::Detect);
    let agent = gateway.agent(vec![forward]).await;
    wait_for_state(&agent, |link| *link == UplinkState::Up(NegotiatedProtocol::Smig)).await;
    let cleartext = Cleartext::PriorKnowledge(CleartextTrust::None);
    let client = Client::builder().cleartext(cleartext).build().unwrap();
    let call = async |media_type: &str| {
        let request = Request::post(format!("http://{}/Call", agent.forward_addrs()[0]))
            .header("content-type", media_type)
            .body(Full::<bytes::Bytes>::default())
            .unwrap();
        client.request(request).await.unwrap()
    };
    assert_eq!(call("application/grpc").await.status(), 200);
    drop(gateway.server);
    wait_for_state(&agent, |link| matches!(link, UplinkState::Unreachable(_))).await;
    let failed_response = call("application/grpc").await;
    assert_eq!(
        (failed_response.status().as_u16(), &failed_response.headers()["grpc-status"]),
        (200, &"14".parse().unwrap())
    );
    assert!(
        failed_response.headers()["grpc-message"].to_str().unwrap().contains("cannot be reached")
    );
    assert_eq!(call("text/plain").await.status(), 502);
}

#[tokio::test]
async fn everything_else_is_a_tunnel() {
    let gateway = Gateway::start(spec());
    let greeting_server = origin(async |mut tcp: TcpStream| {
        tcp.write_all(b"hello").await.unwrap();
        echo(tcp).await;
    })
    .await;
    let forwards =
        [PortProtocol::Detect, PortProtocol::Tcp].map(|p| new_forward(greeting_server, p));
    let agent = gateway.agent(forwards.into()).await;
    for &addr in agent.forward_addrs() {
        // The server sends first.
        let mut tcp = TcpStream::connect(addr).await.unwrap();
        let mut greeting = [0; 5];
        tcp.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello");
        // Bytes that start like HTTP/2 but are not.
        let mut tcp = TcpStream::connect(addr).await.unwrap();
        tcp.write_all(b"PRI * HTTP/1").await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut echoed = String::new();
        tcp.read_to_string(&mut echoed).await.unwrap();
        assert_eq!(echoed, "helloPRI * HTTP/1");
    }
}

#[tokio::test]
async fn a_refused_destination_resets_the_connection() {
    let gateway = Gateway::start(spec());
    let unused_port = ReservedPort::new();
    let agent = gateway.agent(vec![new_forward(unused_port.addr(), PortProtocol::Tcp)]).await;
    let mut tcp = TcpStream::connect(agent.forward_addrs()[0]).await.unwrap();
    let error = tcp.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Waits until no connection to a port of 127.0.0.1 is left for its listener to accept.
async fn wait_until_accepted(port: u16) {
    const LISTEN_STATE: &str = "0A";
    let listener = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]));
    loop {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = sockets.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row =
            rows.find(|row| row[1] == listener && row[3] == LISTEN_STATE).expect("a listener");
        // A listener's receive queue counts the connections that it has not accepted yet.
        let (_, queue) = row[4].split_once(':').unwrap();
        if queue == "00000000" {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tunnel_that_was_never_opened_is_reset_at_shutdown() {
    let gateway = Gateway::start(spec());
    // It accepts connections, and sends nothing.
    let silent_server = TcpListener::bind(loopback()).await.unwrap();
    let silent_gateway = Origin::https("127.0.0.1", silent_server.local_addr().unwrap().port());
    // Also with time to drain: no request waits for a connection that the agent no longer establishes.
    for (protocol, drain_timeout) in [
        (PortProtocol::Tcp, Duration::ZERO),
        (PortProtocol::Detect, Duration::ZERO),
        (PortProtocol::Tcp, Duration::from_secs(3600)),
        (PortProtocol::Detect, Duration::from_secs(3600)),
    ] {
        let forwards = vec![new_forward(loopback(), protocol)];
        let options =
            AgentOptions { gateway: silent_gateway.clone(), forwards, ..gateway.agent_options() };
        let agent = Agent::start(options, gateway.client_builder()).await.unwrap();
        let mut tcp = TcpStream::connect(agent.forward_addrs()[0]).await.unwrap();
        // Otherwise the kernel would reset it.
        let accepted = wait_until_accepted(agent.forward_addrs()[0].port());
        tokio::time::timeout(Duration::from_secs(60), accepted).await.expect("it is accepted");
        let shutdown = agent.shutdown(drain_timeout);
        tokio::time::timeout(Duration::from_secs(60), shutdown).await.expect("it shuts down");
        let error = tcp.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
