//! Asking many sessions at once, without waiting for long for any.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{SESSIONS_SHOWN, SessionSnapshot, Snapshot};
use crate::driver::Mailbox;

/// How long an answer may take; a session whose task is not reached in time is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a session's task sends its picture.
pub(crate) type Asked = oneshot::Sender<Box<SessionSnapshot>>;

/// Asks the sessions behind `mailboxes`, the youngest first.
pub(crate) async fn collect<C>(
    mailboxes: Vec<Arc<Mailbox<C>>>,
    ask: impl Fn(Asked) -> C,
) -> Snapshot {
    let mut snapshot = Snapshot {
        sessions: Vec::new(),
        not_shown: mailboxes.len().saturating_sub(SESSIONS_SHOWN),
    };
    let mut answers = Vec::new();
    for mailbox in mailboxes.into_iter().take(SESSIONS_SHOWN) {
        let (sender, answer) = oneshot::channel();
        // One that takes no more has ended.
        if mailbox.send(ask(sender)).is_ok() {
            answers.push(answer);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for answer in answers {
        match timeout_at(deadline, answer).await {
            Ok(Ok(session)) => snapshot.sessions.push(*session),
            // It ended meanwhile, or speaks HTTP/1.1.
            Ok(Err(_)) => {}
            Err(_) => snapshot.not_shown += 1,
        }
    }
    snapshot
}
