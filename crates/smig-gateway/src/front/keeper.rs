//! The thread that looks after what no request waits for: certificates' files, upstreams' health.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::upstream::Upstream;

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Keeper {
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Calls `look` every now and then.
    pub(super) fn start(every: Duration, look: impl Fn() + Send + 'static) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, mut stopped) = oneshot::channel();
        let run = async move {
            while tokio::time::timeout(every, &mut stopped).await.is_err() {
                look();
            }
        };
        let thread = std::thread::Builder::new()
            .name("smig-keeper".to_owned())
            .spawn(move || runtime.block_on(run))?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Asks the upstream's servers whether they are well, for as long as it lives.
    pub(super) fn check(&self, upstream: &Arc<Upstream>) {
        drop(self.runtime.spawn(Upstream::check_health(Arc::downgrade(upstream))));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It can only have ended, or panicked, which was said.
            drop(thread.join());
        }
    }
}
