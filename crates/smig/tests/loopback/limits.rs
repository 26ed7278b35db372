//! Limits of queued requests and connections.

use std::num::NonZeroUsize;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use smig::{
    Cleartext, CleartextTrust, Client, ClientBuilder, Config, ConnectionLimit, Incoming, Origin,
    QueueLimit, ResponseFuture, Server,
};
use tokio::sync::watch;
use tower::Service as _;

use crate::support::{get, loopback, within};

/// A server that allows one stream at a time, and responds when the sender is set to true.
fn slow_server() -> (Server, watch::Sender<bool>) {
    let (sender, receiver) = watch::channel(false);
    let handler = move |request: Request<Incoming>| {
        let mut receiver = receiver.clone();
        async move {
            if request.uri().path() != "/warm" {
                let _ = receiver.wait_for(|&go| go).await;
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
    (server, sender)
}

fn builder() -> ClientBuilder {
    Client::builder().cleartext(Cleartext::PriorKnowledge(CleartextTrust::None))
}

#[tokio::test]
async fn a_client_is_ready_when_another_request_may_wait() {
    let (server, go) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let queue = QueueLimit::new(1);
    let mut client = builder().queue(queue.clone()).build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    let ready = |client: &mut Client, cx: &mut Context<'_>| {
        tower::Service::<Request<Full<Bytes>>>::poll_ready(client, cx)
    };
    assert!(ready(&mut client, cx).is_ready());
    // The permit belongs to this handle: others wait, or are refused.
    let mut other = client.clone();
    assert!(ready(&mut other, cx).is_pending());
    assert!(client.clone().request(get(&*url)).await.unwrap_err().is_busy());
    let first = tokio::spawn(client.call(get(&*url)));
    // The server allows one stream, which this request takes; the next one waits.
    let second = tokio::spawn({
        let (mut other, url) = (other.clone(), url.clone());
        async move {
            std::future::poll_fn(|cx| {
                tower::Service::<Request<Full<Bytes>>>::poll_ready(&mut other, cx)
            })
            .await
            .unwrap();
            other.call(get(&*url)).await
        }
    });
    drop(other);
    go.send_replace(true);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(second.await.unwrap().unwrap().status(), 200);
    assert_eq!(queue.free(), 1);
    assert!(matches!(ready(&mut client, cx), Poll::Ready(Ok(()))));
}

#[tokio::test]
async fn a_dropped_request_releases_its_queue_permit() {
    let (server, _go) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let queue = QueueLimit::new(1);
    let client = builder().queue(queue.clone()).build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let first = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { client.request(get(&*url)).await }
    });
    // When its permit is available again, the request was sent.
    let until_free = async || {
        while queue.free() == 0 {
            tokio::task::yield_now().await;
        }
    };
    while server.stats().streams_opened < 2 {
        tokio::task::yield_now().await;
    }
    until_free().await;
    let mut second = Box::pin(client.request(get(&*url)));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(cx).is_pending());
    assert_eq!(queue.free(), 0);
    drop(second);
    until_free().await;
    first.abort();
}

#[tokio::test]
async fn over_http1_a_request_waits_for_a_connection_within_limits() {
    let (server, _go) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let short = Duration::from_millis(20);
    let builder = Client::builder().cleartext(Cleartext::Http1).queue_timeout(short);
    let queue = QueueLimit::new(1);
    let client = builder.queue(queue.clone()).build().unwrap();
    let mut requests = tokio::task::JoinSet::new();
    for n in 1..=6 {
        let (client, url) = (client.clone(), url.clone());
        requests.spawn(async move { client.request(get(url)).await.map(|_| ()) });
        let begun = async {
            while server.stats().streams_opened < n || queue.free() == 0 {
                tokio::task::yield_now().await;
            }
        };
        within("a request at the server", begun).await;
    }
    let seventh = within("the seventh's end", client.request(get(&*url))).await;
    let error = seventh.unwrap_err();
    assert!(error.is_busy() && error.is_timeout() && error.is_retryable(), "{error}");
    assert_eq!(queue.free(), 1);
}

#[tokio::test]
async fn clients_share_a_limit_on_connections() {
    let (server, go) = slow_server();
    go.send_replace(true);
    let addr = server.local_addrs()[0];
    let url = format!("http://{addr}/");
    let limit = ConnectionLimit::new(1);
    let one = builder().connections(limit.clone()).build().unwrap();
    let short = Duration::from_millis(20);
    let impatient = builder().connections(limit.clone()).queue_timeout(short).build().unwrap();
    let patient = builder().connections(limit.clone()).build().unwrap();
    assert_eq!(one.request(get(&*url)).await.unwrap().status(), 200);
    let error = impatient.request(get(&*url)).await.unwrap_err();
    assert!(error.is_busy() && error.is_retryable() && !error.is_connect(), "{error}");
    let waiting = tokio::spawn({
        let (patient, url) = (patient.clone(), url.clone());
        async move { patient.request(get(&*url)).await }
    });
    while !limit.has_waiters() {
        tokio::task::yield_now().await;
    }
    // A request waits, so the first client releases its permit.
    one.retire(&Origin::http(addr.ip().to_string(), addr.port()));
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn sent_at_returns_when_the_request_got_its_stream() {
    let (server, go) = slow_server();
    let addr = server.local_addrs()[0];
    let (url, origin) = (format!("http://{addr}/"), Origin::http("127.0.0.1", addr.port()));
    let client = builder().build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let sent = async |sending: &ResponseFuture<'_>| {
        while sending.sent_at().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let mut first = client.submit(&origin, get(&*url)).unwrap();
    let mut second = client.submit(&origin, get(&*url)).unwrap();
    within("the first one's stream", sent(&first)).await;
    assert!(second.sent_at().is_none(), "it waits");
    go.send_replace(true);
    assert_eq!(within("the first answer", &mut first).await.unwrap().status(), 200);
    assert_eq!(within("the second answer", &mut second).await.unwrap().status(), 200);
    assert!(second.sent_at() >= first.sent_at());

    let client = Client::builder().cleartext(Cleartext::Http1).build().unwrap();
    let sending = client.submit(&origin, get(&*url)).unwrap();
    within("a connection", sent(&sending)).await;
    assert_eq!(within("the response over HTTP/1.1", sending).await.unwrap().status(), 200);
}
