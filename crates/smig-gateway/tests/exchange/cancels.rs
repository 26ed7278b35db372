//! Clients that give their requests up before there is an answer.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{BoxError, ClearTrust, Incoming, Server};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::http2::{END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::raw_http2::{block, frame};
use crate::support::{Gateway, client, get, loopback};

/// No machine is so slow.
const LIMIT: Duration = Duration::from_secs(60);
const CANCEL: &[u8] = &[0, 0, 0, 8];
/// Of each client: what the gateway bears of one.
const REQUESTS: usize = 100;
const CLIENTS: usize = 4;

/// Servers end a connection on which many streams are reset (CVE-2023-44487). Clients share the gateway's: what some
/// of them give up must not cost the others theirs.
#[tokio::test]
async fn requests_that_are_given_up_do_not_end_the_connection_of_others() {
    let (pieces, fed) = mpsc::unbounded_channel::<Result<Frame<Bytes>, BoxError>>();
    let fed = Arc::new(Mutex::new(Some(fed)));
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let answer = move |request: Request<Incoming>| {
        let download = (request.uri().path() == "/download").then(|| {
            let fed = fed.lock().unwrap().take().unwrap();
            let stream = futures_util::stream::unfold(fed, async |mut fed| {
                let piece = fed.recv().await?;
                Some((piece, fed))
            });
            Response::new(StreamBody::new(stream).boxed_unsync())
        });
        let arrived = arrived.clone();
        async move {
            let Some(download) = download else {
                // No answer comes.
                let _ = arrived.send(());
                return std::future::pending().await;
            };
            Ok::<_, std::io::Error>(download)
        }
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(loopback(), ClearTrust::None)
        .start(tower::service_fn(answer))
        .unwrap();
    let gateway = Gateway::before(format!("h2c://{}", server.local_addrs()[0]));
    let response = client().request(get(gateway.url("/download"))).await.unwrap();
    let mut download = response.into_body();
    pieces.send(Ok(Frame::data(Bytes::from_static(b"first")))).unwrap();
    let first = download.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");

    let head =
        block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    let (mut requests, mut resets) = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), Vec::new());
    requests.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..REQUESTS as u32 {
        requests.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
        resets.extend(frame(RST_STREAM, 0, 2 * n + 1, CANCEL));
    }
    let giving_up = async {
        let mut clients = Vec::new();
        for n in 1..=CLIENTS {
            let mut client = gateway.connect(requests.clone()).await;
            for _ in 0..REQUESTS {
                arrivals.recv().await.unwrap();
            }
            client.write_all(&resets).await.unwrap();
            while server.stats().streams_reset < (n * REQUESTS) as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            clients.push(client);
        }
        clients
    };
    let clients = tokio::time::timeout(LIMIT, giving_up).await.expect("all are given up");

    // A server whose connection has ended takes no more of it.
    let _ = pieces.send(Ok(Frame::data(Bytes::from_static(b"last"))));
    drop(pieces);
    let rest = download.collect().await.expect("the download goes on").to_bytes();
    assert_eq!(rest, "last");
    drop(clients);
}
