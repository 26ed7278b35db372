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
    /// In a thread of the runtime's blocking pool, like a name lookup.
    BlockingPool,
    /// On the worker's thread.
    Worker,
}

async fn check_shutdown(blocked: BlockedThread) {
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let held = Arc::new(Mutex::new(released));
    let (entered_sender, mut entered) = unbounded_channel();
    let handler = move |_: Request<Incoming>| {
        let (held, tell) = (Arc::clone(&held), entered_sender.clone());
        async move {
            let block = move || {
                // A test that has ended has dropped the receiver.
                let _ = tell.send(());
                let _ = held.lock().unwrap().recv();
            };
            match blocked {
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
    entered.recv().await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.shutdown(Duration::ZERO));
    ended
        .await
        .unwrap_or_else(|_| panic!("the server does not shut down, blocked: {blocked:?}"))
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
