//! Blocking work on detached threads.
//!
//! A tokio runtime that shuts down waits for its own blocking threads: a resolver or a disk that hangs would
//! delay the shutdown without bound. These threads end with the process.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` on a detached thread.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("smig-{name}")).spawn(work).map(drop)
}

/// Runs `work`, which may block, and returns its result. If the future is dropped, the work continues and its
/// result is discarded.
///
/// # Errors
/// The system cannot create a thread, or the work panicked.
pub(crate) async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    // The receiver may have been dropped.
    start(name, move || drop(sender.send(work())))?;
    done.await.map_err(|_| io::Error::other("the blocking work panicked"))
}
