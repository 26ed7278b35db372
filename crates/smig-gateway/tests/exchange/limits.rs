//! Limits also apply to HTTP/2 servers, and no wait is unbounded.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use smig::{ClearTrust, Config, Incoming, Server};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use crate::support::{Gateway, Got, Origin, client, get, loopback, spec};

/// An HTTP/2 server that processes one request at a time, and responds once the sender is set to true.
fn slow() -> (Server, watch::Sender<bool>) {
    let (go, gone) = watch::channel(false);
    let answer = move |request: Request<Incoming>| {
        let mut gone = gone.clone();
        async move {
            if request.uri().path() != "/warm" {
                let _ = gone.wait_for(|&go| go).await;
            }
            Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(b"done"))))
        }
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .engine(Config { max_concurrent_streams: 1, ..Config::server() })
        .listen_cleartext(loopback(), ClearTrust::None)
        .start(tower::service_fn(answer))
        .unwrap();
    (server, go)
}

#[tokio::test]
async fn requests_beyond_the_queue_of_an_http2_server_are_refused() {
    let (server, go) = slow();
    let mut spec = spec(&[&format!("h2c://{}", server.local_addrs()[0])]);
    spec.max_waiting = 20;
    spec.timeouts.queue = Duration::from_secs(3600);
    let gateway = Gateway::start(&spec);
    let client = client();
    // After this the gateway knows the server's limit.
    client.request(get(gateway.url("/warm"))).await.unwrap();
    let asked: Vec<_> = (0..60)
        .map(|n| {
            let (client, url) = (client.clone(), gateway.url(&format!("/{n}")));
            tokio::spawn(async move { client.request(get(url)).await.unwrap() })
        })
        .collect();
    // Requests that exceed the queue are answered while no other is.
    let mut refused = 0;
    let mut waiting = asked;
    while refused < 39 {
        let (first, _, rest) = futures_util::future::select_all(waiting).await;
        let first = first.unwrap();
        assert_eq!(first.status(), 503);
        assert_eq!(first.headers()["proxy-status"], "smig; error=connection_limit_reached");
        refused += 1;
        waiting = rest;
    }
    go.send_replace(true);
    // One had the stream, if it was sent before the last one was refused, and 20 waited.
    let statuses = join_all(waiting).await.into_iter().map(|answer| answer.unwrap().status());
    assert!(statuses.filter(|status| *status == 200).count() >= 20);
}

#[tokio::test]
async fn a_request_waits_for_a_stream_no_longer_than_told() {
    let (server, go) = slow();
    let mut spec = spec(&[&format!("h2c://{}", server.local_addrs()[0])]);
    spec.timeouts.queue = Duration::from_millis(50);
    let gateway = Gateway::start(&spec);
    let client = client();
    let ask = |path: &str| {
        let (client, url) = (client.clone(), gateway.url(path));
        tokio::spawn(async move { client.request(get(url)).await.unwrap().status() })
    };
    // One of the two has the stream; the other one times out.
    let (early, _, late) = futures_util::future::select_all([ask("/first"), ask("/second")]).await;
    assert_eq!(early.unwrap(), 503);
    go.send_replace(true);
    for late in late {
        assert_eq!(late.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn interim_responses_are_passed_on_as_far_as_a_client_has_room() {
    let mut flooding = Origin::start().await;
    let flood = flooding.addr;
    tokio::spawn(async move {
        let mut tcp = flooding.request().await.tcp;
        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "x".repeat(1000));
        for _ in 0..1000 {
            // The peer may close first.
            let _ = tcp.write_all(hint.as_bytes()).await;
        }
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        tcp
    });
    let gateway = Gateway::before(format!("http://{flood}"));
    let answer = gateway.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let hints = answer.matches("103 Early Hints").count();
    assert!((1..=16).contains(&hints), "{hints}");
    assert!(answer.contains("HTTP/1.1 200 OK") && answer.ends_with("ok"));
}

/// An origin that responds with the number of requests received on the connection so far.
async fn counting(fields: &'static str) -> SocketAddr {
    let mut origin = Origin::start().await;
    let addr = origin.addr;
    tokio::spawn(async move {
        loop {
            let tcp = origin.accept().await;
            tokio::spawn(async move {
                let mut next = Got::read(tcp, Vec::new()).await;
                for n in 1_u32.. {
                    let Some(mut got) = next else { return };
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n";
                    got.answer(format!("{head}{fields}\r\n{n}")).await;
                    next = got.next().await;
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_connection_that_knows_a_user_is_nobody_elses() {
    for (asks, answers) in [
        ("", "WWW-Authenticate: Basic realm=\"x\", NTLM\r\n"),
        ("Authorization: Negotiate YII=\r\n", ""),
        ("Authorization: ntlm TlRM\r\n", ""),
        ("", "WWW-Authenticate: Negotiate\r\n"),
    ] {
        let counting = counting(answers).await;
        let gateway = Gateway::before(format!("http://{counting}"));
        for _ in 0..2 {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{asks}\r\n");
            let answer = gateway.raw(request).await;
            assert!(answer.ends_with("\r\n\r\n1"), "{asks}{answers}{answer}");
        }
        // Other requests share a connection.
        if answers.is_empty() {
            for n in ["1", "2"] {
                let answer =
                    gateway.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
                assert!(answer.ends_with(n), "{answer}");
            }
        }
    }
}
