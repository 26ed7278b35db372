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
    Authority, Dial, Place, address, assert_status, exchange, get, origin, try_exchange,
    until_file, url,
};

const HOUR: Duration = Duration::from_secs(3600);

fn clear(port: u16) -> String {
    format!("[[listen]]\naddress = '127.0.0.1:{port}'\nprotocol = 'cleartext'\n")
}

fn upstream(origin: &smig::Server) -> String {
    format!("[upstreams.one]\nservers = ['{}']\n[[route]]\nupstream = 'one'\n", url(origin))
}

#[tokio::test]
async fn a_running_stream_does_not_notice_a_reload() {
    const LEN: u64 = 8 << 20;
    let (one, ca) = (origin("one"), Authority::new());
    let place = Place::new();
    place.certificate(&ca, "a", &["localhost"]);
    let base =
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n";
    let mut gateway = place.gateway(&format!("{base}{}", upstream(&one)));
    let to = format!("https://localhost:{}", address(&gateway).port());
    let client = Client::builder().trust(Trust::Pem(ca.pem.clone().into())).build().unwrap();
    let ask = |path: &str| {
        client.request(Request::get(format!("{to}{path}")).body(Full::<Bytes>::default()).unwrap())
    };
    let mut body = ask(&format!("/bytes/{LEN}")).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();

    let other = place.config(&format!("{base}[[route]]\nstatus = 200\nbody = 'another'\n"));
    assert_eq!(gateway.reload(other).unwrap(), Vec::<&str>::new());
    let answer = ask("/").await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(answer, "another\n");
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(first.len() as u64 + rest.len() as u64, LEN);
    assert_eq!(gateway.stats().connections_closed, 0);
}

#[tokio::test]
async fn an_upstream_that_stays_keeps_its_connections() {
    let one = origin("one");
    let place = Place::new();
    let text = format!("{}{}", clear(0), upstream(&one));
    let mut gateway = place.gateway(&text);
    assert_status(&get(address(&gateway), "a", "/", "").await, 200);
    gateway.reload(place.config(&text)).unwrap();
    assert_status(&get(address(&gateway), "a", "/", "").await, 200);
    assert_eq!(one.stats().connections_opened, 1);
}

#[tokio::test]
async fn listeners_come_and_go() {
    let place = Place::new();
    let route = "[[route]]\nstatus = 200\n";
    let mut gateway = place.gateway(&format!("{}{route}", clear(0)));
    let first = address(&gateway);
    let chosen = ReservedPort::new();
    let port = chosen.addr().port();
    gateway.reload(place.config(&format!("{}{route}", clear(port)))).unwrap();
    let second = address(&gateway);
    assert_eq!(second.port(), port);
    assert_status(&get(second, "a", "/", "").await, 200);
    // Workers close their sockets asynchronously.
    while TcpStream::connect(first).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_changes_nothing() {
    let one = origin("one");
    let place = Place::new();
    let base = clear(0);
    let mut gateway = place.gateway(&format!("{base}{}", upstream(&one)));
    let to = address(&gateway);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (text, at) in [
        (
            format!("{base}{}[forward_proxy]\nusers_file = 'absent'\n", upstream(&one)),
            ":8: forward_proxy: ",
        ),
        (format!("{base}{}{}", clear(port), upstream(&one)), ":5: listen.1.address: "),
        (
            format!(
                "{base}{}[upstreams.one.tls]\nca = 'absent'\n",
                upstream(&one).replace("http://", "https://")
            ),
            ":4: upstreams.one: ",
        ),
        (
            format!("{base}[access_log]\nformat = 'json'\nfile = 'absent/log'\n"),
            ":6: access_log.file: ",
        ),
        ("[[route]]\nstatus = 200\n".to_owned(), ":1: listen: "),
    ] {
        let error = gateway.reload(place.config(&text)).unwrap_err().to_string();
        assert!(error.contains(at), "{error}");
        assert_status(&get(to, "a", "/", "").await, 200);
    }
    assert_eq!(one.stats().connections_opened, 1);
    assert_eq!(gateway.listeners().count(), 1);
}

#[tokio::test]
async fn settings_that_take_a_restart_are_named() {
    let place = Place::new();
    let text = format!("{}[[route]]\nstatus = 200\n", clear(0));
    let mut gateway = place.gateway(&text);
    let changed =
        gateway.reload(place.config(&format!("{text}[limits]\nreset_burst = 7\n"))).unwrap();
    assert_eq!(changed, ["limits.reset_burst"]);
}

#[tokio::test]
async fn a_gateway_that_ends_lets_streams_finish() {
    const LEN: usize = 8 << 20;
    let (one, ca) = (origin("one"), Authority::new());
    let place = Place::new();
    place.certificate(&ca, "a", &["localhost"]);
    let gateway = place.gateway(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n{}",
        upstream(&one)
    ));
    let to = format!("https://localhost:{}/bytes/{LEN}", address(&gateway).port());
    let client = Client::builder().trust(Trust::Pem(ca.pem.clone().into())).build().unwrap();
    let request = Request::get(to).body(Full::<Bytes>::default()).unwrap();
    let body = client.request(request).await.unwrap().into_body();
    let (drained, body) = tokio::join!(gateway.drain(HOUR), body.collect());
    drained.unwrap();
    assert_eq!(body.unwrap().to_bytes().len(), LEN);
}

/// Sends a request on a connection that stays open, and reads the response to its last bytes.
async fn again(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"here\n") {
        said.push(stream.read_u8().await.expect("the connection stays"));
    }
}

#[tokio::test]
async fn an_address_changes_its_protocol_and_changes_back() {
    let ca = Authority::new();
    let place = Place::new();
    place.certificate(&ca, "a", &["a"]);
    let held = [ReservedPort::new(), ReservedPort::new()];
    let [changes, stays] = held.each_ref().map(|port| port.addr().port());
    let text = |protocol: &str| {
        format!(
            "[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n[[route]]\nstatus = 200\nbody = 'here'\n\
             [[listen]]\naddress = '127.0.0.1:{changes}'\nprotocol = '{protocol}'\n{}",
            clear(stays)
        )
    };
    let mut gateway = place.gateway(&text("cleartext"));
    let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let mut beside = TcpStream::connect(at(stays)).await.unwrap();
    let mut before = TcpStream::connect(at(changes)).await.unwrap();
    for stream in [&mut beside, &mut before] {
        again(stream).await;
    }
    let dial = Dial::new(&ca, "http/1.1");
    let ask = "GET / HTTP/1.1\nHost: a\nConnection: close\n\n";
    for protocol in ["tls", "cleartext", "tls"] {
        gateway.reload(place.config(&text(protocol))).unwrap();
        assert_eq!(gateway.listeners().count(), 2);
        // Workers close the old socket asynchronously, and serve connections to it until then. One that
        // arrives at that very moment is reset.
        loop {
            let answer = async {
                match protocol {
                    "tls" => try_exchange(dial.connect(at(changes), "a").await?, ask).await,
                    _ => try_exchange(TcpStream::connect(at(changes)).await?, ask).await,
                }
            };
            if answer.await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                break;
            }
        }
        for stream in [&mut beside, &mut before] {
            again(stream).await;
        }
    }
}

#[tokio::test]
async fn listeners_at_chosen_ports_are_kept_one_by_one() {
    let place = Place::new();
    let text = format!("{}{}[[route]]\nstatus = 200\n", clear(0), clear(0));
    let mut gateway = place.gateway(&text);
    let before: Vec<_> = gateway.listeners().collect();
    gateway.reload(place.config(&text)).unwrap();
    let mut after: Vec<_> = gateway.listeners().collect();
    after.sort_by_key(|after| before.iter().position(|before| before == after));
    assert_eq!(after, before);
    for (at, _) in after {
        assert_status(&get(at, "a", "/", "").await, 200);
    }
}

#[tokio::test]
async fn a_redirect_is_of_its_listener_and_not_of_its_port() {
    let ca = Authority::new();
    let place = Place::new();
    place.certificate(&ca, "a", &["a"]);
    let chosen = ReservedPort::new();
    let port = chosen.addr().port();
    let text = format!(
        "[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n[[route]]\nstatus = 200\n\
         [[listen]]\naddress = '127.0.0.2:{port}'\n\
         [[listen]]\naddress = '127.0.0.1:{port}'\nprotocol = 'cleartext'\nredirect_to_https = 443\n"
    );
    let mut gateway = place.gateway(&text);
    for _ in 0..2 {
        let at = |last| std::net::SocketAddr::from(([127, 0, 0, last], port));
        assert_status(&get(at(1), "a", "/", "").await, 308);
        let stream = Dial::new(&ca, "http/1.1").connect(at(2), "a").await.unwrap();
        let ask = "GET / HTTP/1.1\nHost: a\nConnection: close\n\n";
        assert_status(&exchange(stream, ask).await, 200);
        gateway.reload(place.config(&text)).unwrap();
    }
}

#[tokio::test]
async fn who_came_to_be_redirected_is_also_when_the_listener_has_gone() {
    let place = Place::new();
    let held = [ReservedPort::new(), ReservedPort::new()];
    let [goes, stays] = held.each_ref().map(|port| port.addr().port());
    let text = |listen: &str| format!("[[route]]\nstatus = 200\n{}{listen}", clear(stays));
    let redirects = format!("{}redirect_to_https = 443\n", clear(goes));
    let mut gateway = place.gateway(&text(&redirects));
    let mut kept = TcpStream::connect(("127.0.0.1", goes)).await.unwrap();
    for _ in 0..2 {
        kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(kept.read_u8().await.expect("the connection stays"));
        }
        assert_status(&String::from_utf8(head).unwrap(), 308);
        kept.read_exact(&mut [0; "https://a/\n".len()]).await.unwrap();
        gateway.reload(place.config(&text(""))).unwrap();
        assert_eq!(gateway.listeners().count(), 1);
    }
}

/// The configuration of a forward proxy; the secret of each user is "test".
fn forward(users: &[&str], more: &str) -> String {
    const TEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let users: Vec<_> = users.iter().map(|user| format!("{user} = '{TEST}'")).collect();
    format!(
        "{}{more}[[route]]\nstatus = 200\n[forward_proxy]\nallow = ['127.0.0.0/8']\nusers = {{ {} }}\n",
        clear(0),
        users.join(", ")
    )
}

#[tokio::test]
async fn a_forward_proxy_with_other_users_keeps_its_connections() {
    let one = origin("one");
    let place = Place::new();
    let mut gateway = place.gateway(&forward(&["bob"], ""));
    for users in [&["ann", "bob"][..], &["bob"]] {
        let text = format!(
            "GET {0}/ HTTP/1.1\nHost: {1}\nProxy-Authorization: Basic Ym9iOnRlc3Q=\n\
             Connection: close\n\n",
            url(&one),
            &url(&one)["http://".len()..]
        );
        let stream = TcpStream::connect(address(&gateway)).await.unwrap();
        assert_status(&exchange(stream, &text).await, 200);
        gateway.reload(place.config(&forward(users, ""))).unwrap();
    }
    assert_eq!(one.stats().connections_opened, 1);
}

#[tokio::test]
async fn users_of_the_forward_proxy_never_reach_the_admin_port() {
    for ip in ["127.0.0.1", "127.0.0.2"] {
        never_reached(ip).await;
    }
}

async fn never_reached(ip: &str) {
    let place = Place::new();
    let text = |admin: &str| forward(&["ann"], admin);
    let mut gateway = place.gateway(&text(&format!("[admin]\nlisten = '{ip}:0'\n")));
    let admin = gateway.admin().unwrap();
    // It stays open until a restart, whatever the new configuration says.
    for admin_of_file in ["", "[admin]\nlisten = '127.0.0.1:1'\n"] {
        let mut stream = TcpStream::connect(address(&gateway)).await.unwrap();
        let ask = format!(
            "CONNECT {admin} HTTP/1.1\r\nHost: {admin}\r\n\
             Proxy-Authorization: Basic YW5uOnRlc3Q=\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut status = [0; "HTTP/1.1 403".len()];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 403");
        assert_eq!(gateway.reload(place.config(&text(admin_of_file))).unwrap(), ["admin"]);
    }
}

#[tokio::test]
async fn an_access_log_that_nobody_reads_holds_nobody_up() {
    const REQUESTS: usize = 400;
    let place = Place::new();
    let pipe = place.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let base = format!("{}[[route]]\nstatus = 200\nbody = 'here'\n", clear(0));
    let log = |file: &str| format!("{base}[access_log]\nformat = 'json'\nfile = '{file}'\n");
    let mut gateway = place.gateway(&log("pipe"));
    let mut stream = TcpStream::connect(address(&gateway)).await.unwrap();
    // Several times the capacity of a pipe.
    let long = "x".repeat(2000);
    for _ in 0..REQUESTS {
        let ask = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {long}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"here\n") {
            said.push(stream.read_u8().await.unwrap());
        }
    }
    // A reload opens another log, and shutdown does not wait for the pipe.
    gateway.reload(place.config(&log("file"))).unwrap();
    again(&mut stream).await;
    until_file(&place.path("file"), |text| text.lines().count() == 1).await;
    drop(stream);
    gateway.drain(HOUR).await.unwrap();
}
