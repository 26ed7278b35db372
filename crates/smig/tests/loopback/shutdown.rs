//! A server shuts down within its time limit, even if its handlers block.

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
enum BlockedThread {
    /// In a thread of the runtime's blocking pool, as with `spawn_blocking`.
    BlockingPool,
    /// On the worker's thread.
    Worker,
}

async fn check_shutdown(blocked_thread: BlockedThread) {
    let (release, release_receiver): (Sender<()>, Receiver<()>) = channel();
    let shared_receiver = Arc::new(Mutex::new(release_receiver));
    let (entered_sender, mut entered_receiver) = unbounded_channel();
    let handler = move |_: Request<Incoming>| {
        let (shared_receiver, handler_sender) =
            (Arc::clone(&shared_receiver), entered_sender.clone());
        async move {
            let block = move || {
                // A test that has ended has dropped the receiver.
                let _ = handler_sender.send(());
                let _ = shared_receiver.lock().unwrap().recv();
            };
            match blocked_thread {
                BlockedThread::BlockingPool => tokio::task::spawn_blocking(block).await?,
                BlockedThread::Worker => block(),
            }
            Ok::<Response<Body>, BoxError>(Response::new(full("late")))
        }
    };
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(std::num::NonZeroUsize::MIN)
        .start(service_fn(handler))
        .unwrap();
    let mut stream = TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    entered_receiver.recv().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.shutdown(Duration::ZERO));
    ended
        .await
        .unwrap_or_else(|_| panic!("the server does not shut down, blocked: {blocked_thread:?}"))
        .unwrap();
    drop(release);
}

#[tokio::test]
async fn a_blocked_pool_thread_does_not_delay_a_shutdown() {
    check_shutdown(BlockedThread::BlockingPool).await;
}

#[tokio::test]
async fn a_blocked_worker_does_not_delay_a_shutdown() {
    check_shutdown(BlockedThread::Worker).await;
}
