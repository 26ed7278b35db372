//! What a client by HTTP/1.1 is waited for, and how long.
//!
//! The exchange says whose turn it is, and the connection's task looks at the clock after each of its turns: hyper
//! need not read while it waits. What is sent the I/O looks after ([`Line`](super::line::Line)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smig_proto::Instant;

use crate::deadlines::Deadlines;
use crate::stream::Intake;

/// One connection's deadlines.
#[derive(Debug)]
pub(super) struct Vigil {
    pub(super) deadlines: Deadlines,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    turn: Turn,
    late: Option<Late>,
}

/// Whose turn it is.
#[derive(Debug)]
enum Turn {
    /// The client's: nothing of the next request has come since then.
    Idle(Instant),
    /// The client's: a head began then.
    Head(Instant),
    /// A handler's, which may wait for the request's body.
    Handler(Option<Arc<Intake>>),
    /// The response's. The request's body may still come, as slowly as it likes.
    Response(Option<Arc<Intake>>),
    /// hyper has all of the response, the client perhaps not: it may take long to come to the end of what
    /// is on its way, and is not idle then.
    Answered(Answered),
    /// Something else is spoken, which has limits of its own.
    Switched,
}

#[derive(Debug)]
struct Answered {
    /// The request's, of which the rest may still come.
    body: Option<Arc<Intake>>,
    /// Something came behind the request.
    heard: bool,
}

impl Answered {
    /// Whether nothing is left of the request.
    fn is_whole(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_over())
    }
}

/// What a client did not do in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// It asked for nothing more.
    Idle,
    Head,
    Body,
    /// It did not take what was sent.
    Send,
    /// It went on sending after the last response.
    Leave,
}

impl Late {
    /// The limit that it ran into, as HTTP/2's are called; `None` for what is in order.
    pub(super) const fn limit(self) -> Option<&'static str> {
        match self {
            Self::Idle => None,
            Self::Head => Some("header time"),
            Self::Body => Some("slow request body"),
            Self::Send => Some("stalled stream"),
            Self::Leave => Some("lingering time"),
        }
    }
}

/// What a response makes of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Becomes {
    #[default]
    Http,
    /// CONNECT or Upgrade has succeeded.
    Tunnel,
}

impl Vigil {
    /// Of a connection whose first head has as long as any.
    pub(super) fn new(deadlines: Deadlines, now: Instant) -> Self {
        let state = Mutex::new(State { turn: Turn::Head(now), late: None });
        Self { deadlines, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something came.
    pub(super) fn on_read(&self, now: Instant) {
        let mut state = self.lock();
        match &mut state.turn {
            Turn::Idle(_) => state.turn = Turn::Head(now),
            Turn::Answered(answered) => answered.heard |= answered.is_whole(),
            _ => {}
        }
    }

    /// A request's head is whole; `body`: it has one.
    pub(super) fn on_request(&self, body: Option<Arc<Intake>>) {
        self.lock().turn = Turn::Handler(body);
    }

    /// The response's head is there.
    pub(super) fn on_response(&self, becomes: Becomes) {
        let mut state = self.lock();
        state.turn = match (becomes, std::mem::replace(&mut state.turn, Turn::Switched)) {
            (Becomes::Tunnel, _) | (Becomes::Http, Turn::Switched) => Turn::Switched,
            (Becomes::Http, Turn::Handler(body)) => Turn::Response(body),
            (Becomes::Http, other) => other,
        };
    }

    /// hyper has let go of the response's body.
    pub(super) fn on_taken(&self) {
        let mut state = self.lock();
        if let Turn::Response(body) = &mut state.turn {
            state.turn = Turn::Answered(Answered { body: body.take(), heard: false });
        }
    }

    /// Whether all that is left of the exchange is that the client takes the response.
    pub(super) fn is_delivering(&self) -> bool {
        matches!(&self.lock().turn, Turn::Answered(answered) if answered.is_whole())
    }

    /// The client has all that was written.
    pub(super) fn on_delivered(&self, now: Instant) {
        let mut state = self.lock();
        if let Turn::Answered(answered) = &state.turn
            && answered.is_whole()
        {
            state.turn = if answered.heard { Turn::Head(now) } else { Turn::Idle(now) };
        }
    }

    /// Whether the limits of HTTP hold.
    pub(super) fn is_http(&self) -> bool {
        !matches!(self.lock().turn, Turn::Switched)
    }

    /// When to look, if the client is waited for.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        match &self.lock().turn {
            Turn::Idle(since) => Some(*since + self.deadlines.idle),
            Turn::Head(since) => Some(*since + self.deadlines.head),
            Turn::Handler(body) => Some(now + body.as_ref()?.tick()?),
            // The line looks then.
            Turn::Answered(answered) => {
                answered.is_whole().then(|| now + self.deadlines.delivery_tick())
            }
            Turn::Response(_) | Turn::Switched => None,
        }
    }

    /// Whether the client has taken too long to say something.
    pub(super) fn look(&self, now: Instant) -> Option<Late> {
        let is_over = |since: &Instant, limit| now.saturating_duration_since(*since) >= limit;
        match &self.lock().turn {
            Turn::Idle(since) => is_over(since, self.deadlines.idle).then_some(Late::Idle),
            Turn::Head(since) => is_over(since, self.deadlines.head).then_some(Late::Head),
            Turn::Handler(body) => body.as_ref()?.is_late(now).then_some(Late::Body),
            Turn::Response(_) | Turn::Answered(_) | Turn::Switched => None,
        }
    }

    /// The connection is not worth waiting for.
    pub(super) fn give_up(&self, late: Late) {
        self.lock().late.get_or_insert(late);
    }

    /// Why the connection was given up, if it was.
    pub(super) fn late(&self) -> Option<Late> {
        self.lock().late
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use smig_proto::Limits;

    use super::*;
    use crate::deadlines::Pace;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::from_nanos(0) + SECOND * seconds
    }

    fn vigil() -> Vigil {
        let limits = Limits { headers_timeout: SECOND * 10, ..Limits::default() };
        Vigil::new(Deadlines::new(&limits, SECOND * 60, SECOND * 300), at(0))
    }

    #[test]
    fn whoever_says_a_little_is_held_to_the_head_and_not_to_the_idle_time() {
        let vigil = vigil();
        assert_eq!(vigil.next_look(at(0)), Some(at(10)));
        assert_eq!((vigil.look(at(9)), vigil.look(at(10))), (None, Some(Late::Head)));
        vigil.on_request(None);
        assert_eq!((vigil.next_look(at(20)), vigil.look(at(1000))), (None, None));
        vigil.on_response(Becomes::Http);
        vigil.on_taken();
        vigil.on_delivered(at(30));
        assert_eq!(vigil.next_look(at(30)), Some(at(330)));
        assert_eq!((vigil.look(at(329)), vigil.look(at(330))), (None, Some(Late::Idle)));
        vigil.on_read(at(100));
        // A byte now and then does not help.
        vigil.on_read(at(109));
        assert_eq!(
            (vigil.next_look(at(109)), vigil.look(at(110))),
            (Some(at(110)), Some(Late::Head))
        );
    }

    #[test]
    fn who_takes_a_response_is_not_idle() {
        for heard in [false, true] {
            let vigil = vigil();
            vigil.on_request(None);
            vigil.on_response(Becomes::Http);
            assert!(!vigil.is_delivering());
            vigil.on_taken();
            if heard {
                vigil.on_read(at(1));
            }
            assert!(vigil.is_delivering());
            // Looked at again and again, and never late.
            assert!(vigil.next_look(at(5000)).is_some_and(|next| next <= at(5300)));
            assert_eq!(vigil.look(at(9999)), None);
            vigil.on_delivered(at(9999));
            let limit = if heard { 10 } else { 300 };
            assert_eq!(vigil.next_look(at(9999)), Some(at(9999 + limit)));
        }
    }

    #[test]
    fn a_tunnel_has_no_deadline_whatever_comes_after() {
        let vigil = vigil();
        vigil.on_request(None);
        vigil.on_response(Becomes::Tunnel);
        vigil.on_taken();
        vigil.on_read(at(1));
        assert_eq!((vigil.next_look(at(2)), vigil.look(at(9999))), (None, None));
        assert!(!vigil.is_http());
    }

    #[test]
    fn a_body_is_looked_at_also_before_anybody_waits_for_it() {
        let vigil = vigil();
        let pace = Pace::new(vigil.deadlines.body, at(0));
        vigil.on_request(Some(Arc::new(Intake::new(Some(pace), at(0)))));
        assert_eq!((vigil.next_look(at(1)), vigil.look(at(9999))), (Some(at(16)), None));
    }

    #[test]
    fn a_body_that_is_still_read_after_the_answer_may_rest() {
        let vigil = vigil();
        let body = Arc::new(Intake::new(None, at(0)));
        vigil.on_request(Some(Arc::clone(&body)));
        vigil.on_response(Becomes::Http);
        vigil.on_taken();
        assert_eq!((vigil.next_look(at(1)), vigil.look(at(9999))), (None, None));
    }
}
