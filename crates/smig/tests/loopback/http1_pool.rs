//! Reuse of a client's HTTP/1.1 connections, and the end of a session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use smig::{Cleartext, Client, Incoming, Origin, QueueLimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{full, get, loopback, within};

/// The head of an ordinary response.
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n";

/// Responds to each request with its number on the connection.
async fn serve_counting(mut tcp: TcpStream, head: &str) -> std::io::Result<()> {
    let mut received = Vec::new();
    for n in 1_u32.. {
        while !received.ends_with(b"\r\n\r\n") {
            if tcp.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        received.clear();
        tcp.write_all(format!("{head}\r\n{n:4}").as_bytes()).await?;
    }
    Ok(())
}

async fn counting_server(head: &'static str) -> SocketAddr {
    counting_server_with_total(head).await.0
}

/// Like [`counting_server`], and returns the number of connections.
async fn counting_server_with_total(head: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let connection_counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            connection_counter.fetch_add(1, Ordering::SeqCst);
            // A client may reset a connection that it does not need.
            tokio::spawn(async move { drop(serve_counting(tcp, head).await) });
        }
    });
    (addr, connections)
}

/// Returns the largest number of requests on one connection.
async fn max_requests_per_connection(head: &'static str, fields: &[(&str, &str)]) -> u32 {
    let addr = counting_server(head).await;
    let client = Client::builder().cleartext(Cleartext::Http1).build().unwrap();
    let mut max = 0;
    // More than the maximum number of connections.
    for _ in 0..20 {
        let mut request = Request::get(format!("http://{addr}/"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(full("")).unwrap()).await.unwrap();
        assert!(response.version() <= Version::HTTP_11);
        max = max.max(response_number(response).await);
    }
    max
}

/// Returns the request's number on its connection.
async fn response_number(response: Response<Incoming>) -> u32 {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    std::str::from_utf8(&body).unwrap().trim().parse().unwrap()
}

/// Returns a client, the server's origin, and its URL.
fn client_for(addr: SocketAddr) -> (Client, Origin, String) {
    let client = Client::builder().cleartext(Cleartext::Http1).build().unwrap();
    (client, Origin::http(addr.ip().to_string(), addr.port()), format!("http://{addr}/"))
}

#[tokio::test]
async fn a_connection_that_may_be_authenticated_or_out_of_step_is_not_reused() {
    assert!(max_requests_per_connection(OK, &[]).await > 1, "an ordinary connection is reused");
    for credentials in ["NTLM TlRM", "negotiate YII="] {
        assert_eq!(
            max_requests_per_connection(OK, &[("authorization", credentials)]).await,
            1,
            "{credentials}"
        );
    }
    for head in [
        "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"x\", NTLM\r\nContent-Length: 4\r\n",
        "HTTP/1.1 200 OK\r\nWWW-Authenticate: Negotiate YII=\r\nContent-Length: 4\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n",
    ] {
        assert_eq!(max_requests_per_connection(head, &[]).await, 1, "{head}");
    }
}

#[tokio::test]
async fn a_connection_to_a_former_address_is_not_reused() {
    for is_busy in [false, true] {
        let (addr, connections) = counting_server_with_total(OK).await;
        let (client, origin, url) = client_for(addr);
        let request = async || within("an answer", client.request(get(&url))).await.unwrap();
        // Until a connection is reused.
        while response_number(request().await).await < 2 {}
        let open_response = if is_busy { Some(request().await) } else { None };
        let connections_before = connections.load(Ordering::SeqCst);
        client.set_addresses(&origin, &["127.0.0.2:80".parse().unwrap()]);
        if let Some(last) = open_response {
            response_number(last).await;
        }
        assert_eq!(response_number(request().await).await, 1);
        assert_eq!(connections.load(Ordering::SeqCst), connections_before + 1);
        // Connections to the current address are kept: with so many requests, some are reused.
        let mut max = 0;
        for _ in 0..20 {
            client.set_addresses(&origin, &[addr]);
            max = max.max(response_number(request().await).await);
        }
        assert!(max > 1);
    }
}

#[tokio::test]
async fn a_request_after_the_end_of_a_session_uses_the_next_session() {
    let (client, origin, url) = client_for(counting_server(OK).await);
    assert_eq!(response_number(client.request(get(&url)).await.unwrap()).await, 1);
    // The session's task receives both at the same time.
    client.retire(&origin);
    let response = within("an answer", client.request(get(&url))).await.unwrap();
    assert_eq!(response_number(response).await, 1, "a new connection");
}

#[tokio::test]
async fn commands_without_a_request_do_not_prolong_a_session() {
    let addr = counting_server(OK).await;
    let idle_timeout = Duration::from_millis(100);
    let builder = Client::builder().cleartext(Cleartext::Http1).idle_timeout(idle_timeout);
    let client = builder.build().unwrap();
    let origin = Origin::http(addr.ip().to_string(), addr.port());
    let response = client.request(get(format!("http://{addr}/"))).await.unwrap();
    assert_eq!(response_number(response).await, 1);
    let ended = async {
        while client.has_session(&origin) {
            client.set_addresses(&origin, &[addr]);
            tokio::task::yield_now().await;
        }
    };
    within("the session's end", ended).await;
}

#[tokio::test]
async fn a_request_that_is_returned_unsent_keeps_its_queue_permit() {
    let addr = counting_server(OK).await;
    let queue = QueueLimit::new(1);
    let builder = Client::builder().cleartext(Cleartext::Http1);
    let client = builder.queue(queue.clone()).build().unwrap();
    let url = format!("http://{addr}/");
    client.request(get(&url)).await.unwrap();
    client.retire(&Origin::http(addr.ip().to_string(), addr.port()));
    let cx = &mut Context::from_waker(Waker::noop());
    let mut second_request = Box::pin(client.request(get(&url)));
    assert!(second_request.as_mut().poll(cx).is_pending());
    assert_eq!(queue.available_permits(), 0);
    // A task that waits in `poll_ready` would get any released permit.
    let mut other = client.clone();
    assert!(tower::Service::<Request<Full<Bytes>>>::poll_ready(&mut other, cx).is_pending());
    let response = within("an answer", second_request).await.expect("it is not refused");
    assert_eq!(response_number(response).await, 1);
}

#[tokio::test]
async fn a_request_dropped_after_its_session_ended_closes_its_connection() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let (client, origin, url) = client_for(listener.local_addr().unwrap());
    let request = tokio::spawn({
        let client = client.clone();
        async move { client.request(get(url)).await.map(|_| ()) }
    });
    let (mut tcp, _) = within("a connection", listener.accept()).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        assert_ne!(within("a request", tcp.read_buf(&mut received)).await.unwrap(), 0);
    }
    client.retire(&origin);
    let ended = async {
        while client.has_session(&origin) {
            tokio::task::yield_now().await;
        }
    };
    within("the session's end", ended).await;
    request.abort();
    // Possibly with a reset.
    let rest = within("the connection's end", tcp.read_buf(&mut received)).await;
    assert!(matches!(rest, Ok(0) | Err(_)), "{rest:?}");
}

/// A runtime with a worker of its own, which runs the sessions of the requests that are sent in it.
fn session_runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test]
async fn a_request_fails_with_the_runtime_of_its_session() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (runtime, mut waiting) = (session_runtime(), Vec::new());
    // The first is sent over HTTP/1.1 and waits for its response; the second waits for the server's TLS handshake.
    for scheme in ["http", "https"] {
        let (client, ..) = client_for(addr);
        let url = format!("{scheme}://{addr}/");
        let mut request = Box::pin(async move { client.request(get(url)).await });
        let is_pending = {
            let _entered = runtime.enter();
            request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
        };
        assert!(is_pending);
        let (mut tcp, _) = within("a connection", listener.accept()).await.unwrap();
        assert_ne!(within("its first bytes", tcp.read(&mut [0; 1])).await.unwrap(), 0);
        waiting.push((scheme, request, tcp));
    }
    // A request that was not sent is repeated in this runtime, and refused.
    drop(listener);
    runtime.shutdown_background();
    for (scheme, request, _tcp) in waiting {
        let result = within("the request's end", request).await;
        assert!(result.is_err(), "{scheme}: {result:?}");
    }
}

/// Records whether it was woken.
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_response_that_is_not_taken_keeps_no_connection() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let (client, _, url) = client_for(listener.local_addr().unwrap());
    let wake_flag = Arc::new(WakeFlag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&wake_flag));
    let mut request = Box::pin(client.request(get(url)));
    assert!(request.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let (mut tcp, _) = within("a connection", listener.accept()).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        assert_ne!(within("a request", tcp.read_buf(&mut received)).await.unwrap(), 0);
    }
    let response =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhere\r\n4\r\nmore\r\n";
    tcp.write_all(response.as_bytes()).await.unwrap();
    let answered = async {
        while !wake_flag.0.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    within("the answer's head", answered).await;
    drop(request);
    let rest = within("the connection's end", tcp.read_buf(&mut received)).await;
    assert!(matches!(rest, Ok(0) | Err(_)), "{rest:?}");
}
