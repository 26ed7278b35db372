//! The agent's HTTP proxy.

use std::io::ErrorKind;
use std::time::Duration;

use smig::{Config, NegotiatedProtocol};
use smig_admin::AdminSpec;
use smig_agent::{self as agent, Agent, AgentOptions, Credentials, UplinkState};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    Gateway, bytes, connect, default_spec, echo, echo_server, loopback, origin, read_head, spec,
    wait_for_report, wait_for_state,
};

/// Sends a request with `Connection: close`, and reads the complete response.
async fn send_request(agent: &Agent, request: &[u8]) -> Vec<u8> {
    let mut tcp = TcpStream::connect(agent.http_addrs()[0]).await.unwrap();
    tcp.write_all(request).await.unwrap();
    let mut response = Vec::new();
    tcp.read_to_end(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn a_tunnel_relays_both_directions_and_half_close() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let (mut tcp, head) = connect(&agent, origin(echo).await).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let payload = bytes(4 << 20);
    let (mut reader, mut writer) = tcp.split();
    let mut received_bytes = Vec::new();
    let writing = async {
        writer.write_all(&payload).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let (read_result, ()) = tokio::join!(reader.read_to_end(&mut received_bytes), writing);
    read_result.unwrap();
    assert!(received_bytes == payload);
    assert!(gateway.server.stats().migrations > 0, "the large transfer migrated");
}

#[tokio::test]
async fn requests_go_to_their_origin() {
    let (gateway, server) = (Gateway::start(spec()), echo_server());
    let agent = gateway.agent(Vec::new()).await;
    let addr = server.local_addrs()[0];
    let payload = bytes(200_000);
    let head = format!(
        "POST http://{addr}/x HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {}\r\n\
         Proxy-Authorization: Basic bm90IGZvciB0aGUgZ2F0ZXdheQ==\r\nConnection: close\r\n\r\n",
        payload.len()
    );
    let response = send_request(&agent, &[head.as_bytes(), &payload].concat()).await;
    let text = String::from_utf8_lossy(&response);
    assert!(text.starts_with("HTTP/1.1 200"), "{}", text.lines().next().unwrap_or_default());
    assert!(text.contains("x-version: HTTP/1.1"));
    // The length is not known in advance, so the body is chunked.
    assert!(response.windows(1000).any(|part| part == &payload[100_000..101_000]));
}

#[tokio::test]
async fn the_pac_file_names_the_proxies() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let response = send_request(&agent, get("/proxy.pac").as_bytes()).await;
    let text = String::from_utf8(response).unwrap();
    assert!(text.contains("application/x-ns-proxy-autoconfig"));
    let (http, socks) = (agent.http_addrs()[0], agent.socks_addrs()[0]);
    assert!(text.contains(&format!("\"PROXY {http}; SOCKS5 {socks}\"")), "{text}");
    // Hosts of an intranet are not hosts of this machine.
    let direct = "if (host == \"localhost\" || dnsDomainIs(host, \".localhost\") ||\n      \
                  /^127(\\.\\d+){3}$/.test(host) || host == \"[::1]\" || host == \"::1\")";
    assert!(text.contains(direct), "{text}");
    let response = send_request(&agent, get("/other").as_bytes()).await;
    assert!(response.starts_with(b"HTTP/1.1 404"));
}

#[tokio::test]
async fn refusals_of_the_gateway_have_a_status_and_a_text() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let unused_port = ReservedPort::new();
    let target = unused_port.addr();
    let (mut tcp, head) = connect(&agent, target).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let mut page = String::new();
    tcp.read_to_string(&mut page).await.unwrap();
    assert!(page.contains(&target.to_string()), "{page}");

    let gateway = Gateway::start(default_spec());
    let agent = gateway.agent(Vec::new()).await;
    let (_, head) = connect(&agent, target).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");

    let credentials = Credentials::bearer("wrong");
    let options = AgentOptions { credentials, ..gateway.agent_options() };
    let agent = Agent::start(options, gateway.client_builder()).await.unwrap();
    let (_, head) = connect(&agent, target).await;
    // A 407 would make a browser prompt for a password.
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
}

#[tokio::test]
async fn an_agent_without_migration_works() {
    let gateway = Gateway::start(spec());
    let config = Config { smig: None, ..agent::engine_config() };
    let client = gateway.client_builder().engine(config);
    let agent = Agent::start(gateway.agent_options(), client).await.unwrap();
    assert_eq!(
        wait_for_state(&agent, |state| *state != UplinkState::Connecting).await,
        UplinkState::Up(NegotiatedProtocol::Http2)
    );
    let (mut tcp, head) = connect(&agent, origin(echo).await).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    tcp.write_all(b"x").await.unwrap();
    assert_eq!(tcp.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn an_unreachable_gateway_is_reported() {
    let gateway = Gateway::start(spec());
    let unused_port = ReservedPort::new();
    let unreachable = smig::Origin::https("127.0.0.1", unused_port.addr().port());
    let options = AgentOptions { gateway: unreachable, ..gateway.agent_options() };
    let agent = Agent::start(options, gateway.client_builder()).await.unwrap();
    let (mut tcp, head) = connect(&agent, "example.org:443").await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let mut page = String::new();
    tcp.read_to_string(&mut page).await.unwrap();
    assert!(page.contains("cannot be reached"), "{page}");
    assert!(matches!(
        wait_for_state(&agent, |state| *state != UplinkState::Connecting).await,
        UplinkState::Unreachable(_)
    ));
}

#[tokio::test]
async fn shutdown_without_grace_resets_tunnels() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let (mut client_socket, _) = connect(&agent, listener.local_addr().unwrap()).await;
    let (mut server_socket, _) = listener.accept().await.unwrap();
    agent.shutdown(Duration::ZERO).await;
    assert_eq!(client_socket.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server_socket.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn shutdown_resets_an_incomplete_response() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut client_socket = TcpStream::connect(agent.http_addrs()[0]).await.unwrap();
    // A response delimited by the end of the connection.
    client_socket
        .write_all(format!("GET http://{target}/ HTTP/1.0\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let (mut server_socket, _) = listener.accept().await.unwrap();
    read_head(&mut server_socket).await;
    server_socket.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf").await.unwrap();
    read_head(&mut client_socket).await;
    client_socket.read_exact(&mut [0; 4]).await.unwrap();
    agent.shutdown(Duration::ZERO).await;
    assert_eq!(client_socket.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn shutdown_waits_for_active_tunnels() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let (mut client_socket, _) = connect(&agent, origin(echo).await).await;
    let echo_exchange = async {
        client_socket.write_all(b"last words").await.unwrap();
        client_socket.shutdown().await.unwrap();
        let mut echoed = String::new();
        client_socket.read_to_string(&mut echoed).await.unwrap();
        assert_eq!(echoed, "last words");
    };
    let (stats, ()) = tokio::join!(agent.shutdown(Duration::from_secs(60)), echo_exchange);
    assert_eq!(stats.streams_opened, 1);
}

#[tokio::test]
async fn a_connection_accepted_before_shutdown_is_served() {
    let gateway = Gateway::start(spec());
    for _ in 0..20 {
        let agent = gateway.agent(Vec::new()).await;
        let mut tcp = TcpStream::connect(agent.http_addrs()[0]).await.unwrap();
        let shutdown = tokio::spawn(agent.shutdown(Duration::from_secs(3600)));
        tokio::task::yield_now().await;
        tcp.write_all(b"GET /proxy.pac HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut response = String::new();
        tcp.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        shutdown.await.unwrap();
    }
}

#[tokio::test]
async fn admin_page_shows_gateway_and_tunnels() {
    let gateway = Gateway::start(spec());
    let admin = Some(AdminSpec { listen: loopback() });
    let options = AgentOptions { admin, ..gateway.agent_options() };
    let agent = Agent::start(options, gateway.client_builder()).await.unwrap();
    let (mut tcp, head) = connect(&agent, origin(echo).await).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    tcp.write_all(b"abcde").await.unwrap();
    tcp.read_exact(&mut [0; 5]).await.unwrap();
    let get_admin = async |path: &str| {
        let mut tcp = TcpStream::connect(agent.admin_addr().unwrap()).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        tcp.read_to_string(&mut response).await.unwrap();
        response
    };
    assert!(get_admin("/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = get_admin("/metrics").await;
    for line in [
        "smig_tunnels{kind=\"connect\"} 1",
        "smig_tunnels{kind=\"socks\"} 0",
        "smig_tunnel_bytes_total{kind=\"connect\",direction=\"received\"} 5",
        "smig_tunnel_bytes_total{kind=\"connect\",direction=\"sent\"} 5",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(get_admin("/api/sessions").await.contains("\"CONNECT\""));

    let unused_port = ReservedPort::new();
    let unreachable = smig::Origin::https("127.0.0.1", unused_port.addr().port());
    let options = AgentOptions {
        gateway: unreachable,
        admin: Some(AdminSpec { listen: loopback() }),
        ..gateway.agent_options()
    };
    let agent = Agent::start(options, gateway.client_builder()).await.unwrap();
    wait_for_state(&agent, |state| matches!(state, UplinkState::Unreachable(_))).await;
    let mut tcp = TcpStream::connect(agent.admin_addr().unwrap()).await.unwrap();
    tcp.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    tcp.read_to_string(&mut response).await.unwrap();
    assert!(
        response.starts_with("HTTP/1.1 503") && response.contains("cannot be reached"),
        "{response}"
    );
}

#[tokio::test]
async fn a_407_of_an_origin_is_forwarded_without_challenge() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let origin_addr = origin(async |mut tcp: TcpStream| {
        read_head(&mut tcp).await;
        let response = "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\
                      Content-Length: 5\r\nConnection: close\r\n\r\nmine\n";
        tcp.write_all(response.as_bytes()).await.unwrap();
    })
    .await;
    let request =
        format!("GET http://{origin_addr}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let response = String::from_utf8(send_request(&agent, request.as_bytes()).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 407") && response.ends_with("mine\n"), "{response}");
    // The challenge applies to the previous hop only.
    assert!(!response.to_ascii_lowercase().contains("proxy-authenticate"), "{response}");
}

#[tokio::test]
async fn a_client_may_send_after_the_origin_half_closed() {
    let gateway = Gateway::start(spec());
    let agent = gateway.agent(Vec::new()).await;
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let payload = bytes(300_000);
    for round in 1..=20 {
        let (mut client_socket, _) = connect(&agent, listener.local_addr().unwrap()).await;
        let (mut server_socket, _) = listener.accept().await.unwrap();
        server_socket.shutdown().await.unwrap();
        assert_eq!(client_socket.read(&mut [0]).await.unwrap(), 0);
        let mut received_bytes = Vec::new();
        let writing = async {
            client_socket.write_all(&payload).await.unwrap();
            drop(client_socket);
        };
        let (read_result, ()) =
            tokio::join!(server_socket.read_to_end(&mut received_bytes), writing);
        read_result.unwrap();
        assert!(received_bytes == payload, "{} bytes", received_bytes.len());
        let report = wait_for_report(&gateway.tunnels, "connect", |one| one.open == 0).await;
        assert!(report.ended.contains(&("completed", round)), "{report:?}");
    }
}
