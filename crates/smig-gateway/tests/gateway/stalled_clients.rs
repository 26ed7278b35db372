//! Clients that occupy shared resources: a body that is not sent, a response that is not read.

use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use smig::{BoxError, CleartextTrust, Incoming, Server};
use smig_gateway::Gateway;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tower::service_fn;

use crate::support::{GatewayDir, address, assert_status, get, url, within};

const SHORT_TIMEOUT: Duration = Duration::from_millis(40);
const MAX_CONNECTIONS: usize = 3;

/// An origin that responds to a complete request, with 64 MiB at `/big`, and reports the start of each request.
fn origin() -> (Server, UnboundedReceiver<()>) {
    let (requests_tx, requests) = unbounded_channel();
    let handler = move |request: Request<Incoming>| {
        // The receiver is dropped when the test ends.
        let _ = requests_tx.send(());
        async move {
            let length = if request.uri().path() == "/big" { 64 << 20 } else { 5 };
            request.into_body().collect().await?;
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from(vec![b'x'; length]))))
        }
    };
    let server = Server::builder()
        .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(service_fn(handler))
        .unwrap();
    (server, requests)
}

fn gateway(origin: &Server) -> Gateway {
    let dir = GatewayDir::new();
    let mut config = dir.load_config(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nprotocol = 'cleartext'\n\
         [upstreams.one]\nservers = ['{}']\nmax_connections = {MAX_CONNECTIONS}\n\
         [upstreams.one.timeouts]\nqueue = '1h'\nresponse_header = '1h'\nstream_idle = '1h'\n\
         [[route]]\nupstream = 'one'\n",
        url(origin)
    ));
    config.server.body_timeout = SHORT_TIMEOUT;
    config.server.engine.limits.stall_timeout = SHORT_TIMEOUT;
    Gateway::start(config).unwrap()
}

/// Occupies every connection of the upstream with requests that make no progress.
async fn occupy_connections(
    gateway: &Gateway,
    requests: &mut UnboundedReceiver<()>,
    text: &str,
) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address(gateway)).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        within("a request at the origin", requests.recv()).await.unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test]
async fn stalled_uploads_do_not_block_the_upstream() {
    let (origin, mut requests) = origin();
    let gateway = gateway(&origin);
    let stalled_upload = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n";
    let _streams = occupy_connections(&gateway, &mut requests, stalled_upload).await;
    let answer = within("a response while uploads stall", get(address(&gateway), "a", "/", ""));
    assert_status(&answer.await, 200);
}

#[tokio::test]
async fn unread_responses_do_not_block_the_upstream() {
    let (origin, mut requests) = origin();
    let gateway = gateway(&origin);
    let _streams =
        occupy_connections(&gateway, &mut requests, "GET /big HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let answer = within("a response beside unread ones", get(address(&gateway), "a", "/", ""));
    assert_status(&answer.await, 200);
}
