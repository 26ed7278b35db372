//! Selection of certificates by name, and changes to a running server.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{Watch, answer, bytes, digest, get, loopback, sha256, until};
use http_body_util::BodyExt as _;
use smig::{
    AuthorityCheck, Certificate, CleartextTrust, Client, ClientCertificates, Listening,
    MigrationConfig, MigrationMode, ObserverEvent, Server, ServerTls, Trust,
};
use tower::service_fn;

struct Made {
    certificate: Certificate,
    pem: Vec<u8>,
}

fn made(names: &[&str]) -> Made {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    Made { certificate, pem: pem.into_bytes() }
}

fn tls(certificates: &[&Made]) -> ServerTls {
    let certificates = certificates.iter().map(|made| made.certificate.clone()).collect();
    ServerTls::by_name(certificates, &ClientCertificates::None).unwrap()
}

fn trusting(made: &Made) -> Client {
    Client::builder().trust(Trust::Pem(made.pem.clone())).build().unwrap()
}

async fn greets(client: &Client, url: &str) -> Result<(), smig::Error> {
    let body = client.request(get(url)).await?.into_body().collect().await?.to_bytes();
    assert_eq!(body, "hello");
    Ok(())
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let (one, other) = (made(&["127.0.0.1"]), made(&["localhost"]));
    let server = Server::builder()
        .listen(loopback(), tls(&[&one, &other]))
        .workers(NonZeroUsize::MIN)
        .start(service_fn(answer))
        .unwrap();
    let port = server.local_addrs()[0].port();
    greets(&trusting(&other), &format!("https://localhost:{port}/")).await.unwrap();
    // An IP address is not an SNI: the first certificate is used.
    greets(&trusting(&one), &format!("https://127.0.0.1:{port}/")).await.unwrap();
    assert!(greets(&trusting(&one), &format!("https://localhost:{port}/")).await.is_err());
}

// SMIG-4.5/same-identity
#[tokio::test]
async fn a_certificate_is_renewed_while_a_session_runs_and_grows() {
    const LEN: usize = 8 << 20;
    let (old, new) = (made(&["localhost"]), made(&["localhost"]));
    let material = tls(&[&old]);
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(vec![1 << 20]);
    let server = Server::builder()
        .listen(loopback(), material.clone())
        .workers(NonZeroUsize::MIN)
        .migration(rules)
        .start(service_fn(answer))
        .unwrap();
    let url = format!("https://localhost:{}", server.local_addrs()[0].port());
    let (watch, mut events) = Watch::new();
    let both = [old.pem.clone(), new.pem.clone()].concat();
    let client = Client::builder().trust(Trust::Pem(both)).observer(watch).build().unwrap();
    let running = client.request(get(format!("{url}/bytes/{LEN}"))).await.unwrap();

    material.replace(&tls(&[&new]));
    assert!(greets(&trusting(&old), &format!("{url}/")).await.is_err());
    greets(&trusting(&new), &format!("{url}/")).await.unwrap();

    let (hash, len) = digest(running.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    until(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    assert_eq!(server.stats().joins_refused, 0);
}

// SMIG-3.10/same-origin: a connection whose certificate is not valid for the name does not join, whatever the
// server accepts. SMIG-3.11/dial-what-you-know: the client then declines the offer, and the stream stays.
#[tokio::test]
async fn a_further_connection_needs_a_certificate_that_the_client_trusts() {
    // Exceeds the client's window, so that the response cannot end before it is read.
    const LEN: usize = 16 << 20;
    let (own, foreign) = (made(&["localhost"]), made(&["localhost"]));
    let material = tls(&[&own]);
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(vec![1 << 20]);
    let (watch, mut events) = Watch::new();
    let server = Server::builder()
        .listen(loopback(), material.clone())
        .workers(NonZeroUsize::MIN)
        .migration(rules)
        .observer(watch)
        .start(service_fn(answer))
        .unwrap();
    let url = format!("https://localhost:{}", server.local_addrs()[0].port());
    // No spare: the first additional connection is dialed for the server's offer.
    let client = Client::builder().trust(Trust::Pem(own.pem.clone())).spares(0).build().unwrap();
    greets(&client, &format!("{url}/")).await.unwrap();
    material.replace(&tls(&[&foreign]));

    let running = client.request(get(format!("{url}/bytes/{LEN}"))).await.unwrap();
    until(&mut events, |event| matches!(event, ObserverEvent::HandshakeFailed)).await;
    until(&mut events, |event| matches!(event, ObserverEvent::MigrationDeclined { .. })).await;
    let (hash, len) = digest(running.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!((server.stats().joined, server.stats().migrations), (0, 0));
}

#[tokio::test]
async fn addresses_come_and_go() {
    let made = made(&["localhost"]);
    let mut server = Server::builder()
        .listen(loopback(), tls(&[&made]))
        .workers(NonZeroUsize::new(2).unwrap())
        .authority(AuthorityCheck::Service)
        .start(service_fn(answer))
        .unwrap();
    let Listening { id, addr: first } = server.listening()[0];
    let client = trusting(&made);
    greets(&client, &format!("https://localhost:{}/", first.port())).await.unwrap();
    let second = server.listen(loopback(), &tls(&[&made])).unwrap();
    greets(&trusting(&made), &format!("https://localhost:{}/", second.addr.port())).await.unwrap();

    server.close(id);
    assert_eq!(server.local_addrs(), [second.addr]);
    // Workers close their sockets asynchronously.
    while tokio::net::TcpStream::connect(first).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    greets(&client, &format!("https://localhost:{}/", first.port())).await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_opened_again_outlives_its_first_listener() {
    let made = made(&["localhost"]);
    let mut server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::new(2).unwrap())
        .start(service_fn(answer))
        .unwrap();
    let first = server.listening()[0];
    let second = server.listen(first.addr, &tls(&[&made])).unwrap();
    assert_eq!(second.addr, first.addr);
    server.close(first.id);
    assert_eq!(server.listening(), [second]);
    // Workers close their sockets asynchronously; until then half of the attempts reach the first one.
    let url = format!("https://localhost:{}/", first.addr.port());
    while greets(&trusting(&made), &url).await.is_err() {}
}
