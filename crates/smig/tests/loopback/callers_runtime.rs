//! Servers on the caller's runtime, and with listeners and connections that the caller provides.

use std::cell::Cell;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get as on_get;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use smig::{
    BoxError, CleartextTrust, Client, ClientBuilder, ConnectionServer, Incoming, MigrationConfig,
    MigrationMode, ObserverEvent, Serve, Server, ServerBuilder, ServerTls, Trust,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{ServiceExt as _, service_fn};

use crate::support::{
    EventRecorder, answer, bytes, certificate, digest, get, loopback, sha256, wait_for_event,
    within,
};

const LEN: usize = 8 << 20;

fn tls() -> (ServerTls, ClientBuilder) {
    let test_certificate = certificate();
    let tls = ServerTls::from_pem(
        test_certificate.certificate.as_bytes(),
        test_certificate.key.as_bytes(),
    )
    .unwrap();
    (tls, Client::builder().trust(Trust::Pem(test_certificate.certificate.into_bytes())))
}

fn url(addr: SocketAddr, path: &str) -> String {
    format!("https://localhost:{}{path}", addr.port())
}

/// Migrates each stream at 1 MiB.
fn with_migration(builder: ServerBuilder) -> ServerBuilder {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::At(vec![1 << 20]);
    builder.migration(rules)
}

fn never_migrate() -> MigrationConfig {
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::Never;
    rules
}

/// A client configuration whose window is much smaller than `LEN`: the server cannot send all of a body that is not
/// read.
fn small_window() -> smig::Config {
    let mut config = smig::Config::client();
    config.stream_window = 1 << 20;
    config
}

/// Runs `test` while the server is polled on the same task.
async fn while_serving<T>(server: Serve, test: impl Future<Output = T>) -> T {
    tokio::select! {
        ended = server => panic!("the server ended: {ended:?}"),
        result = within("the end of the test", test) => result,
    }
}

async fn fetch(client: &Client, url: String) -> Bytes {
    let response = client.request(get(url)).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Downloads `LEN` bytes once a spare has joined; checks that they arrive on two connections.
async fn check_migrated_download(client: ClientBuilder, addr: SocketAddr) {
    let (observer, mut events) = EventRecorder::new();
    let client = client.migration(never_migrate()).observer(observer).build().unwrap();
    assert_eq!(fetch(&client, url(addr, "/")).await, "hello");
    wait_for_event(&mut events, |event| matches!(event, ObserverEvent::Joined { .. })).await;
    let response = client.request(get(url(addr, &format!("/bytes/{LEN}")))).await.unwrap();
    let info = response.body().stream_info().unwrap();
    let (hash, len) = digest(response.into_body()).await.unwrap();
    assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    assert_eq!(info.segments().len(), 2, "{:?}", info.segments());
}

async fn check_axum() {
    let app = Router::new()
        .route("/hello/{name}", on_get(async |Path(name): Path<String>| format!("Hello, {name}!")))
        .map_request(|request: Request<Incoming>| request.map(axum::body::Body::new));
    let (tls, client) = tls();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let builder = Server::builder().listen_on(listener.into_std().unwrap(), tls);
    let server = builder.serve(app).unwrap();
    assert_eq!(server.local_addrs(), [addr]);
    let view = server.view();
    let client = client.build().unwrap();
    while_serving(server, async {
        assert_eq!(fetch(&client, url(addr, "/hello/world")).await, "Hello, world!");
        assert_eq!((view.stats().streams_opened, view.sessions().await.sessions.len()), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn an_axum_router_is_served_on_a_current_thread_runtime() {
    check_axum().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_axum_router_is_served_on_a_multi_thread_runtime() {
    check_axum().await;
}

#[tokio::test]
async fn an_axum_router_is_served_within_a_local_set() {
    LocalSet::new().run_until(async { spawn_local(check_axum()).await.unwrap() }).await;
}

#[tokio::test]
async fn a_tonic_service_is_served_and_requested() {
    let (health, service) = tonic_health::server::health_reporter();
    health.set_service_status("echo", ServingStatus::Serving).await;
    let (tls, client) = tls();
    let server = Server::builder().listen(loopback(), tls).serve(service).unwrap();
    let origin = url(server.local_addrs()[0], "").parse().unwrap();
    let mut client = HealthClient::with_origin(client.build().unwrap(), origin);
    while_serving(server, async {
        let mut check = async |service: &str| {
            client.check(HealthCheckRequest { service: service.to_owned() }).await
        };
        let status = check("echo").await.unwrap().into_inner().status();
        assert_eq!(status.as_str_name(), "SERVING");
        let error = check("another").await.unwrap_err();
        assert_eq!(error.message(), "service not registered");
        // A response stream: the first message, and one for each change.
        let request = HealthCheckRequest { service: "echo".to_owned() };
        let mut changes = client.watch(request).await.unwrap().into_inner();
        let status = changes.message().await.unwrap().unwrap().status();
        assert_eq!(status.as_str_name(), "SERVING");
        health.set_service_status("echo", ServingStatus::NotServing).await;
        let status = changes.message().await.unwrap().unwrap().status();
        assert_eq!(status.as_str_name(), "NOT_SERVING");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_is_not_send_is_served() {
    let (tls, client) = tls();
    let count = Rc::new(Cell::new(0));
    let service = service_fn({
        let count = Rc::clone(&count);
        move |_: Request<Incoming>| {
            let count = Rc::clone(&count);
            async move {
                count.set(count.get() + 1);
                // A handler may spawn tasks that are not `Send` either.
                let body = spawn_local(async move { Rc::new(count.get()).to_string() }).await?;
                Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(body))))
            }
        }
    });
    let server = Server::builder().listen(loopback(), tls).serve(service).unwrap();
    let addr = server.local_addrs()[0];
    let client = client.build().unwrap();
    while_serving(server, async {
        for expected in ["1", "2"] {
            assert_eq!(fetch(&client, url(addr, "/")).await, expected);
        }
    })
    .await;
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn a_download_migrates_on_the_callers_runtime() {
    let (tls, client) = tls();
    let server =
        with_migration(Server::builder().listen(loopback(), tls)).serve(service_fn(answer));
    let server = server.unwrap();
    let (addr, view) = (server.local_addrs()[0], server.view());
    while_serving(server, check_migrated_download(client, addr)).await;
    // The client replaces the spare.
    assert!(view.stats().connections_joined >= 1);
}

#[tokio::test]
async fn a_graceful_shutdown_waits_for_open_streams() {
    let (tls, client) = tls();
    let (stop_sender, stop_receiver) = oneshot::channel::<()>();
    let limit = Duration::from_secs(60);
    let server = Server::builder().listen(loopback(), tls).serve(service_fn(answer)).unwrap();
    let server = server.with_graceful_shutdown(async { drop(stop_receiver.await) }, limit);
    let addr = server.local_addrs()[0];
    let (observer, mut events) = EventRecorder::new();
    let client = client.engine(small_window()).spares(0).observer(observer).build().unwrap();
    let download = async {
        let response = client.request(get(url(addr, &format!("/bytes/{LEN}")))).await.unwrap();
        // The response has started, and waits for the reader.
        stop_sender.send(()).unwrap();
        while TcpStream::connect(addr).await.is_ok() {
            // The listener is closed as soon as the server's task runs.
            tokio::task::yield_now().await;
        }
        let (hash, len) = digest(response.into_body()).await.unwrap();
        assert_eq!((hash, len), (sha256(&bytes(LEN)), LEN as u64));
    };
    let both = async { tokio::join!(server, download) };
    within("the end of server and download", both).await.0.unwrap();
    let closed = |event: &ObserverEvent| matches!(event, ObserverEvent::ConnectionClosed { .. });
    wait_for_event(&mut events, closed).await;
}

#[tokio::test]
async fn a_graceful_shutdown_aborts_streams_after_its_time_limit() {
    let (tls, client) = tls();
    let server = Server::builder().listen(loopback(), tls).serve(service_fn(answer)).unwrap();
    let addr = server.local_addrs()[0];
    let (stop_sender, stop_receiver) = oneshot::channel::<()>();
    let server = server.with_graceful_shutdown(async { drop(stop_receiver.await) }, Duration::ZERO);
    let client = client.engine(small_window()).build().unwrap();
    let (response_channel, requester) = (oneshot::channel(), client.clone());
    let request = async move {
        let path = format!("/bytes/{LEN}");
        let received = requester.request(get(url(addr, &path))).await.unwrap();
        stop_sender.send(()).unwrap();
        response_channel.0.send(received).unwrap();
    };
    let both = async { tokio::join!(server, request) };
    within("the end of the server", both).await.0.unwrap();
    let error = digest(response_channel.1.await.unwrap().into_body()).await.unwrap_err();
    assert!(error.is_transport() || error.is_remote(), "{error}");
}

/// Reports when it is dropped.
struct DropReport(mpsc::UnboundedSender<&'static str>);

impl Drop for DropReport {
    fn drop(&mut self) {
        // A test that has ended has dropped the receiver.
        let _ = self.0.send("dropped");
    }
}

/// A handler that never responds. Reports its start and its end.
async fn pending_handler(
    reports: mpsc::UnboundedSender<&'static str>,
) -> Result<Response<Empty<Bytes>>, BoxError> {
    reports.send("runs")?;
    let _report = DropReport(reports);
    std::future::pending().await
}

#[tokio::test]
async fn dropping_a_server_drops_its_handlers_and_connections() {
    let (tls, client) = tls();
    let (sender, mut reports) = mpsc::unbounded_channel();
    let service = service_fn(move |_: Request<Incoming>| pending_handler(sender.clone()));
    let server = Server::builder().listen(loopback(), tls).serve(service).unwrap();
    let addr = server.local_addrs()[0];
    let client = client.build().unwrap();
    let request = tokio::spawn({
        let client = client.clone();
        async move { client.request(get(url(addr, "/"))).await }
    });
    let began = async { reports.recv().await.unwrap() };
    // The server is dropped when its handler runs.
    assert_eq!(while_serving(server, began).await, "runs");
    assert_eq!(within("the end of the handler", reports.recv()).await, Some("dropped"));
    let error = within("the end of the request", request).await.unwrap().unwrap_err();
    assert!(!error.is_user() && !error.is_timeout(), "{error}");
    assert!(TcpStream::connect(addr).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_server_with_its_own_threads_accepts_bound_listeners() {
    let (tls, client) = tls();
    let (tls_listener, cleartext_listener) =
        (StdListener::bind(loopback()).unwrap(), StdListener::bind(loopback()).unwrap());
    let addrs = [tls_listener.local_addr().unwrap(), cleartext_listener.local_addr().unwrap()];
    let builder = Server::builder()
        .workers(NonZeroUsize::new(2).unwrap())
        .listen_on(tls_listener, tls)
        .listen_cleartext_on(cleartext_listener, CleartextTrust::None);
    let server = with_migration(builder).start(service_fn(answer)).unwrap();
    assert_eq!(server.local_addrs(), addrs);
    within("the migrated download", check_migrated_download(client, addrs[0])).await;
    let plain = Client::builder().build().unwrap();
    let response = fetch(&plain, format!("http://{}/", addrs[1]));
    assert_eq!(within("the greeting", response).await, "hello");
    server.shutdown(Duration::from_secs(10)).await.unwrap();
}

#[tokio::test]
async fn serve_needs_a_listener_and_connection_server_refuses_one() {
    let error = Server::builder().serve(service_fn(answer)).unwrap_err();
    assert!(error.to_string().contains("no addresses"), "{error}");
    let builder = Server::builder().listen_cleartext(loopback(), CleartextTrust::None);
    let error = builder.connection_server(service_fn(answer)).unwrap_err();
    assert!(error.to_string().contains("no listeners"), "{error}");
}

/// Accepts connections for `server`, each served by a task of its own. Reports how each ended.
async fn accept_loop<S, B>(
    server: ConnectionServer<S>,
    listener: TcpListener,
    tls: ServerTls,
    results: mpsc::UnboundedSender<Result<(), smig::Error>>,
) where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error = BoxError> + Clone,
    S: 'static,
    S::Future: 'static,
    B: http_body::Body<Data = Bytes, Error = BoxError> + 'static,
{
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (server, tls, results) = (server.clone(), tls.clone(), results.clone());
        spawn_local(async move {
            let ended = server.serve_connection(tcp, &tls).await;
            // A test that has ended has dropped the receiver.
            let _ = results.send(ended);
        });
    }
}

#[tokio::test]
async fn accepted_connections_join_one_session_and_end_separately() {
    let (tls, client) = tls();
    let server = with_migration(Server::builder()).connection_server(service_fn(answer)).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, mut results) = mpsc::unbounded_channel();
    let view = server.view();
    let server_clone = server.clone();
    let test = async {
        spawn_local(accept_loop(server, listener, tls, sender));
        within("the migrated download", check_migrated_download(client, addr)).await;
        // The session's task has taken the spare, whose own task then ends.
        within("the end of the spare's task", results.recv()).await.unwrap().unwrap();
        server_clone.graceful_shutdown();
        // The task of the session, and those of further spares.
        let mut ended_count = 1;
        while ended_count < view.stats().connections_opened {
            within("the end of all tasks", results.recv()).await.unwrap().unwrap();
            ended_count += 1;
        }
        assert!(ended_count >= 2);
    };
    LocalSet::new().run_until(test).await;
    let stats = view.stats();
    assert_eq!(stats.connections_opened, stats.connections_closed);
}

#[tokio::test]
async fn a_connection_joins_a_session_on_another_thread() {
    let (tls, client) = tls();
    let server = with_migration(Server::builder()).connection_server(service_fn(answer)).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (result_sender, mut results) = mpsc::unbounded_channel();
    // Each connection gets a thread and a runtime of its own.
    let accept_task = tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let tcp = tcp.into_std().unwrap();
            let (server, tls, thread_result_sender) =
                (server.clone(), tls.clone(), result_sender.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let result = runtime.unwrap().block_on(async {
                    let tcp = TcpStream::from_std(tcp).unwrap();
                    server.serve_connection(tcp, &tls).await
                });
                // A test that has ended has dropped the receiver.
                let _ = thread_result_sender.send(result);
            });
        }
    });
    within("the migrated download", check_migrated_download(client, addr)).await;
    // The client was dropped, and with it the connections on both threads.
    for _ in 0..2 {
        within("the end of a connection", results.recv()).await.unwrap().unwrap();
    }
    accept_task.abort();
}

#[tokio::test]
async fn an_accepted_cleartext_connection_supports_http1_and_http2() {
    let server = Server::builder().connection_server(service_fn(answer)).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serve_next = async || {
        let (tcp, _) = listener.accept().await.unwrap();
        server.serve_cleartext_connection(tcp, CleartextTrust::None).await
    };
    let http1 = async {
        let mut tcp = TcpStream::connect(addr).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        tcp.write_all(request).await.unwrap();
        let mut response = String::new();
        tcp.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.ends_with("hello"), "{response}");
    };
    let (served, ()) = within("HTTP/1.1", async { tokio::join!(serve_next(), http1) }).await;
    served.unwrap();
    let http2 = async {
        let trust = smig::Cleartext::PriorKnowledge(CleartextTrust::None);
        let client = Client::builder().cleartext(trust).build().unwrap();
        assert_eq!(fetch(&client, format!("http://{addr}/")).await, "hello");
    };
    let (served, ()) = within("HTTP/2", async { tokio::join!(serve_next(), http2) }).await;
    served.unwrap();
    let invalid = async {
        let mut tcp = TcpStream::connect(addr).await.unwrap();
        tcp.write_all(b"EHLO a\r\n").await.unwrap();
        assert_eq!(tcp.read(&mut [0; 1]).await.unwrap_or(0), 0);
    };
    let (served, ()) = within("the refusal", async { tokio::join!(serve_next(), invalid) }).await;
    let error = served.unwrap_err().to_string();
    assert!(error.contains("neither HTTP/2 nor HTTP/1.1"), "{error}");
}

#[tokio::test]
async fn an_accepted_connection_is_closed_when_its_future_is_dropped() {
    let (sender, mut reports) = mpsc::unbounded_channel();
    let service = service_fn(move |_: Request<Incoming>| pending_handler(sender.clone()));
    let server = Server::builder().connection_server(service).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    tokio::select! {
        ended = server.serve_cleartext_connection(tcp, CleartextTrust::None) => panic!("{ended:?}"),
        report = within("the handler", reports.recv()) => assert_eq!(report, Some("runs")),
    }
    assert_eq!(reports.try_recv(), Ok("dropped"));
    let closed = within("the end of the connection", client.read(&mut [0; 1])).await;
    assert_eq!(closed.unwrap_or(0), 0);
    let stats = server.view().stats();
    assert_eq!((stats.connections_opened, stats.connections_closed), (1, 1));
}

#[tokio::test]
async fn a_dropped_http2_connection_leaves_no_session() {
    let (tls, client) = tls();
    let (sender, mut reports) = mpsc::unbounded_channel();
    let service = service_fn(move |_: Request<Incoming>| pending_handler(sender.clone()));
    let server = Server::builder().connection_server(service).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let client = client.build().unwrap();
    let request = tokio::spawn(async move { client.request(get(url(addr, "/"))).await });
    let (tcp, _) = within("the connection", listener.accept()).await.unwrap();
    tokio::select! {
        ended = server.serve_connection(tcp, &tls) => panic!("{ended:?}"),
        report = within("the handler", reports.recv()) => assert_eq!(report, Some("runs")),
    }
    assert_eq!(reports.try_recv(), Ok("dropped"));
    let snapshot = server.view().sessions().await;
    assert_eq!((snapshot.sessions.len(), snapshot.sessions_omitted), (0, 0));
    request.abort();
}

#[tokio::test]
async fn dropping_the_server_ends_an_upload_that_another_task_reads() {
    let (tls, client) = tls();
    let (sender, mut reports) = mpsc::unbounded_channel();
    let (result_sender, result_receiver) = oneshot::channel();
    let result_sender = Rc::new(Cell::new(Some(result_sender)));
    let service = service_fn(move |request: Request<Incoming>| {
        let result_sender = result_sender.take().unwrap();
        tokio::spawn(
            async move { result_sender.send(request.into_body().collect().await.map(drop)) },
        );
        pending_handler(sender.clone())
    });
    let server = Server::builder().listen(loopback(), tls).serve(service).unwrap();
    let addr = server.local_addrs()[0];
    let client = client.build().unwrap();
    let body = StreamBody::new(stream::pending::<Result<http_body::Frame<Bytes>, BoxError>>());
    let upload = Request::post(url(addr, "/")).body(body).unwrap();
    let upload = tokio::spawn(async move { client.request(upload).await });
    let began = async { reports.recv().await.unwrap() };
    // The server is dropped while the upload goes on.
    assert_eq!(while_serving(server, began).await, "runs");
    let error = within("the end of the upload", result_receiver).await.unwrap().unwrap_err();
    assert!(error.is_transport(), "{error}");
    upload.abort();
}

#[tokio::test]
async fn an_accepted_connection_is_subject_to_the_limits() {
    let (tls, _) = tls();
    let builder = Server::builder().max_connections(0);
    let server = builder.connection_server(service_fn(answer)).unwrap();
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    let error = server.serve_connection(tcp, &tls).await.unwrap_err();
    assert!(error.is_busy(), "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    assert_eq!(server.view().stats().limits_hit, 1);
    drop(client);
}
