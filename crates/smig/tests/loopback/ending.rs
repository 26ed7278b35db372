//! A server shuts down in time, even if its handlers block.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use smig::{BoxError, CleartextTrust, Incoming, Server};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tower::service_fn;

use crate::support::{Body, full, loopback};

/// Where a handler blocks until the test ends.
#[derive(Clone, Copy, Debug)]
enum Stuck {
    /// In a thread of the runtime's blocking pool, like a name lookup.
    Elsewhere,
    /// On the worker's thread.
    OnTheWorker,
}

async fn ends_in_time(stuck: Stuck) {
    let (hold, held): (Sender<()>, Receiver<()>) = channel();
    let held = Arc::new(Mutex::new(held));
    let (tell, mut told) = unbounded_channel();
    let answer = move |_: Request<Incoming>| {
        let (held, tell) = (Arc::clone(&held), tell.clone());
        async move {
            let block = move || {
                // A test that has ended has dropped the receiver.
                let _ = tell.send(());
                let _ = held.lock().unwrap().recv();
            };
            match stuck {
                Stuck::Elsewhere => tokio::task::spawn_blocking(block).await?,
                Stuck::OnTheWorker => block(),
            }
            Ok::<Response<Body>, BoxError>(Response::new(full("late")))
        }
    };
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(std::num::NonZeroUsize::MIN)
        .start(service_fn(answer))
        .unwrap();
    let mut stream = TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    told.recv().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.shutdown(Duration::ZERO));
    ended
        .await
        .unwrap_or_else(|_| panic!("never came: the end of a server stuck {stuck:?}"))
        .unwrap();
    drop(hold);
}

#[tokio::test]
async fn a_thread_that_blocks_does_not_hold_a_server_that_ends() {
    ends_in_time(Stuck::Elsewhere).await;
}

#[tokio::test]
async fn a_worker_that_blocks_does_not_hold_a_server_that_ends() {
    ends_in_time(Stuck::OnTheWorker).await;
}
