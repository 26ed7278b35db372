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
        let mut index = 0;
        loop {
            self.count_resets(turn);
            let Some(queued_request) = self.queue.get(index) else { break };
            if queued_request.shared.is_released() {
                self.queue.remove(index);
                continue;
            }
            if !self.reset_rate.may_open(turn.now, self.slots.len()) {
                self.throttle(turn.now);
                break;
            }
            let end = if queued_request.body.is_empty() { EndStream::Yes } else { EndStream::No };
            match turn.session.open(turn.now, None, &queued_request.head, end) {
                Err(OpenError::Blocked) => break,
                Err(OpenError::AwaitsSettings) => index += 1,
                result => {
                    let Some(queued_request) = self.queue.remove(index) else { break };
                    self.on_open_result(turn, *queued_request, result);
                }
            }
        }
    }

    /// Returns whether the first request may wait for the server's SETTINGS, as an extended CONNECT does. Only the
    /// first one matters: requests that can overtake it have done so.
    pub(super) fn may_await_settings(&self) -> bool {
        self.queue.front().is_some_and(|request| request.head.protocol.is_some())
    }

    /// Handles the end of a request's wait: it has a stream, or it cannot have one.
    fn on_open_result(
        &mut self,
        turn: &mut TurnCx<'_>,
        request: QueuedRequest,
        result: Result<StreamKey, OpenError>,
    ) {
        match result {
            Ok(key) => self.on_opened(turn, key, request),
            Err(OpenError::NoConnection) => {
                request
                    .return_unsent(Error::new(ErrorKind::Refused("no connection accepts streams")));
            }
            Err(error) => request.shared.fail(Error::new(ErrorKind::Request(error.to_string()))),
        }
    }

    /// Returns when the queue timeout of the oldest request expires.
    pub(super) fn queue_deadline(&self) -> Option<Instant> {
        Some(self.queue.front()?.queue_permit.queued_at()? + self.context.queue_timeout?)
    }

    /// Fails the requests whose queue timeout has expired; the oldest is at the front.
    pub(super) fn expire_queued(&mut self, now: Instant) {
        let Some(after) = self.context.queue_timeout else { return };
        while self.queue_deadline().is_some_and(|at| at <= now)
            && let Some(queued_request) = self.queue.pop_front()
        {
            let error = Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after });
            // Release its permit for other requests.
            queued_request
                .shared
                .return_unsent(UnsentRequest { body: queued_request.body, permit: None }, error);
        }
    }

    pub(super) fn count_resets(&mut self, turn: &TurnCx<'_>) {
        let total_resets = turn.session.local_resets();
        while self.counted_resets < total_resets {
            self.counted_resets += 1;
            self.reset_rate.add(turn.now);
        }
    }

    pub(super) fn throttle(&mut self, now: Instant) {
        self.throttled_until = Some(self.reset_rate.next_decrease(now));
    }

    /// Resumes throttled requests and resets when the server has discounted some resets. Until then, if another session
    /// can be opened, the queued requests are returned for it.
    pub(super) fn resume_throttled(&mut self, turn: &mut TurnCx<'_>) {
        if self.throttled_until.is_some_and(|at| at <= turn.now) {
            self.throttled_until = None;
            self.open_queued(turn);
        }
        let has_throttled_requests = self.throttled_until.is_some() && !self.queue.is_empty();
        if !has_throttled_requests
            || self.state != SessionState::Open
            || self.context.try_acquire_permit().is_err()
        {
            return;
        }
        tracing::debug!("many streams were reset, the session accepts no more requests");
        self.stop_accepting(turn);
        // The session does not need its spares any more, and further sessions may follow soon.
        self.keep_spares = false;
        self.spares.close_idle(turn);
        for queued_request in self.queue.drain(..) {
            queued_request.return_unsent(Error::new(ErrorKind::Retired));
        }
        self.end_if_idle(turn);
    }
}
