//! The session's end: when it accepts no more requests, and when it closes.

use std::time::Duration;

use super::{ClientSession, SessionState};
use crate::driver::{CLOSE_TIMEOUT, SessionHandler as _, TurnCx};

/// How long spares of an unused session stay open.
const SPARE_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

impl ClientSession {
    /// Stops accepting requests.
    pub(super) fn stop_accepting(&mut self, turn: &mut TurnCx<'_>) {
        if self.state != SessionState::Open {
            return;
        }
        self.state = SessionState::Closing;
        self.context.remove_session(&self.mailbox);
        for command in self.mailbox.close() {
            self.on_command(turn, command);
        }
        self.spares.stop(turn);
        self.open_queued(turn);
        self.end_if_idle(turn);
    }

    pub(super) fn end_if_idle(&mut self, turn: &mut TurnCx<'_>) {
        if self.state == SessionState::Closing && self.slots.len() == 0 && self.queue.is_empty() {
            self.state = SessionState::GoawaySent;
            self.idle_since = Some(turn.now);
            turn.session.shutdown(turn.now);
        }
    }

    /// Closes the session when its idle timeout expires.
    pub(super) fn apply_idle_timeout(&mut self, turn: &mut TurnCx<'_>) {
        if self.slots.len() > 0 || !self.queue.is_empty() {
            self.idle_since = None;
            self.keep_spares = true;
            return;
        }
        let since = *self.idle_since.get_or_insert(turn.now);
        let idle_time = turn.now.saturating_duration_since(since);
        if self.state == SessionState::Open && idle_time >= self.context.idle_timeout {
            self.stop_accepting(turn);
        } else if self.keep_spares && idle_time >= SPARE_IDLE_TIMEOUT {
            self.keep_spares = false;
            self.spares.close_idle(turn);
            self.slots.shrink();
        } else if self.state == SessionState::GoawaySent && idle_time >= CLOSE_TIMEOUT {
            turn.conns.close_all(turn.now, turn.session);
            self.idle_since = Some(turn.now);
        }
        self.end_if_idle(turn);
    }

    pub(super) fn current_idle_timeout(&self) -> Option<Duration> {
        match self.state {
            SessionState::Open if self.keep_spares => {
                Some(self.context.idle_timeout.min(SPARE_IDLE_TIMEOUT))
            }
            SessionState::Open => Some(self.context.idle_timeout),
            SessionState::Closing => None,
            SessionState::GoawaySent => Some(CLOSE_TIMEOUT),
        }
    }
}
