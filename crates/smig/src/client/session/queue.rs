//! Requests without a stream: they wait until the server allows another one, and while it might not tolerate more
//! resets.

use smig_proto::{EndStream, Instant, OpenError, StreamKey};

use super::{ClientSession, SessionState};
use crate::client::request::QueuedRequest;
use crate::driver::TurnCx;
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::stream::UnsentRequest;

impl ClientSession {
    /// Sends queued requests while the server allows more streams and would tolerate a reset of all of them. An
    /// extended CONNECT that awaits SETTINGS stays in its place, and others overtake it.
    pub(super) fn open_queued(&mut self, turn: &mut TurnCx<'_>) {
        let mut at = 0;
        loop {
            self.count_resets(turn);
            let Some(outgoing) = self.queue.get(at) else { break };
            if outgoing.shared.is_released() {
                self.queue.remove(at);
                continue;
            }
            if !self.resets.may_open(turn.now, self.slots.len()) {
                self.hold_back(turn.now);
                break;
            }
            let end = if outgoing.body.is_empty() { EndStream::Yes } else { EndStream::No };
            match turn.session.open(turn.now, None, &outgoing.head, end) {
                Err(OpenError::Blocked) => break,
                Err(OpenError::AwaitsSettings) => at += 1,
                result => {
                    let Some(outgoing) = self.queue.remove(at) else { break };
                    self.leave_queue(turn, *outgoing, result);
                }
            }
        }
    }

    /// Returns whether the first request waits for the server's SETTINGS: all that could overtake it have done so.
    pub(super) fn awaits_settings(&self) -> bool {
        self.queue.front().is_some_and(|request| request.head.protocol.is_some())
    }

    /// Handles the end of a request's wait: it has a stream, or it cannot have one.
    fn leave_queue(
        &mut self,
        turn: &mut TurnCx<'_>,
        request: QueuedRequest,
        result: Result<StreamKey, OpenError>,
    ) {
        match result {
            Ok(key) => self.opened(turn, key, request),
            Err(OpenError::NoConnection) => {
                request.give_back(Error::new(ErrorKind::Refused("no connection accepts it")));
            }
            Err(error) => request.shared.fail(Error::new(ErrorKind::Request(error.to_string()))),
        }
    }

    /// Returns when the queue timeout of the oldest request expires.
    pub(super) fn queue_deadline(&self) -> Option<Instant> {
        Some(self.queue.front()?.place.queued_at()? + self.context.queue_timeout?)
    }

    /// Fails the requests whose queue timeout has expired; the oldest is at the front.
    pub(super) fn give_up_waiting(&mut self, now: Instant) {
        let Some(after) = self.context.queue_timeout else { return };
        while self.queue_deadline().is_some_and(|at| at <= now)
            && let Some(outgoing) = self.queue.pop_front()
        {
            let error = Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after });
            // Release its slot for other requests.
            outgoing
                .shared
                .return_unsent(UnsentRequest { body: outgoing.body, permit: None }, error);
        }
    }

    pub(super) fn count_resets(&mut self, turn: &TurnCx<'_>) {
        let all = turn.session.local_resets();
        while self.resets_counted < all {
            self.resets_counted += 1;
            self.resets.add(turn.now);
        }
    }

    pub(super) fn hold_back(&mut self, now: Instant) {
        self.held_until = Some(self.resets.next(now));
    }

    /// Resumes held requests and uploads when the server has discounted some of the resets. Until then, if
    /// another session can be opened, the queued requests are returned for it.
    pub(super) fn resume_held(&mut self, turn: &mut TurnCx<'_>) {
        if self.held_until.is_some_and(|at| at <= turn.now) {
            self.held_until = None;
            self.open_queued(turn);
        }
        let waits = self.held_until.is_some() && !self.queue.is_empty();
        if !waits || self.state != SessionState::Open || self.context.spare_place().is_err() {
            return;
        }
        tracing::debug!("many streams were reset, the session accepts no more requests");
        self.stop_accepting(turn);
        // The session does not need its spares any more, and further sessions may follow soon.
        self.spares_wanted = false;
        self.spares.close_idle(turn);
        for outgoing in self.queue.drain(..) {
            outgoing.give_back(Error::new(ErrorKind::Retired));
        }
        self.end_if_idle(turn);
    }
}
