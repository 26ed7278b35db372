//! The thread for periodic work that no request waits for: reloading certificates, health checks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::upstream::Upstream;

/// The running thread. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct BackgroundThread {
    runtime: Handle,
    /// The interval; dropped to stop the thread.
    every: watch::Sender<Duration>,
}

impl BackgroundThread {
    /// Calls `look` at this interval.
    pub(crate) fn start(every: Duration, look: impl Fn() + Send + 'static) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (every, mut changes) = watch::channel(every);
        let run = async move {
            loop {
                let interval = *changes.borrow_and_update();
                match timeout(interval, changes.changed()).await {
                    Err(_) => look(),
                    // The interval has changed.
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                }
            }
        };
        // Not joined: it may block on name resolution or on a disk.
        std::thread::Builder::new().name("smig-background".to_owned()).spawn(move || {
            runtime.block_on(run);
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, every })
    }

    /// Changes the interval.
    pub(crate) fn every(&self, every: Duration) {
        self.every.send_replace(every);
    }

    /// Starts the upstream's health checks, which run for as long as it exists.
    pub(crate) fn check(&self, upstream: &Arc<Upstream>) {
        drop(self.runtime.spawn(Upstream::check_health(Arc::downgrade(upstream))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn another_interval_counts_at_once() {
        let (tell, told) = channel();
        let look = move || {
            let _ = tell.send(());
        };
        let thread = BackgroundThread::start(Duration::from_secs(3600), look).unwrap();
        thread.every(Duration::from_millis(1));
        told.recv_timeout(Duration::from_secs(60)).expect("it looks by the new interval");
        drop(thread);
        // The thread ends, and drops `look`.
        while told.recv_timeout(Duration::from_secs(60)).is_ok() {}
    }

    #[test]
    fn one_that_is_stuck_holds_nobody() {
        let (tell, told) = channel();
        let (hold, held) = channel::<()>();
        let look = move || {
            let _ = tell.send(());
            let _ = held.recv();
        };
        let thread = BackgroundThread::start(Duration::from_millis(1), look).unwrap();
        told.recv_timeout(Duration::from_secs(60)).expect("it looks");
        drop(thread);
        drop(hold);
    }
}
