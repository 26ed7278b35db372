//! Which users may open which tunnels, and the responses to failures.

use http::{Method, Request, StatusCode};
use smig_gateway::forward_proxy::ForwardProxySpec;
use smig_proxy::tunnel::{self, ConnectResponse};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    Gateway, TOKEN, default_spec, echo, origin, proxy_status, read_head, spec, text,
};

/// Returns the status of a CONNECT with this Proxy-Authorization.
async fn connect_status(gateway: &Gateway, target: &str, credentials: Option<&str>) -> StatusCode {
    let mut request = Request::builder().method(Method::CONNECT).uri(target);
    if let Some(credentials) = credentials {
        request = request.header("proxy-authorization", credentials);
    }
    let request = request.body(()).unwrap();
    match tunnel::open(&gateway.client, &gateway.origin, request).await.unwrap() {
        ConnectResponse::Tunnel(parts, _) => parts.status,
        ConnectResponse::Refused(response) => {
            if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
                assert!(response.headers().contains_key("proxy-authenticate"));
            }
            response.status()
        }
    }
}

#[tokio::test]
async fn only_known_users_get_a_tunnel() {
    let gateway = Gateway::start(spec());
    let target = origin(echo).await.to_string();
    let required = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    assert_eq!(connect_status(&gateway, &target, None).await, required);
    assert_eq!(connect_status(&gateway, &target, Some("Bearer wrong")).await, required);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(connect_status(&gateway, &target, Some(&bearer)).await, StatusCode::OK);
    // ann:a-long-secret
    let basic = "Basic YW5uOmEtbG9uZy1zZWNyZXQ=";
    assert_eq!(connect_status(&gateway, &target, Some(basic)).await, StatusCode::OK);
    // bob:a-long-secret
    let wrong_user = "Basic Ym9iOmEtbG9uZy1zZWNyZXQ=";
    assert_eq!(connect_status(&gateway, &target, Some(wrong_user)).await, required);
}

#[tokio::test]
async fn special_addresses_are_refused_by_default() {
    let gateway = Gateway::start(default_spec());
    let port = origin(echo).await.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "2130706433",
        "0.0.0.0",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        let response = gateway.refused(format!("{host}:{port}")).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{host}");
        let why = proxy_status(&response);
        assert!(why.starts_with("smig; error=destination_ip_prohibited"), "{host}: {why}");
    }
    let response = gateway.refused("example.com:25").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(proxy_status(&response).contains("http_request_denied"));
    assert!(text(response).await.contains("port 25 is not allowed"));
}

#[tokio::test]
async fn an_allowed_address_is_reached_by_its_name() {
    let gateway = Gateway::start(spec());
    let port = origin(echo).await.port();
    let mut stream = gateway.tunnel(format!("localhost:{port}")).await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_destination_that_refuses_the_connection_is_named() {
    let gateway = Gateway::start(spec());
    let closed_port = ReservedPort::new();
    let target = closed_port.addr();
    let response = gateway.refused(target).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(proxy_status(&response).starts_with("smig; error=connection_refused"));
    assert!(text(response).await.contains(&target.to_string()));
}

#[tokio::test]
async fn tunnels_per_user_are_limited() {
    let gateway = Gateway::start(ForwardProxySpec { max_tunnels: 2, ..spec() });
    let target = origin(echo).await;
    let mut first = gateway.tunnel(target).await;
    let _second = gateway.tunnel(target).await;
    let response = gateway.refused(target).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(proxy_status(&response).contains("connection_limit_reached"));
    first.shutdown().await.unwrap();
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
    // The slot is free once the tunnel's task has ended.
    while matches!(gateway.open(target).await, ConnectResponse::Refused(_)) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn http1_clients_get_tunnels() {
    let gateway = Gateway::start(spec());
    let target = origin(echo).await;
    let mut tcp = TcpStream::connect(gateway.server.local_addrs()[1]).await.unwrap();
    let head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {TOKEN}\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut tcp).await.starts_with("HTTP/1.1 200"));
    tcp.write_all(b"abc").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "abc");
}

#[tokio::test]
async fn a_failed_http1_tunnel_ends_with_a_tcp_reset() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(gateway.server.local_addrs()[1]).await.unwrap();
    let head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {TOKEN}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 200"));
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"half").await.unwrap();
    client.read_exact(&mut [0; 4]).await.unwrap();
    socket2::SockRef::from(&server).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(server);
    let error = client.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
