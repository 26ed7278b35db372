//! A gateway without routes, scripted origins, and clients.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use smig::{
    Cleartext, CleartextTrust, Client, ConnectionInfo, Incoming, Resolver, Server, Snapshot,
};
use smig_gateway::exchange::{self, Body};
use smig_gateway::upstream::{Upstream, UpstreamSpec};
use smig_proxy::tunnel::TunnelRegistry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Longer than any test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for an event of this name.
pub(crate) async fn within<T>(event: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future)
        .await
        .unwrap_or_else(|_| panic!("timed out: {event}"))
}

/// Waits until a condition holds that no event reports.
pub(crate) async fn wait_until(condition: &str, is_met: impl Fn() -> bool) {
    let waiting = async {
        while !is_met() {
            tokio::task::yield_now().await;
        }
    };
    within(condition, waiting).await;
}

/// Waits until the address accepts no connections.
pub(crate) async fn wait_until_closed(addr: SocketAddr) {
    let closing = async { while TcpStream::connect(addr).await.is_ok() {} };
    within("the listener's end", closing).await;
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// The service of a gateway with one upstream.
#[derive(Clone)]
struct GatewayService(Arc<Upstream>, TunnelRegistry);

impl tower_service::Service<Request<Incoming>> for GatewayService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (upstream, tunnels) = (Arc::clone(&self.0), self.1.clone());
        let client = request.extensions().get::<Arc<ConnectionInfo>>().unwrap().peer_addr();
        Box::pin(async move { Ok(exchange::exchange(request, &upstream, client, &tunnels).await) })
    }
}

pub(crate) struct Gateway {
    pub(crate) upstream: Arc<Upstream>,
    server: Server,
}

impl Gateway {
    pub(crate) fn start(spec: &UpstreamSpec) -> Self {
        Self::with_upstream(Upstream::new("origin", spec).unwrap())
    }

    /// Starts a gateway that resolves its servers' names with `resolver`.
    pub(crate) fn with_resolver(spec: &UpstreamSpec, resolver: Resolver) -> Self {
        Self::with_upstream(Upstream::with_resolver("origin", spec, resolver).unwrap())
    }

    fn with_upstream(upstream: Arc<Upstream>) -> Self {
        let server = Server::builder()
            .listen_cleartext(loopback(), CleartextTrust::None)
            .workers(NonZeroUsize::MIN)
            .start(GatewayService(Arc::clone(&upstream), TunnelRegistry::of_gateway()))
            .unwrap();
        Self { upstream, server }
    }

    /// Starts another worker of the same upstream.
    pub(crate) fn another_worker(&self) -> Self {
        Self::with_upstream(Arc::clone(&self.upstream))
    }

    /// Starts a gateway in front of one server.
    pub(crate) fn in_front_of(url: impl AsRef<str>) -> Self {
        Self::start(&spec(&[url.as_ref()]))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.server.local_addrs()[0]
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr())
    }

    /// Returns the sessions of its clients.
    pub(crate) async fn sessions(&self) -> Snapshot {
        self.server.view().sessions().await
    }

    /// Shuts down gracefully, however long that takes.
    pub(crate) async fn drain(self) {
        self.server.shutdown(Duration::from_secs(3600)).await.unwrap();
    }

    /// Sends bytes on a new connection.
    pub(crate) async fn connect(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut tcp = TcpStream::connect(self.addr()).await.unwrap();
        tcp.write_all(bytes.as_ref()).await.unwrap();
        tcp
    }

    /// Sends bytes and reads until the gateway closes the connection.
    pub(crate) async fn send_and_read_to_end(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut tcp = self.connect(bytes).await;
        let mut answer = Vec::new();
        // A reset also ends the connection.
        let _ = tcp.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

pub(crate) fn spec(urls: &[&str]) -> UpstreamSpec {
    UpstreamSpec::new(urls.iter().map(|url| url.parse().unwrap()).collect())
}

/// A client over HTTP/2.
pub(crate) fn client() -> Client {
    Client::builder().cleartext(Cleartext::PriorKnowledge(CleartextTrust::None)).build().unwrap()
}

pub(crate) fn get(url: impl AsRef<str>) -> Request<Full<Bytes>> {
    Request::get(url.as_ref()).body(Full::default()).unwrap()
}

pub(crate) async fn text(body: Incoming) -> String {
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A request that an origin received, and its open connection.
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) tcp: TcpStream,
    /// Bytes after the header section that were read with it.
    pub(crate) content: Vec<u8>,
}

impl ReceivedRequest {
    /// Reads a request's header section.
    pub(crate) async fn read(mut tcp: TcpStream, mut bytes: Vec<u8>) -> Option<Self> {
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                return Some(Self { head: String::from_utf8(bytes).unwrap(), tcp, content: rest });
            }
            let read = tcp.read_buf(&mut bytes).await.ok()?;
            if read == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn respond(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until the bytes after the header section end with `end`.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        while !self.content.ends_with(end.as_bytes()) {
            assert_ne!(self.tcp.read_buf(&mut self.content).await.unwrap(), 0, "ended early");
        }
        String::from_utf8(self.content.clone()).unwrap()
    }

    /// Returns the next request on the connection.
    pub(crate) async fn next(self) -> Option<Self> {
        Self::read(self.tcp, self.content).await
    }

    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.head.lines().any(|line| line.eq_ignore_ascii_case(field))
    }
}

/// An origin whose connections the test serves itself.
pub(crate) struct Origin {
    pub(crate) addr: SocketAddr,
    connections: mpsc::UnboundedReceiver<TcpStream>,
}

impl Origin {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (sender, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                if sender.send(tcp).is_err() {
                    break;
                }
            }
        });
        Self { addr, connections }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the next connection.
    pub(crate) async fn accept(&mut self) -> TcpStream {
        self.connections.recv().await.unwrap()
    }

    /// Returns the first request of the next connection.
    pub(crate) async fn accept_request(&mut self) -> ReceivedRequest {
        let tcp = self.accept().await;
        ReceivedRequest::read(tcp, Vec::new()).await.expect("a request")
    }

    /// Returns whether the test has accepted every connection that has arrived.
    pub(crate) fn has_no_pending_connection(&mut self) -> bool {
        self.connections.try_recv().is_err()
    }
}

/// An origin that responds to every request with the same bytes, and counts connections.
pub(crate) async fn fixed_response_origin(
    bytes: &'static str,
) -> (SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    let mut origin = Origin::start().await;
    let (addr, count) = (origin.addr, Arc::<std::sync::atomic::AtomicUsize>::default());
    let count_in_task = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let tcp = origin.accept().await;
            count_in_task.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            tokio::spawn(async move {
                let mut next = ReceivedRequest::read(tcp, Vec::new()).await;
                while let Some(mut received_request) = next {
                    if received_request.tcp.write_all(bytes.as_bytes()).await.is_err() {
                        break;
                    }
                    next = received_request.next().await;
                }
            });
        }
    });
    (addr, count)
}
