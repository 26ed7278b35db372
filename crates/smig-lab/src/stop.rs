//! The wish to end a long measurement before its end.

use std::sync::Arc;

use tokio::sync::watch;

/// Tells what runs to stop; clones tell the same.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Stops it, now or as soon as it has begun.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether somebody said so.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until somebody says so.
    pub(crate) async fn stopped(&self) {
        // Fails only when the sender is gone, and this holds one.
        let _ = self.0.subscribe().wait_for(|stop| *stop).await;
    }
}
