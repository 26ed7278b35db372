//! Timeouts for a client over HTTP/1.1, by what the server waits for.
//!
//! The state of the exchange determines which side must act, and the connection's task checks the
//! timeouts after each of its turns: hyper may not read while it waits. For sending, the I/O layer does this
//! ([`Http1Io`](super::io::Http1Io)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smig_proto::Instant;

use crate::deadlines::TimeLimits;
use crate::stream::Http1RecvProgress;

/// The timeouts of one connection.
#[derive(Debug)]
pub(super) struct Http1Timeouts {
    pub(super) time_limits: TimeLimits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    exchange: ExchangeState,
    exceeded: Option<ExceededTimeout>,
}

/// Which side must act.
#[derive(Debug)]
enum ExchangeState {
    /// Client: no byte of the next request has arrived since this time.
    Idle(Instant),
    /// Client: a request head began at this time.
    Head(Instant),
    /// Handler, which may wait for the request's body.
    Handler(Option<Arc<Http1RecvProgress>>),
    /// Response. The request's body may still arrive, at any rate.
    Response(Option<Arc<Http1RecvProgress>>),
    /// hyper has the complete response, but the client may not have received it. Transmission may take long; the
    /// client does not count as idle meanwhile.
    Answered(AnsweredExchange),
    /// The connection switched to another protocol, which has its own timeouts.
    Switched,
}

#[derive(Debug)]
struct AnsweredExchange {
    /// The request's body, whose rest may still arrive.
    body: Option<Arc<Http1RecvProgress>>,
    /// Bytes have arrived after the request.
    received_more: bool,
}

impl AnsweredExchange {
    /// Returns whether the request is complete.
    fn is_request_complete(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_done())
    }
}

/// The timeout that the client exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceededTimeout {
    /// No further request.
    Idle,
    Head,
    Body,
    /// The client did not take the data that was sent.
    Send,
    /// It continued to send after the last response.
    Linger,
}

impl ExceededTimeout {
    /// Returns the name of the exceeded limit; `None` for a regular close.
    pub(super) const fn limit(self) -> Option<&'static str> {
        match self {
            Self::Idle => None,
            Self::Head => Some("header time"),
            Self::Body => Some("slow request body"),
            Self::Send => Some("stalled stream"),
            Self::Linger => Some("lingering time"),
        }
    }
}

/// The connection's protocol after a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NextProtocol {
    #[default]
    Http,
    /// CONNECT or Upgrade succeeded.
    Tunnel,
}

impl Http1Timeouts {
    /// Creates the state of a new connection; the timeout for its first head starts now.
    pub(super) fn new(time_limits: TimeLimits, now: Instant) -> Self {
        let state = Mutex::new(State { exchange: ExchangeState::Head(now), exceeded: None });
        Self { time_limits, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that bytes were received.
    pub(super) fn on_read(&self, now: Instant) {
        let mut state = self.lock();
        match &mut state.exchange {
            ExchangeState::Idle(_) => state.exchange = ExchangeState::Head(now),
            ExchangeState::Answered(answered) => {
                answered.received_more |= answered.is_request_complete()
            }
            _ => {}
        }
    }

    /// Records that a request's head is complete; `body` is set if it has one.
    pub(super) fn on_request(&self, body: Option<Arc<Http1RecvProgress>>) {
        self.lock().exchange = ExchangeState::Handler(body);
    }

    /// Records that the response's head is available.
    pub(super) fn on_response(&self, next: NextProtocol) {
        let mut state = self.lock();
        state.exchange =
            match (next, std::mem::replace(&mut state.exchange, ExchangeState::Switched)) {
                (NextProtocol::Tunnel, _) | (NextProtocol::Http, ExchangeState::Switched) => {
                    ExchangeState::Switched
                }
                (NextProtocol::Http, ExchangeState::Handler(body)) => ExchangeState::Response(body),
                (NextProtocol::Http, other) => other,
            };
    }

    /// Records that hyper has dropped the response's body.
    pub(super) fn on_body_dropped(&self) {
        let mut state = self.lock();
        if let ExchangeState::Response(body) = &mut state.exchange {
            state.exchange = ExchangeState::Answered(AnsweredExchange {
                body: body.take(),
                received_more: false,
            });
        }
    }

    /// Returns whether only the delivery of the response is outstanding.
    pub(super) fn is_delivering(&self) -> bool {
        matches!(&self.lock().exchange, ExchangeState::Answered(answered) if answered.is_request_complete())
    }

    /// Records that all written data was delivered to the client.
    pub(super) fn on_delivered(&self, now: Instant) {
        let mut state = self.lock();
        if let ExchangeState::Answered(answered) = &state.exchange
            && answered.is_request_complete()
        {
            state.exchange = if answered.received_more {
                ExchangeState::Head(now)
            } else {
                ExchangeState::Idle(now)
            };
        }
    }

    /// Returns whether HTTP's timeouts apply.
    pub(super) fn is_http(&self) -> bool {
        !matches!(self.lock().exchange, ExchangeState::Switched)
    }

    /// Returns the time of the next check, if the server waits for the client.
    pub(super) fn next_check(&self, now: Instant) -> Option<Instant> {
        match &self.lock().exchange {
            ExchangeState::Idle(since) => Some(*since + self.time_limits.idle),
            ExchangeState::Head(since) => Some(*since + self.time_limits.head),
            ExchangeState::Handler(body) => Some(now + body.as_ref()?.tick()?),
            // `Http1Io` checks the delivery at that time.
            ExchangeState::Answered(answered) => {
                answered.is_request_complete().then(|| now + self.time_limits.delivery_tick())
            }
            ExchangeState::Response(_) | ExchangeState::Switched => None,
        }
    }

    /// Returns the timeout that the client has exceeded, if any.
    pub(super) fn check(&self, now: Instant) -> Option<ExceededTimeout> {
        let is_over = |since: &Instant, limit| now.saturating_duration_since(*since) >= limit;
        match &self.lock().exchange {
            ExchangeState::Idle(since) => {
                is_over(since, self.time_limits.idle).then_some(ExceededTimeout::Idle)
            }
            ExchangeState::Head(since) => {
                is_over(since, self.time_limits.head).then_some(ExceededTimeout::Head)
            }
            ExchangeState::Handler(body) => {
                body.as_ref()?.is_late(now).then_some(ExceededTimeout::Body)
            }
            ExchangeState::Response(_) | ExchangeState::Answered(_) | ExchangeState::Switched => {
                None
            }
        }
    }

    /// Records why the connection is given up; the first reason counts.
    pub(super) fn set_exceeded(&self, timeout: ExceededTimeout) {
        self.lock().exceeded.get_or_insert(timeout);
    }

    /// Returns why the connection was given up, if it was.
    pub(super) fn exceeded_timeout(&self) -> Option<ExceededTimeout> {
        self.lock().exceeded
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use smig_proto::Limits;

    use super::*;
    use crate::deadlines::ProgressClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::from_nanos(0) + SECOND * seconds
    }

    fn timeouts() -> Http1Timeouts {
        let limits = Limits { headers_timeout: SECOND * 10, ..Limits::default() };
        Http1Timeouts::new(TimeLimits::new(&limits, SECOND * 60, SECOND * 300), at(0))
    }

    #[test]
    fn a_partial_head_has_the_head_timeout_not_the_idle_timeout() {
        let timeouts = timeouts();
        assert_eq!(timeouts.next_check(at(0)), Some(at(10)));
        assert_eq!(
            (timeouts.check(at(9)), timeouts.check(at(10))),
            (None, Some(ExceededTimeout::Head))
        );
        timeouts.on_request(None);
        assert_eq!((timeouts.next_check(at(20)), timeouts.check(at(1000))), (None, None));
        timeouts.on_response(NextProtocol::Http);
        timeouts.on_body_dropped();
        timeouts.on_delivered(at(30));
        assert_eq!(timeouts.next_check(at(30)), Some(at(330)));
        assert_eq!(
            (timeouts.check(at(329)), timeouts.check(at(330))),
            (None, Some(ExceededTimeout::Idle))
        );
        timeouts.on_read(at(100));
        // Single bytes do not extend the timeout.
        timeouts.on_read(at(109));
        assert_eq!(
            (timeouts.next_check(at(109)), timeouts.check(at(110))),
            (Some(at(110)), Some(ExceededTimeout::Head))
        );
    }

    #[test]
    fn a_client_that_receives_a_response_is_not_idle() {
        for received_more in [false, true] {
            let timeouts = timeouts();
            timeouts.on_request(None);
            timeouts.on_response(NextProtocol::Http);
            assert!(!timeouts.is_delivering());
            timeouts.on_body_dropped();
            if received_more {
                timeouts.on_read(at(1));
            }
            assert!(timeouts.is_delivering());
            // Checked repeatedly, and never late.
            assert!(timeouts.next_check(at(5000)).is_some_and(|next| next <= at(5300)));
            assert_eq!(timeouts.check(at(9999)), None);
            timeouts.on_delivered(at(9999));
            let limit = if received_more { 10 } else { 300 };
            assert_eq!(timeouts.next_check(at(9999)), Some(at(9999 + limit)));
        }
    }

    #[test]
    fn a_tunnel_has_no_timeout() {
        let timeouts = timeouts();
        timeouts.on_request(None);
        timeouts.on_response(NextProtocol::Tunnel);
        timeouts.on_body_dropped();
        timeouts.on_read(at(1));
        assert_eq!((timeouts.next_check(at(2)), timeouts.check(at(9999))), (None, None));
        assert!(!timeouts.is_http());
    }

    #[test]
    fn a_body_that_the_handler_does_not_read_yet_is_checked_again_and_never_late() {
        let timeouts = timeouts();
        let progress = ProgressClock::new(timeouts.time_limits.body, at(0));
        timeouts.on_request(Some(Arc::new(Http1RecvProgress::new(Some(progress), at(0)))));
        assert_eq!((timeouts.next_check(at(1)), timeouts.check(at(9999))), (Some(at(16)), None));
    }

    #[test]
    fn a_body_that_is_read_after_the_response_may_idle() {
        let timeouts = timeouts();
        let body = Arc::new(Http1RecvProgress::new(None, at(0)));
        timeouts.on_request(Some(Arc::clone(&body)));
        timeouts.on_response(NextProtocol::Http);
        timeouts.on_body_dropped();
        assert_eq!((timeouts.next_check(at(1)), timeouts.check(at(9999))), (None, None));
    }
}
