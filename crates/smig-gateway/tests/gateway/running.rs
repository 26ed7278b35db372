//! A gateway that takes another configuration, and one that ends.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::{Client, Trust};

use crate::support::{Authority, Place, address, assert_status, get, origin, url};

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
    let mut body = ask(&format!("/octets/{LEN}")).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();

    let other = place.config(&format!("{base}[[route]]\nstatus = 200\ntext = 'another'\n"));
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
    // A port that nobody has.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    gateway.reload(place.config(&format!("{}{route}", clear(port)))).unwrap();
    let second = address(&gateway);
    assert_eq!(second.port(), port);
    assert_status(&get(second, "a", "/", "").await, 200);
    // Workers close their sockets in their own time.
    while tokio::net::TcpStream::connect(first).await.is_ok() {
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
        (format!("{base}{}[forward]\nusers_file = 'absent'\n", upstream(&one)), ":8: forward: "),
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
    let to = format!("https://localhost:{}/octets/{LEN}", address(&gateway).port());
    let client = Client::builder().trust(Trust::Pem(ca.pem.clone().into())).build().unwrap();
    let request = Request::get(to).body(Full::<Bytes>::default()).unwrap();
    let body = client.request(request).await.unwrap().into_body();
    let (drained, body) = tokio::join!(gateway.drain(HOUR), body.collect());
    drained.unwrap();
    assert_eq!(body.unwrap().to_bytes().len(), LEN);
}
