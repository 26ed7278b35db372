//! Certificates: selection by name, renewal at run time, and client certificates.

use crate::support::{
    GatewayDir, TestCa, TlsDialer, address, assert_status, exchange, origin, served_certificate,
    try_exchange, url,
};

fn config(extra_config: &str) -> String {
    format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n\
         [[route]]\nstatus = 200\n{extra_config}"
    )
}

#[tokio::test]
async fn each_name_has_its_certificate() {
    let ca = TestCa::new();
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a.example"]);
    dir.write_certificate(&ca, "b", &["*.b.example"]);
    let gateway = dir.start_gateway(&config("[[certificate]]\nchain = 'b.pem'\nkey = 'b.key'\n"));
    let addr = address(&gateway);
    let dialer = TlsDialer::new(&ca, "h2");
    assert!(served_certificate(&dialer, addr, "a.example").await.is_some());
    assert!(served_certificate(&dialer, addr, "x.b.example").await.is_some());
    assert!(served_certificate(&dialer, addr, "b.example").await.is_none());
    assert!(served_certificate(&dialer, addr, "c.example").await.is_none());
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_an_invalid_one_is_not() {
    let ca = TestCa::new();
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a.example"]);
    let gateway = dir.start_gateway(&config("[tls]\nreload_interval = '10ms'\n"));
    let addr = address(&gateway);
    let dialer = TlsDialer::new(&ca, "h2");
    let first = served_certificate(&dialer, addr, "a.example").await.unwrap();

    dir.write("a.pem", "nothing");
    let mut reloads = gateway.certificate_reloads();
    reloads.wait_for(|count| count.failed >= 1).await.unwrap();
    assert_eq!(served_certificate(&dialer, addr, "a.example").await.unwrap(), first);

    dir.write_certificate(&ca, "a", &["a.example"]);
    reloads.wait_for(|count| count.succeeded >= 1).await.unwrap();
    assert_ne!(served_certificate(&dialer, addr, "a.example").await.unwrap(), first);
}

#[tokio::test]
async fn a_reload_changes_the_interval_of_certificate_checks() {
    let ca = TestCa::new();
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a.example"]);
    let mut gateway = dir.start_gateway(&config("[tls]\nreload_interval = '1h'\n"));
    gateway.reload(dir.load_config(&config("[tls]\nreload_interval = '10ms'\n"))).unwrap();
    let mut reloads = gateway.certificate_reloads();
    let failed_before = reloads.borrow_and_update().failed;
    dir.write("a.pem", "nothing");
    reloads.wait_for(|count| count.failed > failed_before).await.unwrap();
}

#[tokio::test]
async fn a_missing_certificate_file_is_reported_with_its_line() {
    let dir = GatewayDir::new();
    let text = config("");
    let error = smig_gateway::Gateway::start(dir.load_config(&text)).unwrap_err().to_string();
    let file = dir.path("gateway.toml").display().to_string();
    assert!(error.starts_with(&format!("{file}:4: certificate.0.chain: cannot read")), "{error}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_reported_by_the_key_of_its_file() {
    let (dir, ca) = (GatewayDir::new(), TestCa::new());
    for (file, key) in [("a.pem", "chain"), ("a.key", "key")] {
        dir.write_certificate(&ca, "a", &["a.example"]);
        dir.write(file, "nothing");
        let error = smig_gateway::Gateway::check(&dir.load_config(&config(""))).unwrap_err();
        assert!(error.to_string().contains(&format!(" certificate.0.{key}: ")), "{error}");
    }
}

#[test]
fn a_check_reads_the_authorities_of_clients_without_a_certificate_too() {
    let dir = GatewayDir::new();
    let text = "[[listen]]\naddress = '127.0.0.1:0'\n[[route]]\nstatus = 200\n\
                [tls]\nclient_ca = 'clients.pem'\n";
    let error = smig_gateway::Gateway::check(&dir.load_config(text)).unwrap_err().to_string();
    assert!(error.contains("tls.client_ca: cannot read"), "{error}");
    dir.write("clients.pem", "");
    smig_gateway::Gateway::check(&dir.load_config(text)).unwrap();
}

#[tokio::test]
async fn client_certificates_authenticate_clients_and_proxy_users() {
    let (ca, client_ca, origin) = (TestCa::new(), TestCa::new(), origin("one"));
    let dir = GatewayDir::new();
    dir.write_certificate(&ca, "a", &["a.example"]);
    dir.write("clients.pem", &client_ca.pem);
    let gateway = dir.start_gateway(&config(
        "[tls]\nclient_ca = 'clients.pem'\nclient_certificate = 'required'\n\
         [forward_proxy]\ncertificate_subjects = ['ann']\nallow = ['127.0.0.0/8']\n",
    ));
    let addr = address(&gateway);
    let mut dialer = TlsDialer::new(&ca, "http/1.1");
    // In TLS 1.3 the client receives the rejection with its first read.
    if let Ok(stream) = dialer.connect(addr, "a.example").await {
        // The connection may have been closed before the request was written.
        let answer = try_exchange(stream, "GET / HTTP/1.1\nHost: a.example\n\n").await;
        assert_eq!(answer.unwrap_or_default(), "");
    }
    dialer.identity = Some(ca.sign(&["x"], Some("ann")));
    if let Ok(stream) = dialer.connect(addr, "a.example").await {
        // The connection may have been closed before the request was written.
        let answer = try_exchange(stream, "GET / HTTP/1.1\nHost: a.example\n\n").await;
        assert_eq!(answer.unwrap_or_default(), "");
    }
    dialer.identity = Some(client_ca.sign(&["x"], Some("ann")));
    let stream = dialer.connect(addr, "a.example").await.unwrap();
    let text = "GET / HTTP/1.1\nHost: a.example\nConnection: close\n\n";
    assert_status(&exchange(stream, text).await, 200);

    // The certificate's subject is a user of the forward proxy.
    let forwarded_request = format!(
        "GET {}/x HTTP/1.1\nHost: {}\nConnection: close\n\n",
        url(&origin),
        &url(&origin)[7..]
    );
    let stream = dialer.connect(addr, "a.example").await.unwrap();
    let answer = exchange(stream, &forwarded_request).await;
    assert_status(&answer, 200);
    assert!(answer.contains("one\nGET /x"), "{answer}");
    dialer.identity = Some(client_ca.sign(&["x"], Some("bob")));
    let stream = dialer.connect(addr, "a.example").await.unwrap();
    assert_status(&exchange(stream, &forwarded_request).await, 407);
}
