//! Requests snapshots from many sessions at once, with one time limit for all.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{MAX_SNAPSHOT_SESSIONS, SessionSnapshot, Snapshot};
use crate::mailbox::Mailbox;

/// Time limit for all answers; a session whose task does not answer in time is left out.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a session's task sends its snapshot.
pub(crate) type SnapshotSender = oneshot::Sender<Box<SessionSnapshot>>;

/// Requests snapshots of the sessions behind `mailboxes`, of the first ones if there are too many, and returns them in the
/// same order. A server passes the youngest first, a client passes them in no order.
pub(crate) async fn collect<C>(
    mailboxes: Vec<Arc<Mailbox<C>>>,
    command: impl Fn(SnapshotSender) -> C,
) -> Snapshot {
    let mut snapshot = Snapshot {
        sessions: Vec::new(),
        sessions_omitted: mailboxes.len().saturating_sub(MAX_SNAPSHOT_SESSIONS),
    };
    let mut answers = Vec::new();
    for mailbox in mailboxes.into_iter().take(MAX_SNAPSHOT_SESSIONS) {
        let (sender, answer) = oneshot::channel();
        // A closed mailbox means that the session has ended.
        if mailbox.send(command(sender)).is_ok() {
            answers.push(answer);
        }
    }
    let deadline = Instant::now() + COLLECT_TIMEOUT;
    for answer in answers {
        match timeout_at(deadline, answer).await {
            Ok(Ok(session)) => snapshot.sessions.push(*session),
            // The session ended meanwhile, has no connection open, or is a client's that speaks HTTP/1.1.
            Ok(Err(_)) => {}
            Err(_) => snapshot.sessions_omitted += 1,
        }
    }
    snapshot
}
