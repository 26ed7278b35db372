//! Which users may open which tunnels, and the responses to failures.

use http::{Method, Request, StatusCode};
use smig_gateway::forward_proxy::ForwardProxySpec;
use smig_proxy::tunnel::{self, ConnectResponse};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Gateway, TOKEN, echo, origin, proxy_status, read_head, spec, strict, text};

/// Returns the status of a CONNECT with this Proxy-Authorization.
async fn status(gateway: &Gateway, target: &str, credentials: Option<&str>) -> StatusCode {
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
    assert_eq!(status(&gateway, &target, None).await, required);
    assert_eq!(status(&gateway, &target, Some("Bearer wrong")).await, required);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(status(&gateway, &target, Some(&bearer)).await, StatusCode::OK);
    // ann:a-long-secret
    let basic = "Basic YW5uOmEtbG9uZy1zZWNyZXQ=";
    assert_eq!(status(&gateway, &target, Some(basic)).await, StatusCode::OK);
    // bob:a-long-secret
    let other = "Basic Ym9iOmEtbG9uZy1zZWNyZXQ=";
    assert_eq!(status(&gateway, &target, Some(other)).await, required);
}

#[tokio::test]
async fn what_is_not_public_is_refused_unless_it_is_allowed() {
    let gateway = Gateway::start(strict());
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
async fn a_name_that_is_allowed_reaches_its_address() {
    let gateway = Gateway::start(spec());
    let port = origin(echo).await.port();
    let mut stream = gateway.tunnel(format!("localhost:{port}")).await;
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_destination_that_refuses_is_named() {
    let gateway = Gateway::start(spec());
    let nobody = ReservedPort::new();
    let target = nobody.addr();
    let response = gateway.refused(target).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(proxy_status(&response).starts_with("smig; error=connection_refused"));
    assert!(text(response).await.contains(&target.to_string()));
}

#[tokio::test]
async fn a_user_has_so_many_tunnels_and_no_more() {
    let gateway = Gateway::start(ForwardProxySpec { max_tunnels: 2, ..spec() });
    let target = origin(echo).await;
    let mut first = gateway.tunnel(target).await;
    let _second = gateway.tunnel(target).await;
    let response = gateway.refused(target).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(proxy_status(&response).contains("connection_limit_reached"));
    first.shutdown().await.unwrap();
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
    // The slot is free when the tunnel's task has ended, which is soon.
    while matches!(gateway.open(target).await, ConnectResponse::Refused(_)) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_of_http1_gets_a_tunnel_too() {
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
async fn a_tunnel_of_http1_that_breaks_ends_by_a_reset() {
    let gateway = Gateway::start(spec());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut near = TcpStream::connect(gateway.server.local_addrs()[1]).await.unwrap();
    let head = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Bearer {TOKEN}\r\n\r\n"
    );
    near.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut near).await.starts_with("HTTP/1.1 200"));
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(b"half").await.unwrap();
    near.read_exact(&mut [0; 4]).await.unwrap();
    socket2::SockRef::from(&far).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    let error = near.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}
