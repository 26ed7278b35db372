//! One timer for all deadlines of a session, or of an HTTP/1.1 connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use smig_proto::Instant;
use tokio::time::Sleep;

use crate::clock;

/// A tokio timer that is reset only when it would fire too late: a deadline that moves later, as idle timeouts
/// do with every frame, costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Option<Instant>,
}

impl Timer {
    /// Waits until `wake_at`. `Ready` when a deadline, perhaps a former one, has passed: poll again with the current one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, wake_at: Option<Instant>) -> Poll<()> {
        let Some(wake_at) = wake_at else { return Poll::Pending };
        if self.armed_for.is_none_or(|armed| wake_at < armed) {
            let deadline = clock::to_tokio(wake_at);
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                none => *none = Some(Box::pin(tokio::time::sleep_until(deadline))),
            }
            self.armed_for = Some(wake_at);
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.armed_for = None;
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
