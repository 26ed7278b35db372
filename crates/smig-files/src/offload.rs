//! Work that may block on the disk, on tokio's blocking threads.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The pending result of offloaded work. Dropping it detaches the work, which runs to its end.
#[derive(Debug)]
pub(crate) enum Offload<T> {
    Running(JoinHandle<T>),
    /// There was no runtime, so the work ran on the calling thread. `None` after it was taken.
    Done(Option<T>),
}

impl<T: Send + 'static> Offload<T> {
    pub(crate) fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        match Handle::try_current() {
            Ok(runtime) => Self::Running(runtime.spawn_blocking(work)),
            Err(_) => Self::Done(Some(work())),
        }
    }
}

impl<T> Offload<T> {
    /// Returns an error if the runtime shut down before the work began, or if the work
    /// panicked.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        match self {
            Self::Running(handle) => Pin::new(handle).poll(context).map_err(io::Error::other),
            Self::Done(value) => {
                let already_taken = || io::Error::other("the result was already taken");
                Poll::Ready(value.take().ok_or_else(already_taken))
            }
        }
    }
}
