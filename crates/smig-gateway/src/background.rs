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
    interval: watch::Sender<Duration>,
}

impl BackgroundThread {
    /// Starts the thread, which calls `task` at this interval.
    pub(crate) fn start(interval: Duration, task: impl Fn() + Send + 'static) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (sender, mut changes) = watch::channel(interval);
        let run = async move {
            loop {
                let interval = *changes.borrow_and_update();
                match timeout(interval, changes.changed()).await {
                    Err(_) => task(),
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
        Ok(Self { runtime: handle, interval: sender })
    }

    /// Changes the interval.
    pub(crate) fn set_interval(&self, interval: Duration) {
        self.interval.send_replace(interval);
    }

    /// Starts the upstream's health checks, which run for as long as it exists.
    pub(crate) fn spawn_health_checks(&self, upstream: &Arc<Upstream>) {
        drop(self.runtime.spawn(Upstream::check_health(Arc::downgrade(upstream))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_new_interval_takes_effect_at_once() {
        let (calls_tx, calls) = channel();
        let task = move || {
            let _ = calls_tx.send(());
        };
        let thread = BackgroundThread::start(Duration::from_secs(3600), task).unwrap();
        thread.set_interval(Duration::from_millis(1));
        calls.recv_timeout(Duration::from_secs(60)).expect("it is called at the new interval");
        drop(thread);
        // The thread ends, and drops `task`.
        while calls.recv_timeout(Duration::from_secs(60)).is_ok() {}
    }

    #[test]
    fn dropping_the_thread_does_not_wait_for_a_blocked_task() {
        let (calls_tx, calls) = channel();
        let (release, blocked) = channel::<()>();
        let task = move || {
            let _ = calls_tx.send(());
            let _ = blocked.recv();
        };
        let thread = BackgroundThread::start(Duration::from_millis(1), task).unwrap();
        calls.recv_timeout(Duration::from_secs(60)).expect("it is called");
        drop(thread);
        drop(release);
    }
}
