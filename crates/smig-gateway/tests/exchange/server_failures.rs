//! Servers that refuse, stall or disconnect: the client's response, and what is retried.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Request;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use smig_gateway::upstream::{Balance, Ejection, HashKey, HealthSpec, Timeouts, Upstream};
use smig_testkit::port::ReservedPort;

use crate::support::{
    Gateway, Origin, ReceivedRequest, client, fixed_response_origin, get, spec, text, wait_until,
};

const OK_RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn an_unreachable_server_is_reported_in_proxy_status() {
    let closed_port = ReservedPort::new();
    let gateway = Gateway::in_front_of(format!("http://{closed_port}"));
    let response = client().request(get(gateway.url("/"))).await.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=connection_refused");
    let gateway = Gateway::in_front_of("http://does-not-exist.invalid");
    let response = client().request(get(gateway.url("/"))).await.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=dns_error");
    let gateway = Gateway::in_front_of("unix:/does/not/exist");
    let response = client().request(get(gateway.url("/"))).await.unwrap();
    assert_eq!(response.headers()["proxy-status"], "smig; error=destination_unavailable");
}

#[tokio::test]
async fn a_post_is_retried_when_the_connection_is_refused() {
    let closed_port = ReservedPort::new();
    let (good_addr, _) = fixed_response_origin(OK_RESPONSE).await;
    let gateway =
        Gateway::start(&spec(&[&format!("http://{closed_port}"), &format!("http://{good_addr}")]));
    for _ in 0..4 {
        let request = Request::post(gateway.url("/")).body(Full::<Bytes>::from("body")).unwrap();
        let response = client().request(request).await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

#[tokio::test]
async fn a_failing_server_is_ejected() {
    let closed_port = ReservedPort::new();
    let (good_addr, _) = fixed_response_origin(OK_RESPONSE).await;
    let mut spec = spec(&[&format!("http://{closed_port}"), &format!("http://{good_addr}")]);
    spec.ejection = Ejection { consecutive_failures: 2, base_time: Duration::from_secs(3600) };
    let gateway = Gateway::start(&spec);
    let client = client();
    for _ in 0..10 {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    let [failing_server, good_server] = gateway.upstream.servers() else { panic!("two servers") };
    assert!(
        !failing_server.is_healthy() && good_server.is_healthy() && gateway.upstream.is_healthy()
    );
    assert_eq!(failing_server.status().attempts, 2);
    assert_eq!(good_server.status().attempts, 10);
    assert_eq!(gateway.upstream.load(), 0);
}

#[tokio::test]
async fn a_response_timeout_is_504() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.timeouts = Timeouts { response_header: Duration::from_millis(50), ..Timeouts::default() };
    let gateway = Gateway::start(&spec);
    let client = client();
    let (response, received_request) =
        tokio::join!(client.request(get(gateway.url("/"))), origin.accept_request());
    let response = response.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["proxy-status"], "smig; error=http_response_timeout");
    // It was not retried.
    assert!(received_request.next().await.is_none() && origin.has_no_pending_connection());
}

/// Over HTTP/1.1 an upload ends with its last announced byte, wherever the client's END_STREAM is.
#[tokio::test]
async fn the_response_timeout_starts_without_end_stream() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.timeouts = Timeouts {
        response_header: Duration::from_millis(50),
        stream_idle: None,
        ..Timeouts::default()
    };
    let gateway = Gateway::start(&spec);
    let pieces = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))];
    let pieces = stream::iter(pieces).chain(stream::pending());
    let request = Request::post(gateway.url("/")).header("content-length", 1);
    let request = request.body(StreamBody::new(pieces)).unwrap();
    let client = client();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.read_until("x").await;
        received_request
    };
    let (response, _received_request) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["proxy-status"], "smig; error=http_response_timeout");
}

#[tokio::test]
async fn a_tls_handshake_timeout_is_504() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&format!("https://{}", origin.addr)]);
    spec.tls.insecure = true;
    spec.retries = 0;
    spec.timeouts = Timeouts { connect: Duration::from_millis(50), ..Timeouts::default() };
    let gateway = Gateway::start(&spec);
    let client = client();
    let (response, _mute) = tokio::join!(client.request(get(gateway.url("/"))), origin.accept());
    let response = response.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["proxy-status"], "smig; error=connection_timeout");
}

#[tokio::test]
async fn a_server_without_tls_is_502() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&format!("https://{}", origin.addr)]);
    spec.tls.insecure = true;
    spec.retries = 0;
    let gateway = Gateway::start(&spec);
    let client = client();
    let server_side = async {
        let mut tcp = origin.accept().await;
        tokio::io::AsyncWriteExt::write_all(&mut tcp, OK_RESPONSE.as_bytes()).await.unwrap();
        tcp
    };
    let (response, _tcp) = tokio::join!(client.request(get(gateway.url("/"))), server_side);
    let response = response.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=tls_protocol_error");
}

/// Answers one request, then closes when the second one has arrived.
async fn close_on_second_request(origin: &mut Origin) {
    let mut received_request = origin.accept_request().await;
    received_request.respond(OK_RESPONSE).await;
    drop(received_request.next().await.unwrap());
}

#[tokio::test]
async fn idempotent_requests_are_retried_when_a_reused_connection_ends() {
    for retries in [0, 1] {
        let mut origin = Origin::start().await;
        let mut spec = spec(&[&origin.url()]);
        spec.retries = retries;
        let gateway = Gateway::start(&spec);
        let client = client();
        let client_side = async {
            for _ in 0..2 {
                let response = client.request(get(gateway.url("/"))).await.unwrap();
                assert_eq!(response.status(), 200);
                assert_eq!(text(response.into_body()).await, "ok");
            }
        };
        let server_side = async {
            close_on_second_request(&mut origin).await;
            let mut again = origin.accept_request().await;
            again.respond(OK_RESPONSE).await;
            again
        };
        let ((), _open) = tokio::join!(client_side, server_side);
        assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
    }
}

/// A failed reused connection does not count against its server: the one retry remains for another.
#[tokio::test]
async fn a_server_that_fails_on_a_reused_connection_is_replaced() {
    let (good_addr, _) = fixed_response_origin(OK_RESPONSE).await;
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url(), &format!("http://{good_addr}")]);
    spec.balance = Balance::Hash(HashKey::Header("x-user".parse().unwrap()));
    let gateway = Gateway::start(&spec);
    let client = client();
    let ask = async |user: usize| {
        let request = Request::get(gateway.url("/")).header("x-user", user);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(text(response.into_body()).await, "ok");
    };
    // Find the first user whose requests are sent to the server that fails.
    let mut user = 0;
    let received_request = loop {
        let client_side = ask(user);
        tokio::pin!(client_side);
        let mut received_request = tokio::select! {
            () = &mut client_side => {
                user += 1;
                continue;
            }
            received_request = origin.accept_request() => received_request,
        };
        received_request.respond(OK_RESPONSE).await;
        client_side.await;
        break received_request;
    };
    let dying = async {
        let again = received_request.next().await.unwrap();
        drop(origin);
        drop(again);
    };
    tokio::join!(ask(user), dying);
}

#[tokio::test]
async fn a_post_is_not_sent_twice() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let client_side = async {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "ok");
        let request = Request::post(gateway.url("/")).body(Full::<Bytes>::default()).unwrap();
        client.request(request).await.unwrap()
    };
    let (response, ()) = tokio::join!(client_side, close_on_second_request(&mut origin));
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=connection_terminated");
    assert!(origin.has_no_pending_connection());
}

#[tokio::test]
async fn a_connection_announced_as_closing_is_not_used_again() {
    let (addr, connections) = fixed_response_origin(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let gateway = Gateway::in_front_of(format!("http://{addr}"));
    let client = client();
    for _ in 0..3 {
        let request = Request::post(gateway.url("/")).body(Full::<Bytes>::default()).unwrap();
        assert_eq!(client.request(request).await.unwrap().status(), 200);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn connections_are_limited_and_requests_queue() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.max_connections = 1;
    let gateway = Gateway::start(&spec);
    let client = client();
    let ask = async || text(client.request(get(gateway.url("/"))).await.unwrap().into_body()).await;
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        while gateway.upstream.servers()[0].status().pending_requests == 0 {
            tokio::task::yield_now().await;
        }
        received_request.respond(OK_RESPONSE).await;
        let mut received_request = received_request.next().await.unwrap();
        received_request.respond(OK_RESPONSE).await;
        assert!(origin.has_no_pending_connection());
    };
    let (first, second, ()) = tokio::join!(ask(), ask(), server_side);
    assert_eq!((&*first, &*second), ("ok", "ok"));
}

#[tokio::test]
async fn a_queue_timeout_is_503() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.max_connections = 1;
    spec.retries = 0;
    spec.timeouts.queue = Duration::from_millis(20);
    let gateway = Gateway::start(&spec);
    let client = client();
    let client_side = client.request(get(gateway.url("/")));
    let second = async {
        let mut received_request = origin.accept_request().await;
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["proxy-status"], "smig; error=connection_limit_reached");
        received_request.respond(OK_RESPONSE).await;
    };
    let (first, ()) = tokio::join!(client_side, second);
    assert_eq!(first.unwrap().status(), 200);
}

#[tokio::test]
async fn equal_hash_keys_select_the_same_server() {
    let mut urls = Vec::new();
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc",
    ] {
        urls.push(format!("http://{}", fixed_response_origin(answer).await.0));
    }
    let mut spec = spec(&urls.iter().map(String::as_str).collect::<Vec<_>>());
    spec.balance = Balance::Hash(HashKey::Header("x-user".parse().unwrap()));
    let gateway = Gateway::start(&spec);
    let client = client();
    let mut all_answers = std::collections::BTreeSet::new();
    for user in 0..32 {
        let mut answers = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let request = Request::get(gateway.url("/")).header("x-user", user);
            let request = request.body(Full::<Bytes>::default()).unwrap();
            let response = client.request(request).await.unwrap();
            answers.insert(text(response.into_body()).await);
        }
        assert_eq!(answers.len(), 1);
        all_answers.append(&mut answers);
    }
    assert_eq!(all_answers.len(), 3);
}

#[tokio::test]
async fn health_checks_detect_a_failing_server_without_requests() {
    let (failing_addr, _) =
        fixed_response_origin("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").await;
    let (healthy_addr, _) = fixed_response_origin(OK_RESPONSE).await;
    let mut spec = spec(&[&format!("http://{failing_addr}"), &format!("http://{healthy_addr}")]);
    spec.health = Some(HealthSpec {
        interval: Duration::from_millis(10),
        fall: 2,
        timeout: Duration::from_secs(60),
        ..HealthSpec::default()
    });
    let upstream = Upstream::new("checked", &spec).unwrap();
    let health_checks = tokio::spawn(Upstream::check_health(std::sync::Arc::downgrade(&upstream)));
    wait_until("the failing server is unhealthy", || !upstream.servers()[0].is_healthy()).await;
    assert!(upstream.servers()[1].is_healthy());
    drop(upstream);
    health_checks.await.unwrap();
}

#[tokio::test]
async fn unused_connections_are_closed() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.timeouts.keepalive = Duration::from_millis(10);
    let gateway = Gateway::start(&spec);
    let client = client();
    let server_side = async {
        let mut received_request: ReceivedRequest = origin.accept_request().await;
        received_request.respond(OK_RESPONSE).await;
        assert!(received_request.next().await.is_none());
    };
    let client_side = async {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(text(response.into_body()).await, "ok");
    };
    tokio::join!(client_side, server_side);
}
