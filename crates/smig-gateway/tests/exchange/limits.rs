//! Limits also apply to HTTP/2 servers, and no wait is unbounded.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use smig::{CleartextTrust, Client, Config, Incoming, Server};
use smig_gateway::upstream::{Balance, HashKey, Timeouts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::support::{Gateway, Origin, ReceivedRequest, client, get, loopback, spec, text, within};
use crate::switching::UPGRADE;

const HOUR: Duration = Duration::from_secs(3600);
const GRPC_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// An HTTP/2 server that processes one request at a time, and responds once the sender is set to true.
fn slow_server() -> (Server, watch::Sender<bool>) {
    let (release_tx, release_rx) = watch::channel(false);
    let handler = move |request: Request<Incoming>| {
        let mut release_rx = release_rx.clone();
        async move {
            if request.uri().path() != "/warm" {
                let _ = release_rx.wait_for(|&go| go).await;
            }
            Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::from_static(b"done"))))
        }
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .engine(Config { max_concurrent_streams: 1, ..Config::server() })
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap();
    (server, release_tx)
}

#[tokio::test]
async fn requests_beyond_the_queue_of_an_http2_server_are_refused() {
    let (server, release_tx) = slow_server();
    let mut spec = spec(&[&format!("h2c://{}", server.local_addrs()[0])]);
    spec.max_pending_requests = 20;
    spec.timeouts.queue = Duration::from_secs(3600);
    let gateway = Gateway::start(&spec);
    let client = client();
    // After this the gateway knows the server's limit.
    client.request(get(gateway.url("/warm"))).await.unwrap();
    let requests: Vec<_> = (0..60)
        .map(|n| {
            let (client, url) = (client.clone(), gateway.url(&format!("/{n}")));
            tokio::spawn(async move { client.request(get(url)).await.unwrap() })
        })
        .collect();
    // Requests that exceed the queue are answered while no other is.
    let mut refused_count = 0;
    let mut pending_requests = requests;
    while refused_count < 39 {
        let (first, _, rest) = futures_util::future::select_all(pending_requests).await;
        let first = first.unwrap();
        assert_eq!(first.status(), 503);
        assert_eq!(first.headers()["proxy-status"], "smig; error=connection_limit_reached");
        refused_count += 1;
        pending_requests = rest;
    }
    release_tx.send_replace(true);
    // One had the stream, if it was sent before the last one was refused, and 20 waited.
    let statuses =
        join_all(pending_requests).await.into_iter().map(|answer| answer.unwrap().status());
    assert!(statuses.filter(|status| *status == 200).count() >= 20);
}

#[tokio::test]
async fn a_request_waits_for_a_stream_up_to_the_queue_timeout() {
    let (server, release_tx) = slow_server();
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
    release_tx.send_replace(true);
    for late in late {
        assert_eq!(late.await.unwrap(), 200);
    }
}

/// An HTTP/2 server that allows one stream at a time. It responds with `name`, and to gRPC calls
/// with a header section and an endless body.
fn single_stream_server(name: &'static str) -> Server {
    let handler = async move |request: Request<Incoming>| {
        if request.headers().get(CONTENT_TYPE) != Some(&GRPC_CONTENT_TYPE) {
            return Ok(Response::new(
                Full::new(Bytes::from_static(name.as_bytes())).boxed_unsync(),
            ));
        }
        let endless = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        let mut response = Response::new(StreamBody::new(endless).boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        Ok::<_, Infallible>(response)
    };
    Server::builder()
        .workers(NonZeroUsize::MIN)
        .engine(Config { max_concurrent_streams: 1, ..Config::server() })
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap()
}

/// Begins a gRPC call, whose response has no timeouts in the gateway: it occupies a stream of its server
/// until the response is dropped.
async fn begin_grpc_call(client: &Client, url: String) -> Response<Incoming> {
    let call =
        Request::post(url).header(CONTENT_TYPE, GRPC_CONTENT_TYPE).body(Full::<Bytes>::default());
    let response = client.request(call.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

fn post(url: String) -> Request<Full<Bytes>> {
    Request::post(url).body(Full::from("a body")).unwrap()
}

#[tokio::test]
async fn the_response_timeout_does_not_run_while_a_request_waits_for_a_stream() {
    let server = single_stream_server("");
    let short = Duration::from_millis(50);
    let timeouts = Timeouts {
        queue: HOUR,
        response_header: short,
        stream_idle: Some(short),
        ..Timeouts::default()
    };
    let mut waiting_spec = spec(&[&format!("h2c://{}", server.local_addrs()[0])]);
    waiting_spec.timeouts = timeouts;
    let (gateway, client) = (Gateway::start(&waiting_spec), client());
    let _call = begin_grpc_call(&client, gateway.url("/")).await;
    let waiting_tasks = [get(gateway.url("/")), post(gateway.url("/"))].map(|request| {
        let client = client.clone();
        tokio::spawn(async move { client.request(request).await.map(|_| ()) })
    });
    let websocket = gateway.connect(UPGRADE).await;
    let status = || gateway.upstream.servers()[0].status();
    let all = async {
        while status().attempts < 4 {
            tokio::task::yield_now().await;
        }
    };
    within("all requests", all).await;
    // Meanwhile, requests to a server that does not respond time out.
    let mut mute_origin = Origin::start().await;
    let mut mute_spec = spec(&[&mute_origin.url()]);
    mute_spec.timeouts = timeouts;
    let mute_gateway = Gateway::start(&mute_spec);
    for _ in 0..2 {
        let both = async {
            tokio::join!(client.request(get(mute_gateway.url("/"))), mute_origin.accept_request())
        };
        let (response, _received_request) = within("another server's failure", both).await;
        assert_eq!(response.unwrap().status(), 504);
    }
    assert_eq!(status().failures, 0);
    assert!(!waiting_tasks.iter().any(tokio::task::JoinHandle::is_finished));
    let read = websocket.try_read(&mut [0; 1]);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_request_that_waits_too_long_for_a_stream_is_sent_to_another_server() {
    let servers = [single_stream_server("full"), single_stream_server("free")];
    let urls = servers.each_ref().map(|server| format!("h2c://{}", server.local_addrs()[0]));
    let mut spec = spec(&urls.each_ref().map(String::as_str));
    spec.balance = Balance::Hash(HashKey::Path);
    spec.timeouts.queue = Duration::from_millis(50);
    let (gateway, client) = (Gateway::start(&spec), client());
    let ask = async |request: Request<Full<Bytes>>| {
        let response = within("a response", client.request(request)).await.unwrap();
        assert_eq!(response.status(), 200);
        text(response.into_body()).await
    };
    let mut path = String::new();
    for n in 0.. {
        path = format!("/{n}");
        if ask(get(gateway.url(&path))).await == "full" {
            break;
        }
    }
    let _call = begin_grpc_call(&client, gateway.url(&path)).await;
    assert_eq!(ask(get(gateway.url(&path))).await, "free");
    assert_eq!(ask(post(gateway.url(&path))).await, "free");
    let mut websocket = gateway.connect(UPGRADE.replace("/chat", &path)).await;
    let mut line = [0; 12];
    within("the response to the WebSocket", websocket.read_exact(&mut line)).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 101");
    for server in gateway.upstream.servers() {
        assert_eq!(server.status().failures, 0, "{}", server.url());
    }
}

#[tokio::test]
async fn informational_responses_are_forwarded_up_to_a_limit() {
    let mut flooding_origin = Origin::start().await;
    let flooding_addr = flooding_origin.addr;
    tokio::spawn(async move {
        let mut tcp = flooding_origin.accept_request().await.tcp;
        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "x".repeat(1000));
        for _ in 0..1000 {
            // The peer may close first.
            let _ = tcp.write_all(hint.as_bytes()).await;
        }
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        tcp
    });
    let gateway = Gateway::in_front_of(format!("http://{flooding_addr}"));
    let answer = gateway
        .send_and_read_to_end("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    let hints = answer.matches("103 Early Hints").count();
    assert!((1..=16).contains(&hints), "{hints}");
    assert!(answer.contains("HTTP/1.1 200 OK") && answer.ends_with("ok"));
}

/// An origin that responds with the number of requests received on the connection so far.
async fn counting_origin(fields: &'static str) -> SocketAddr {
    let mut origin = Origin::start().await;
    let addr = origin.addr;
    tokio::spawn(async move {
        loop {
            let tcp = origin.accept().await;
            tokio::spawn(async move {
                let mut next = ReceivedRequest::read(tcp, Vec::new()).await;
                for n in 1_u32.. {
                    let Some(mut received_request) = next else { return };
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n";
                    received_request.respond(format!("{head}{fields}\r\n{n}")).await;
                    next = received_request.next().await;
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_connection_that_authenticates_a_user_is_not_shared() {
    for (auth, challenge) in [
        ("", "WWW-Authenticate: Basic realm=\"x\", NTLM\r\n"),
        ("Authorization: Negotiate YII=\r\n", ""),
        ("Authorization: ntlm TlRM\r\n", ""),
        ("", "WWW-Authenticate: Negotiate\r\n"),
    ] {
        let origin = counting_origin(challenge).await;
        let gateway = Gateway::in_front_of(format!("http://{origin}"));
        for _ in 0..2 {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{auth}\r\n");
            let answer = gateway.send_and_read_to_end(request).await;
            assert!(answer.ends_with("\r\n\r\n1"), "{auth}{challenge}{answer}");
        }
        // Other requests share a connection.
        if challenge.is_empty() {
            for n in ["1", "2"] {
                let answer = gateway
                    .send_and_read_to_end("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    .await;
                assert!(answer.ends_with(n), "{answer}");
            }
        }
    }
}
