//! Reload and shutdown of a gateway.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::{Client, Trust};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    GatewayDir, TestCa, TlsDialer, address, assert_status, exchange, get, origin, try_exchange,
    url, wait_for_file, within,
};

const HOUR: Duration = Duration::from_secs(3600);

fn cleartext_listener(port: u16) -> String {
    format!("[[listen]]\naddress = '127.0.0.1:{port}'\nprotocol = 'cleartext'\n")
}

fn upstream_config(origin: &smig::Server) -> String {
    format!("[upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n", url(origin))
}

#[tokio::test]
async fn a_reload_does_not_interrupt_a_stream() {
    const BODY_BYTES: u64 = 8 << 20;
    let (origin_one, ca) = (origin("one"), TestCa::new());
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["localhost"]);
    let base =
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n";
    let mut gateway = dir.start_gateway(&format!("{base}{}", upstream_config(&origin_one)));
    let base_url = format!("https://localhost:{}", address(&gateway).port());
    let client = Client::builder().trust(Trust::Pem(ca.pem.clone().into())).build().unwrap();
    let fetch = |path: &str| {
        client.request(
            Request::get(format!("{base_url}{path}")).body(Full::<Bytes>::default()).unwrap(),
        )
    };
    let mut body = fetch(&format!("/bytes/{BODY_BYTES}")).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();

    let new_config = dir.load_config(&format!("{base}[[route]]\nstatus = 200\nbody = 'another'\n"));
    assert_eq!(gateway.reload(new_config).unwrap(), Vec::<&str>::new());
    let answer = fetch("/").await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(answer, "another\n");
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(first.len() as u64 + rest.len() as u64, BODY_BYTES);
    assert_eq!(gateway.stats().connections_closed, 0);
}

#[tokio::test]
async fn an_unchanged_upstream_keeps_its_connections() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let text = format!("{}{}", cleartext_listener(0), upstream_config(&origin_one));
    let mut gateway = dir.start_gateway(&text);
    assert_status(&get(address(&gateway), "a", "/", "").await, 200);
    gateway.reload(dir.load_config(&text)).unwrap();
    assert_status(&get(address(&gateway), "a", "/", "").await, 200);
    assert_eq!(origin_one.stats().connections_opened, 1);
}

#[tokio::test]
async fn a_reload_opens_and_closes_listeners() {
    let dir = GatewayDir::new();
    let route = "[[route]]\nstatus = 200\n";
    let mut gateway = dir.start_gateway(&format!("{}{route}", cleartext_listener(0)));
    let first = address(&gateway);
    let reserved_port = ReservedPort::new();
    let port = reserved_port.addr().port();
    gateway.reload(dir.load_config(&format!("{}{route}", cleartext_listener(port)))).unwrap();
    let second = address(&gateway);
    assert_eq!(second.port(), port);
    assert_status(&get(second, "a", "/", "").await, 200);
    // Workers close their sockets asynchronously.
    let closing = async { while TcpStream::connect(first).await.is_ok() {} };
    within("the end of the first listener", closing).await;
}

#[tokio::test]
async fn an_invalid_configuration_changes_nothing() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let base = cleartext_listener(0);
    let mut gateway = dir.start_gateway(&format!("{base}{}", upstream_config(&origin_one)));
    let addr = address(&gateway);
    let occupied_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = occupied_listener.local_addr().unwrap().port();
    for (text, location) in [
        (
            format!(
                "{base}{}[forward_proxy]\nusers_file = 'absent'\n",
                upstream_config(&origin_one)
            ),
            ":8: forward_proxy: ",
        ),
        (
            format!("{base}{}{}", cleartext_listener(port), upstream_config(&origin_one)),
            ":5: listen.1.address: ",
        ),
        (
            format!(
                "{base}{}[upstreams.one.tls]\nca = 'absent'\n",
                upstream_config(&origin_one).replace("http://", "https://")
            ),
            ":4: upstreams.one: ",
        ),
        (
            format!("{base}[access_log]\nformat = 'json'\nfile = 'absent/log'\n"),
            ":6: access_log.file: ",
        ),
        ("[[route]]\nstatus = 200\n".to_owned(), ":1: listen: "),
    ] {
        let error = gateway.reload(dir.load_config(&text)).unwrap_err().to_string();
        assert!(error.contains(location), "{error}");
        assert_status(&get(addr, "a", "/", "").await, 200);
    }
    assert_eq!(origin_one.stats().connections_opened, 1);
    assert_eq!(gateway.listeners().count(), 1);
}

#[tokio::test]
async fn settings_that_require_a_restart_are_reported() {
    let dir = GatewayDir::new();
    let text = format!("{}[[route]]\nstatus = 200\n", cleartext_listener(0));
    let mut gateway = dir.start_gateway(&text);
    let changed =
        gateway.reload(dir.load_config(&format!("{text}[limits]\nreset_burst = 7\n"))).unwrap();
    assert_eq!(changed, ["limits.reset_burst"]);
}

#[tokio::test]
async fn draining_lets_streams_finish() {
    const BODY_BYTES: usize = 8 << 20;
    let (origin_one, ca) = (origin("one"), TestCa::new());
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["localhost"]);
    let gateway = dir.start_gateway(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n{}",
        upstream_config(&origin_one)
    ));
    let target_url = format!("https://localhost:{}/bytes/{BODY_BYTES}", address(&gateway).port());
    let client = Client::builder().trust(Trust::Pem(ca.pem.clone().into())).build().unwrap();
    let request = Request::get(target_url).body(Full::<Bytes>::default()).unwrap();
    let body = client.request(request).await.unwrap().into_body();
    let view = gateway.view();
    let (drained, body) = tokio::join!(gateway.drain(HOUR), body.collect());
    drained.unwrap();
    assert_eq!(view.stats().streams_opened, 1);
    assert_eq!(body.unwrap().to_bytes().len(), BODY_BYTES);
}

/// Sends a request on a connection that stays open, and reads the response to its last bytes.
async fn get_on_open_connection(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"here\n") {
        response.push(stream.read_u8().await.expect("the connection stays"));
    }
}

#[tokio::test]
async fn a_reload_can_change_the_protocol_of_an_address() {
    let ca = TestCa::new();
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a"]);
    let reserved = [ReservedPort::new(), ReservedPort::new()];
    let [changing_port, kept_port] = reserved.each_ref().map(|port| port.addr().port());
    let text = |protocol: &str| {
        format!(
            "[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n[[route]]\nstatus = 200\nbody = 'here'\n\
             [[listen]]\naddress = '127.0.0.1:{changing_port}'\nprotocol = '{protocol}'\n{}",
            cleartext_listener(kept_port)
        )
    };
    let mut gateway = dir.start_gateway(&text("cleartext"));
    let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let mut connection_to_kept = TcpStream::connect(at(kept_port)).await.unwrap();
    let mut connection_to_changing = TcpStream::connect(at(changing_port)).await.unwrap();
    for stream in [&mut connection_to_kept, &mut connection_to_changing] {
        get_on_open_connection(stream).await;
    }
    let dialer = TlsDialer::new(&ca, "http/1.1");
    let request = "GET / HTTP/1.1\nHost: a\nConnection: close\n\n";
    for protocol in ["tls", "cleartext", "tls"] {
        gateway.reload(dir.load_config(&text(protocol))).unwrap();
        assert_eq!(gateway.listeners().count(), 2);
        // Workers close the old socket asynchronously, and serve connections to it until then. A
        // connection that arrives at that moment is reset.
        loop {
            let answer = async {
                match protocol {
                    "tls" => {
                        try_exchange(dialer.connect(at(changing_port), "a").await?, request).await
                    }
                    _ => try_exchange(TcpStream::connect(at(changing_port)).await?, request).await,
                }
            };
            if answer.await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                break;
            }
        }
        for stream in [&mut connection_to_kept, &mut connection_to_changing] {
            get_on_open_connection(stream).await;
        }
    }
}

#[tokio::test]
async fn listeners_on_port_0_are_kept_across_a_reload() {
    let dir = GatewayDir::new();
    let text =
        format!("{}{}[[route]]\nstatus = 200\n", cleartext_listener(0), cleartext_listener(0));
    let mut gateway = dir.start_gateway(&text);
    let listeners_before: Vec<_> = gateway.listeners().collect();
    gateway.reload(dir.load_config(&text)).unwrap();
    let mut listeners_after: Vec<_> = gateway.listeners().collect();
    listeners_after.sort_by_key(|after| listeners_before.iter().position(|before| before == after));
    assert_eq!(listeners_after, listeners_before);
    for (addr, _) in listeners_after {
        assert_status(&get(addr, "a", "/", "").await, 200);
    }
}

#[tokio::test]
async fn a_redirect_applies_to_its_listener_and_not_to_the_port() {
    let ca = TestCa::new();
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a"]);
    let reserved_port = ReservedPort::new();
    let port = reserved_port.addr().port();
    let text = format!(
        "[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n[[route]]\nstatus = 200\n\
         [[listen]]\naddress = '127.0.0.2:{port}'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\nprotocol = 'cleartext'\nredirect_to_https = 443\n"
    );
    let mut gateway = dir.start_gateway(&text);
    for _ in 0..2 {
        let at = |last| std::net::SocketAddr::from(([127, 0, 0, last], port));
        assert_status(&get(at(1), "a", "/", "").await, 308);
        let stream = TlsDialer::new(&ca, "http/1.1").connect(at(2), "a").await.unwrap();
        let request = "GET / HTTP/1.1\nHost: a\nConnection: close\n\n";
        assert_status(&exchange(stream, request).await, 200);
        gateway.reload(dir.load_config(&text)).unwrap();
    }
}

#[tokio::test]
async fn connections_of_a_closed_listener_are_still_redirected() {
    let dir = GatewayDir::new();
    let reserved = [ReservedPort::new(), ReservedPort::new()];
    let [closing_port, kept_port] = reserved.each_ref().map(|port| port.addr().port());
    let text = |listen: &str| {
        format!("[[route]]\nstatus = 200\n{}{listen}", cleartext_listener(kept_port))
    };
    let redirects = format!("{}redirect_to_https = 443\n", cleartext_listener(closing_port));
    let mut gateway = dir.start_gateway(&text(&redirects));
    let mut connection = TcpStream::connect(("127.0.0.1", closing_port)).await.unwrap();
    for _ in 0..2 {
        connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.expect("the connection stays"));
        }
        assert_status(&String::from_utf8(head).unwrap(), 308);
        connection.read_exact(&mut [0; "https://a/\n".len()]).await.unwrap();
        gateway.reload(dir.load_config(&text(""))).unwrap();
        assert_eq!(gateway.listeners().count(), 1);
    }
}

/// The configuration of a forward proxy; the secret of each user is "test".
fn forward_proxy_config(users: &[&str], extra_config: &str) -> String {
    const TEST_SECRET_DIGEST: &str =
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let users: Vec<_> =
        users.iter().map(|user| format!("{user} = '{TEST_SECRET_DIGEST}'")).collect();
    format!(
        "{}{extra_config}[[route]]\nstatus = 200\n[forward_proxy]\nallow = ['127.0.0.0/8']\nusers = {{ {} }}\n",
        cleartext_listener(0),
        users.join(", ")
    )
}

#[tokio::test]
async fn a_forward_proxy_with_other_users_keeps_its_connections() {
    let origin_one = origin("one");
    let dir = GatewayDir::new();
    let mut gateway = dir.start_gateway(&forward_proxy_config(&["bob"], ""));
    for users in [&["ann", "bob"][..], &["bob"]] {
        let text = format!(
            "GET {0}/ HTTP/1.1\nHost: {1}\nProxy-Authorization: Basic Ym9iOnRlc3Q=\n\
             Connection: close\n\n",
            url(&origin_one),
            &url(&origin_one)["http://".len()..]
        );
        let stream = TcpStream::connect(address(&gateway)).await.unwrap();
        assert_status(&exchange(stream, &text).await, 200);
        gateway.reload(dir.load_config(&forward_proxy_config(users, ""))).unwrap();
    }
    assert_eq!(origin_one.stats().connections_opened, 1);
}

#[tokio::test]
async fn users_of_the_forward_proxy_never_reach_the_admin_port() {
    for ip in ["127.0.0.1", "127.0.0.2"] {
        assert_admin_port_is_denied(ip).await;
    }
}

async fn assert_admin_port_is_denied(ip: &str) {
    let dir = GatewayDir::new();
    let text = |admin: &str| forward_proxy_config(&["ann"], admin);
    let mut gateway = dir.start_gateway(&text(&format!("[admin]\nlisten = '{ip}:0'\n")));
    let admin = gateway.admin_addr().unwrap();
    // The admin port stays open until a restart, whatever the new configuration contains.
    for admin_of_file in ["", "[admin]\nlisten = '127.0.0.1:1'\n"] {
        let mut stream = TcpStream::connect(address(&gateway)).await.unwrap();
        let request = format!(
            "CONNECT {admin} HTTP/1.1\r\nHost: {admin}\r\n\
             Proxy-Authorization: Basic YW5uOnRlc3Q=\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; "HTTP/1.1 403".len()];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 403");
        assert_eq!(gateway.reload(dir.load_config(&text(admin_of_file))).unwrap(), ["admin"]);
    }
}

#[tokio::test]
async fn an_access_log_that_is_not_read_blocks_no_requests() {
    const REQUEST_COUNT: usize = 400;
    let dir = GatewayDir::new();
    let pipe = dir.path("pipe");
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(status.success());
    let base = format!("{}[[route]]\nstatus = 200\nbody = 'here'\n", cleartext_listener(0));
    let log = |file: &str| format!("{base}[access_log]\nformat = 'json'\nfile = '{file}'\n");
    let mut gateway = dir.start_gateway(&log("pipe"));
    let mut stream = TcpStream::connect(address(&gateway)).await.unwrap();
    // Several times the capacity of a pipe.
    let long_user_agent = "x".repeat(2000);
    for _ in 0..REQUEST_COUNT {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {long_user_agent}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"here\n") {
            response.push(stream.read_u8().await.unwrap());
        }
    }
    // A reload opens another log, and shutdown does not wait for the pipe.
    gateway.reload(dir.load_config(&log("file"))).unwrap();
    get_on_open_connection(&mut stream).await;
    wait_for_file(&dir.path("file"), |text| text.lines().count() == 1).await;
    drop(stream);
    gateway.drain(HOUR).await.unwrap();
}
