//! Work that may block, on threads that nobody waits for.
//!
//! A runtime that ends waits for its own blocking threads: a resolver or a disk that hangs would hold a
//! shutdown for as long as it likes. These threads end with the process.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Starts `work` on a thread of its own, which nothing waits for.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("smig-{name}")).spawn(work).map(drop)
}

/// Waits for `work`, which may block. Dropped, the future lets it run on and forgets what comes of it.
///
/// # Errors
/// The system gives no thread, or the work panicked.
pub(crate) async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    // Who asked may have gone.
    start(name, move || drop(sender.send(work())))?;
    done.await.map_err(|_| io::Error::other("the thread that did it panicked"))
}
