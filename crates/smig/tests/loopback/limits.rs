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
    let (server, release_sender) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let queue = QueueLimit::new(1);
    let mut client = builder().queue(queue.clone()).build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    let poll_ready = |client: &mut Client, cx: &mut Context<'_>| {
        tower::Service::<Request<Full<Bytes>>>::poll_ready(client, cx)
    };
    assert!(poll_ready(&mut client, cx).is_ready());
    // The permit belongs to this handle: others wait, or are refused.
    let mut second_client = client.clone();
    assert!(poll_ready(&mut second_client, cx).is_pending());
    assert!(client.clone().request(get(&*url)).await.unwrap_err().is_busy());
    let first_request = tokio::spawn(client.call(get(&*url)));
    // The server allows one stream, which this request takes; the next one waits.
    let second_request = tokio::spawn({
        let (mut second_client, url) = (second_client.clone(), url.clone());
        async move {
            std::future::poll_fn(|cx| {
                tower::Service::<Request<Full<Bytes>>>::poll_ready(&mut second_client, cx)
            })
            .await
            .unwrap();
            second_client.call(get(&*url)).await
        }
    });
    drop(second_client);
    release_sender.send_replace(true);
    assert_eq!(first_request.await.unwrap().unwrap().status(), 200);
    assert_eq!(second_request.await.unwrap().unwrap().status(), 200);
    assert_eq!(queue.available_permits(), 1);
    assert!(matches!(poll_ready(&mut client, cx), Poll::Ready(Ok(()))));
}

#[tokio::test]
async fn a_dropped_request_releases_its_queue_permit() {
    let (server, _release_sender) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let queue = QueueLimit::new(1);
    let client = builder().queue(queue.clone()).build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let first_request = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { client.request(get(&*url)).await }
    });
    // When its permit is available again, the request was sent.
    let until_free = async || {
        while queue.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
    };
    while server.stats().streams_opened < 2 {
        tokio::task::yield_now().await;
    }
    until_free().await;
    let mut second_request = Box::pin(client.request(get(&*url)));
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(second_request.as_mut().poll(cx).is_pending());
    assert_eq!(queue.available_permits(), 0);
    drop(second_request);
    until_free().await;
    first_request.abort();
}

#[tokio::test]
async fn over_http1_a_request_waits_for_a_connection_within_limits() {
    let (server, _release_sender) = slow_server();
    let url = format!("http://{}/", server.local_addrs()[0]);
    let queue_timeout = Duration::from_millis(20);
    let builder = Client::builder().cleartext(Cleartext::Http1).queue_timeout(queue_timeout);
    let queue = QueueLimit::new(1);
    let client = builder.queue(queue.clone()).build().unwrap();
    let mut requests = tokio::task::JoinSet::new();
    for n in 1..=6 {
        let (client, url) = (client.clone(), url.clone());
        requests.spawn(async move { client.request(get(url)).await.map(|_| ()) });
        let begun = async {
            while server.stats().streams_opened < n || queue.available_permits() == 0 {
                tokio::task::yield_now().await;
            }
        };
        within("a request at the server", begun).await;
    }
    let seventh = within("the seventh's end", client.request(get(&*url))).await;
    let error = seventh.unwrap_err();
    assert!(error.is_busy() && error.is_timeout() && error.is_retryable(), "{error}");
    assert_eq!(queue.available_permits(), 1);
}

#[tokio::test]
async fn clients_share_a_limit_on_connections() {
    let (server, release_sender) = slow_server();
    release_sender.send_replace(true);
    let addr = server.local_addrs()[0];
    let url = format!("http://{addr}/");
    let limit = ConnectionLimit::new(1);
    let first_client = builder().connections(limit.clone()).build().unwrap();
    let queue_timeout = Duration::from_millis(20);
    let impatient_client =
        builder().connections(limit.clone()).queue_timeout(queue_timeout).build().unwrap();
    let patient_client = builder().connections(limit.clone()).build().unwrap();
    assert_eq!(first_client.request(get(&*url)).await.unwrap().status(), 200);
    let error = impatient_client.request(get(&*url)).await.unwrap_err();
    assert!(error.is_busy() && error.is_retryable() && !error.is_connect(), "{error}");
    let waiting_request = tokio::spawn({
        let (patient_client, url) = (patient_client.clone(), url.clone());
        async move { patient_client.request(get(&*url)).await }
    });
    while !limit.has_waiters() {
        tokio::task::yield_now().await;
    }
    // The first client's session closes and releases its permit, for the request that waits.
    first_client.retire(&Origin::http(addr.ip().to_string(), addr.port()));
    assert_eq!(waiting_request.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn sent_at_returns_when_the_request_got_its_stream() {
    let (server, release_sender) = slow_server();
    let addr = server.local_addrs()[0];
    let (url, origin) = (format!("http://{addr}/"), Origin::http("127.0.0.1", addr.port()));
    let client = builder().build().unwrap();
    client.request(get(format!("{url}warm"))).await.unwrap();
    let wait_until_sent = async |sending: &ResponseFuture<'_>| {
        while sending.sent_at().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let mut first_response = client.submit(&origin, get(&*url)).unwrap();
    let mut second_response = client.submit(&origin, get(&*url)).unwrap();
    within("the first one's stream", wait_until_sent(&first_response)).await;
    assert!(second_response.sent_at().is_none(), "it waits");
    release_sender.send_replace(true);
    assert_eq!(within("the first answer", &mut first_response).await.unwrap().status(), 200);
    assert_eq!(within("the second answer", &mut second_response).await.unwrap().status(), 200);
    assert!(second_response.sent_at() >= first_response.sent_at());

    let client = Client::builder().cleartext(Cleartext::Http1).build().unwrap();
    let sending = client.submit(&origin, get(&*url)).unwrap();
    within("a connection", wait_until_sent(&sending)).await;
    assert_eq!(within("the response over HTTP/1.1", sending).await.unwrap().status(), 200);
}
