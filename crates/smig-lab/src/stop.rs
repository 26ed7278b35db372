//! Cancellation token for long measurements.

use std::sync::Arc;

use tokio::sync::watch;

/// Cancels a measurement. All clones share one state.
#[derive(Debug, Clone)]
pub struct CancelToken(Arc<watch::Sender<bool>>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl CancelToken {
    /// Cancels the measurement, also one that has not started yet.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether the measurement was cancelled.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for cancellation.
    pub(crate) async fn cancelled(&self) {
        // Fails only after the last sender is dropped, and `self` holds one.
        let _ = self.0.subscribe().wait_for(|stop| *stop).await;
    }
}
