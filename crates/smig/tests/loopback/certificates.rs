//! Selection of certificates by name, and changes to a running server.

use std::num::NonZeroUsize;

use crate::support::{
    EventRecorder, answer, bytes, digest, get, loopback, sha256, wait_for_event, within,
};
use http_body_util::BodyExt as _;
use smig::{
    AuthorityCheck, Certificate, CleartextTrust, Client, ClientCertificates, Config, ListenerInfo,
    MigrationConfig, MigrationMode, ObserverEvent, Server, ServerTls, Trust,
};
use tower::service_fn;

struct TestCertificate {
    certificate: Certificate,
    pem: Vec<u8>,
}

fn generate(names: &[&str]) -> TestCertificate {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let generated = rcgen::generate_simple_self_signed(names).unwrap();
    let (pem, key) = (generated.cert.pem(), generated.signing_key.serialize_pem());
    let certificate = Certificate::from_pem(pem.as_bytes(), key.as_bytes()).unwrap();
    TestCertificate { certificate, pem: pem.into_bytes() }
}

fn tls(certificates: &[&TestCertificate]) -> ServerTls {
    let certificates = certificates.iter().map(|made| made.certificate.clone()).collect();
    ServerTls::from_certificates(certificates, &ClientCertificates::None).unwrap()
}

/// A client without spares, which could join after the client is dropped and be refused.
fn client_trusting(test_certificate: &TestCertificate) -> Client {
    Client::builder().trust(Trust::Pem(test_certificate.pem.clone())).spares(0).build().unwrap()
}

async fn check_greeting(client: &Client, url: &str) -> Result<(), smig::Error> {
    let body = client.request(get(url)).await?.into_body().collect().await?.to_bytes();
    assert_eq!(body, "hello");
    Ok(())
}

#[tokio::test]
async fn the_certificate_is_selected_by_server_name() {
    let (ip_certificate, localhost_certificate) =
        (generate(&["127.0.0.1"]), generate(&["localhost"]));
    let server = Server::builder()
        .listen(loopback(), tls(&[&ip_certificate, &localhost_certificate]))
        .workers(NonZeroUsize::MIN)
        .start(service_fn(answer))
        .unwrap();
    let port = server.local_addrs()[0].port();
    check_greeting(&client_trusting(&localhost_certificate), &format!("https://localhost:{port}/"))
        .await
        .unwrap();
    // An IP address is not an SNI: the first certificate is used.
    check_greeting(&client_trusting(&ip_certificate), &format!("https://127.0.0.1:{port}/"))
        .await
        .unwrap();
    assert!(
        check_greeting(&client_trusting(&ip_certificate), &format!("https://localhost:{port}/"))
            .await
            .is_err()
    );
}

// SMIG-4.5/same-identity
#[tokio::test]
async fn a_certificate_is_renewed_while_a_session_is_open_and_gets_connections() {
    const LEN: usize = 8 << 20;
    /// The server offers to migrate at this offset, which the client's window keeps it from before the client reads.
    const OFFER_OFFSET: u64 = 1 << 20;
    let (old_certificate, new_certificate) = (generate(&["localhost"]), generate(&["localhost"]));
    let server_tls = tls(&[&old_certificate]);
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(vec![OFFER_OFFSET]);
    let server = Server::builder()
        .listen(loopback(), server_tls.clone())
        .workers(NonZeroUsize::MIN)
        .migration(rules)
        .start(service_fn(answer))
        .unwrap();
    let url = format!("https://localhost:{}", server.local_addrs()[0].port());
    let (observer, mut events) = EventRecorder::new();
    let both = [old_certificate.pem.clone(), new_certificate.pem.clone()].concat();
    // No spare: the only additional connection is dialed for the server's offer, with the new certificate.
    let client = Client::builder()
        .trust(Trust::Pem(both))
        .engine(Config { stream_window: 256 << 10, ..Config::client() })
        .spares(0)
        .observer(observer)
        .build()
        .unwrap();
    let response = client.request(get(format!("{url}/bytes/{LEN}"))).await.unwrap();

    assert_eq!(server.stats().connections_opened, 1, "no offer yet");
    server_tls.replace(&tls(&[&new_certificate]));
    assert!(check_greeting(&client_trusting(&old_certificate), &format!("{url}/")).await.is_err());
    check_greeting(&client_trusting(&new_certificate), &format!("{url}/")).await.unwrap();

    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    assert_eq!(server.stats().joins_refused, 0);
}

// SMIG-3.10/same-origin: a connection whose certificate is not valid for the name does not join, whatever the
// server accepts. SMIG-3.11/dial-what-you-know: the client then declines the offer, and the stream stays.
#[tokio::test]
async fn another_connection_needs_a_certificate_that_the_client_trusts() {
    let (own_certificate, foreign_certificate) =
        (generate(&["localhost"]), generate(&["localhost"]));
    let trust = Trust::Pem(own_certificate.pem.clone());
    check_that_no_connection_joins(&own_certificate, &foreign_certificate, trust).await;
}

// SMIG-3.10/same-origin
#[tokio::test]
async fn another_connection_needs_a_certificate_for_the_same_name() {
    let (own_certificate, other_certificate) =
        (generate(&["localhost"]), generate(&["other.example"]));
    let trust = Trust::Pem([own_certificate.pem.clone(), other_certificate.pem.clone()].concat());
    check_that_no_connection_joins(&own_certificate, &other_certificate, trust).await;
}

/// Changes the server's certificate after the first connection, and checks that the offered one is not used.
async fn check_that_no_connection_joins(
    own_certificate: &TestCertificate,
    next_certificate: &TestCertificate,
    trust: Trust,
) {
    // Exceeds the client's window, so that the response cannot end before it is read.
    const LEN: usize = 16 << 20;
    let server_tls = tls(&[own_certificate]);
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(vec![1 << 20]);
    let (observer, mut events) = EventRecorder::new();
    let server = Server::builder()
        .listen(loopback(), server_tls.clone())
        .workers(NonZeroUsize::MIN)
        .migration(rules)
        .observer(observer)
        .start(service_fn(answer))
        .unwrap();
    let url = format!("https://localhost:{}", server.local_addrs()[0].port());
    // No spare: the first additional connection is dialed for the server's offer.
    let client = Client::builder().trust(trust).spares(0).build().unwrap();
    check_greeting(&client, &format!("{url}/")).await.unwrap();
    server_tls.replace(&tls(&[next_certificate]));

    let response = client.request(get(format!("{url}/bytes/{LEN}"))).await.unwrap();
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::HandshakeFailed)).await;
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::MigrationDeclined { .. }))
        .await;
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!((server.stats().connections_joined, server.stats().migrations), (0, 0));
}

#[tokio::test]
async fn listeners_are_added_and_closed() {
    let test_certificate = generate(&["localhost"]);
    let mut server = Server::builder()
        .listen(loopback(), tls(&[&test_certificate]))
        .workers(NonZeroUsize::new(2).unwrap())
        .authority(AuthorityCheck::Service)
        .start(service_fn(answer))
        .unwrap();
    let ListenerInfo { id, addr: first_addr } = server.listeners()[0];
    let client = client_trusting(&test_certificate);
    check_greeting(&client, &format!("https://localhost:{}/", first_addr.port())).await.unwrap();
    let second_listener = server.listen(loopback(), &tls(&[&test_certificate])).unwrap();
    check_greeting(
        &client_trusting(&test_certificate),
        &format!("https://localhost:{}/", second_listener.addr.port()),
    )
    .await
    .unwrap();

    server.close(id);
    assert_eq!(server.local_addrs(), [second_listener.addr]);
    // Workers close their sockets asynchronously.
    let closed = async { while tokio::net::TcpStream::connect(first_addr).await.is_ok() {} };
    within("the listener's end", closed).await;
    check_greeting(&client, &format!("https://localhost:{}/", first_addr.port())).await.unwrap();
}

#[tokio::test]
async fn a_second_listener_on_an_address_outlives_the_first() {
    let test_certificate = generate(&["localhost"]);
    let mut server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::new(2).unwrap())
        .start(service_fn(answer))
        .unwrap();
    let first_listener = server.listeners()[0];
    let second_listener = server.listen(first_listener.addr, &tls(&[&test_certificate])).unwrap();
    assert_eq!(second_listener.addr, first_listener.addr);
    server.close(first_listener.id);
    assert_eq!(server.listeners(), [second_listener]);
    // Workers close their sockets asynchronously; until then half of the attempts reach the first one.
    let url = format!("https://localhost:{}/", first_listener.addr.port());
    let greeted =
        async { while check_greeting(&client_trusting(&test_certificate), &url).await.is_err() {} };
    within("a greeting by the second listener", greeted).await;
}
