//! Certificates: selection by name, renewal at run time, and client certificates.

use crate::support::{
    Authority, Dial, Place, address, assert_status, exchange, origin, shown, url,
};

fn config(more: &str) -> String {
    format!(
        "[[listen]]\naddress = '127.0.0.1:0'\n[[certificate]]\nchain = 'a.pem'\nkey = 'a.key'\n\
         [[route]]\nstatus = 200\n{more}"
    )
}

#[tokio::test]
async fn each_name_has_its_certificate() {
    let ca = Authority::new();
    let place = Place::new();
    place.certificate(&ca, "a", &["a.example"]);
    place.certificate(&ca, "b", &["*.b.example"]);
    let gateway = place.gateway(&config("[[certificate]]\nchain = 'b.pem'\nkey = 'b.key'\n"));
    let to = address(&gateway);
    let dial = Dial::new(&ca, "h2");
    assert!(shown(&dial, to, "a.example").await.is_some());
    assert!(shown(&dial, to, "x.b.example").await.is_some());
    assert!(shown(&dial, to, "b.example").await.is_none());
    assert!(shown(&dial, to, "c.example").await.is_none());
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let ca = Authority::new();
    let place = Place::new();
    place.certificate(&ca, "a", &["a.example"]);
    let gateway = place.gateway(&config("[tls]\nreload_interval = '10ms'\n"));
    let to = address(&gateway);
    let dial = Dial::new(&ca, "h2");
    let first = shown(&dial, to, "a.example").await.unwrap();

    place.write("a.pem", "nothing");
    let mut renewals = gateway.renewals();
    renewals.wait_for(|count| count.failed >= 1).await.unwrap();
    assert_eq!(shown(&dial, to, "a.example").await.unwrap(), first);

    place.certificate(&ca, "a", &["a.example"]);
    while shown(&dial, to, "a.example").await.unwrap() == first {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_reload_changes_how_often_certificates_are_looked_for() {
    let ca = Authority::new();
    let place = Place::new();
    place.certificate(&ca, "a", &["a.example"]);
    let mut gateway = place.gateway(&config("[tls]\nreload_interval = '1h'\n"));
    gateway.reload(place.config(&config("[tls]\nreload_interval = '10ms'\n"))).unwrap();
    let mut renewals = gateway.renewals();
    let before = renewals.borrow_and_update().failed;
    place.write("a.pem", "nothing");
    renewals.wait_for(|count| count.failed > before).await.unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_with_its_line() {
    let place = Place::new();
    let text = config("");
    let error = smig_gateway::Gateway::start(place.config(&text)).unwrap_err().to_string();
    let file = place.path("gateway.toml").display().to_string();
    assert!(error.starts_with(&format!("{file}:4: certificate.0.chain: cannot read")), "{error}");
}

#[tokio::test]
async fn clients_show_certificates() {
    let (ca, clients, origin) = (Authority::new(), Authority::new(), origin("one"));
    let place = Place::new();
    place.certificate(&ca, "a", &["a.example"]);
    place.write("clients.pem", &clients.pem);
    let gateway = place.gateway(&config(
        "[tls]\nclient_ca = 'clients.pem'\nclient_certificate = 'required'\n\
         [forward_proxy]\ncertificate_subjects = ['ann']\nallow = ['127.0.0.0/8']\n",
    ));
    let to = address(&gateway);
    let mut dial = Dial::new(&ca, "http/1.1");
    // In TLS 1.3 the client receives the rejection with its first read.
    if let Ok(stream) = dial.connect(to, "a.example").await {
        assert_eq!(exchange(stream, "GET / HTTP/1.1\nHost: a.example\n\n").await, "");
    }
    dial.identity = Some(ca.sign(&["x"], Some("ann")));
    if let Ok(stream) = dial.connect(to, "a.example").await {
        assert_eq!(exchange(stream, "GET / HTTP/1.1\nHost: a.example\n\n").await, "");
    }
    dial.identity = Some(clients.sign(&["x"], Some("ann")));
    let stream = dial.connect(to, "a.example").await.unwrap();
    let text = "GET / HTTP/1.1\nHost: a.example\nConnection: close\n\n";
    assert_status(&exchange(stream, text).await, 200);

    // The certificate's subject is a user of the forward proxy.
    let forwarded = format!(
        "GET {}/x HTTP/1.1\nHost: {}\nConnection: close\n\n",
        url(&origin),
        &url(&origin)[7..]
    );
    let stream = dial.connect(to, "a.example").await.unwrap();
    let answer = exchange(stream, &forwarded).await;
    assert_status(&answer, 200);
    assert!(answer.contains("one\nGET /x"), "{answer}");
    dial.identity = Some(clients.sign(&["x"], Some("bob")));
    let stream = dial.connect(to, "a.example").await.unwrap();
    assert_status(&exchange(stream, &forwarded).await, 407);
}
