//! Towards a server that does not support SMig: a second connection beside one that carries bulk.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Body, EventRecorder, Events, full, get, pair, wait_for_event, within};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{
    BoxError, Client, ClientBuilder, Config, ConnectionInfo, Incoming, ObserverEvent, Server,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tower::service_fn;

const CHUNK: Bytes = Bytes::from_static(&[7; 16 << 10]);
/// Length of a bulk response: too long to arrive in a test.
const BULK_BYTES: u64 = 1 << 40;

/// A server that sends a chunk of each bulk response for each permit.
struct BulkServer {
    server: Server,
    chunks: Arc<Semaphore>,
}

impl BulkServer {
    /// Starts the server, with SMig or without, and returns a builder for its clients.
    fn start(engine: Config) -> (Self, ClientBuilder) {
        let (server, client) = pair();
        let chunks = Arc::new(Semaphore::new(0));
        let shared = Arc::clone(&chunks);
        let service = service_fn(move |request: Request<Incoming>| {
            let chunks = Arc::clone(&shared);
            async move { answer(&request, chunks).await }
        });
        let server = server.engine(engine).start(service).unwrap();
        (Self { server, chunks }, client)
    }

    fn addr(&self) -> SocketAddr {
        self.server.local_addrs()[0]
    }
}

async fn answer(
    request: &Request<Incoming>,
    chunks: Arc<Semaphore>,
) -> Result<Response<Body>, BoxError> {
    match request.uri().path() {
        "/bulk" => {
            let frames = futures_util::stream::unfold(chunks, async |chunks| {
                chunks.acquire().await.unwrap().forget();
                Some((Ok(Frame::data(CHUNK)), chunks))
            });
            let response = Response::builder().header("content-length", BULK_BYTES);
            Ok(response.body(StreamBody::new(frames).boxed())?)
        }
        "/never" => std::future::pending().await,
        // The client's port identifies the connection.
        _ => {
            let info = request.extensions().get::<Arc<ConnectionInfo>>().unwrap();
            Ok(Response::new(full(info.peer_addr().port().to_string())))
        }
    }
}

fn plain() -> Config {
    Config { smig: None, ..Config::server() }
}

/// Returns the port of the connection that a small request takes.
async fn small(client: &Client, addr: SocketAddr) -> Result<u16, smig::Error> {
    let response = client.request(get(format!("https://localhost:{}/", addr.port()))).await?;
    let text = response.into_body().collect().await?.to_bytes();
    Ok(std::str::from_utf8(&text).unwrap().parse().unwrap())
}

/// Requests a bulk response, and reads enough of it to be bulk.
async fn start_bulk(client: &Client, server: &BulkServer, addr: SocketAddr) -> Incoming {
    let url = format!("https://localhost:{}/bulk", addr.port());
    let mut body = client.request(get(url)).await.unwrap().into_body();
    read_more(&mut body, server).await;
    body
}

async fn read_more(body: &mut Incoming, server: &BulkServer) {
    server.chunks.add_permits(3);
    let mut read_bytes = 0;
    while read_bytes < 3 * CHUNK.len() {
        read_bytes += body.frame().await.unwrap().unwrap().data_ref().unwrap().len();
    }
}

/// Sends a request that the server never answers, so that bulk has company.
async fn start_waiting(client: &Client, addr: SocketAddr) -> tokio::task::JoinHandle<()> {
    let opened = client.stats().streams_opened;
    let (sender, url) = (client.clone(), format!("https://localhost:{}/never", addr.port()));
    let task = tokio::spawn(async move {
        drop(sender.request(get(url)).await);
    });
    within("the request has a stream", async {
        while client.stats().streams_opened == opened {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task
}

/// Waits until the observed client has opened another connection.
async fn wait_for_connection(events: &mut Events) {
    wait_for_event(events, |event| matches!(event, ObserverEvent::ConnectionOpened { .. })).await;
}

/// Sends small requests until one takes another connection than `first`; returns that one.
async fn wait_for_other(client: &Client, addr: SocketAddr, first: u16) -> u16 {
    within("a request takes the second connection", async {
        loop {
            let port = small(client, addr).await.unwrap();
            if port != first {
                return port;
            }
        }
    })
    .await
}

#[tokio::test]
async fn small_requests_leave_the_connection_that_carries_bulk() {
    let (server, client) = BulkServer::start(plain());
    let (observer, mut events) = EventRecorder::new();
    let client = client.observer(observer).build().unwrap();
    let addr = server.addr();
    let first = small(&client, addr).await.unwrap();
    let waiting = start_waiting(&client, addr).await;
    let bulk = start_bulk(&client, &server, addr).await;
    wait_for_connection(&mut events).await;
    wait_for_connection(&mut events).await;
    let second = wait_for_other(&client, addr, first).await;
    for _ in 0..3 {
        assert_eq!(small(&client, addr).await.unwrap(), second);
    }
    assert_eq!(client.sessions().await.sessions.len(), 2);
    // The bulk response ends: the first connection is as good as the second.
    drop(bulk);
    within("a request takes the first connection", async {
        while small(&client, addr).await.unwrap() != first {}
    })
    .await;
    assert_eq!(client.stats().connections_opened, 2);
    waiting.abort();
}

#[tokio::test]
async fn bulk_alone_and_a_limit_of_one_open_no_second_connection() {
    for (max, has_company) in [(2, false), (1, true)] {
        let (server, client) = BulkServer::start(plain());
        let client = client.plain_connections(max).build().unwrap();
        let waiting = match has_company {
            true => Some(start_waiting(&client, server.addr()).await),
            false => None,
        };
        let mut bulk = start_bulk(&client, &server, server.addr()).await;
        for _ in 0..10 {
            read_more(&mut bulk, &server).await;
        }
        assert_eq!(client.sessions().await.sessions.len(), 1);
        assert_eq!(client.stats().connections_opened, 1, "{max}");
        if let Some(waiting) = waiting {
            waiting.abort();
        }
    }
}

#[tokio::test]
async fn a_server_with_smig_gets_no_second_session() {
    let (server, client) = BulkServer::start(Config::server());
    let client = client.build().unwrap();
    let waiting = start_waiting(&client, server.addr()).await;
    let mut bulk = start_bulk(&client, &server, server.addr()).await;
    for _ in 0..10 {
        read_more(&mut bulk, &server).await;
    }
    assert_eq!(client.sessions().await.sessions.len(), 1);
    waiting.abort();
}

/// What a proxy does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Forward,
    /// It is accepted, and nothing is ever sent on it.
    Stall,
    /// It is closed at once.
    Close,
}

/// Starts a TCP proxy: the first connection is forwarded, the others meet `later`. What each meets is sent to the
/// channel.
async fn proxy(server: SocketAddr, later: Fate) -> (SocketAddr, mpsc::UnboundedReceiver<Fate>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (mut fate, mut stalled) = (Fate::Forward, Vec::new());
        while let Ok((mut client, _)) = listener.accept().await {
            // A test that has ended has dropped the receiver.
            let _ = sender.send(fate);
            match fate {
                Fate::Forward => {
                    tokio::spawn(async move {
                        let mut server = TcpStream::connect(server).await.unwrap();
                        tokio::io::copy_bidirectional(&mut client, &mut server).await
                    });
                }
                Fate::Stall => stalled.push(client),
                Fate::Close => drop(client),
            }
            fate = later;
        }
    });
    (addr, receiver)
}

#[tokio::test]
async fn requests_do_not_wait_for_a_second_connection_that_fails() {
    for fate in [Fate::Stall, Fate::Close] {
        let (server, client) = BulkServer::start(plain());
        let client = client.build().unwrap();
        let (addr, mut connections) = proxy(server.addr(), fate).await;
        let first = small(&client, addr).await.unwrap();
        let waiting = start_waiting(&client, addr).await;
        let mut bulk = start_bulk(&client, &server, addr).await;
        for expected in [Fate::Forward, fate] {
            let met = within("the second connection is tried", connections.recv()).await;
            assert_eq!(met, Some(expected));
        }
        for _ in 0..10 {
            read_more(&mut bulk, &server).await;
            assert_eq!(small(&client, addr).await.unwrap(), first, "{fate:?}");
        }
        waiting.abort();
    }
}

#[tokio::test]
async fn a_second_connection_that_goes_away_is_replaced() {
    let (server, client) = BulkServer::start(plain());
    let client = client.idle_timeout(Duration::from_millis(50)).build().unwrap();
    let addr = server.addr();
    let first = small(&client, addr).await.unwrap();
    let waiting = start_waiting(&client, addr).await;
    let mut bulk = start_bulk(&client, &server, addr).await;
    let second = wait_for_other(&client, addr, first).await;
    // Unused, it closes; the one with the bulk response does not.
    within("the second connection closes", async {
        while client.sessions().await.sessions.len() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(small(&client, addr).await.unwrap(), first);
    read_more(&mut bulk, &server).await;
    let third = wait_for_other(&client, addr, first).await;
    assert_ne!(third, second);
    waiting.abort();
}
