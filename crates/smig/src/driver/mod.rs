//! The task that owns a session: its engine, its connections, its timer.
//!
//! One driver per session, one task per driver, no lock around the engine. The [`SessionHandler`] interprets requests
//! and responses; `server::session` and `client::session` implement it.
//!
//! [`conn_set`] holds the connections, each a [`conn`] with its [`conn_pacing`]; [`pacing`] limits the rate of bulk that is
//! sent, [`receive_pacer`] how much of it the peer may have in flight.
//! [`slots`] holds the handler's streams, with their wakers; [`timer`] is the session's timer; [`report`] reports events
//! to the observer.

mod conn;
mod conn_pacing;
mod conn_set;
mod pacing;
mod receive_pacer;
mod report;
mod slots;
#[cfg(test)]
mod tests;
mod timer;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smig_proto::{Event, Instant, Session};

use crate::clock::TurnClock;
use crate::mailbox::{Mailbox, Slot, Woken};

pub(crate) use conn::DetachedConn;
use conn::Progress;
pub(crate) use conn_set::{ConnOptions, ConnSet};
pub use pacing::Pacing;
pub(crate) use pacing::PacingLift;
pub(crate) use receive_pacer::{
    PacingDemand, ReceivePacer, ReceivePath, ReceiveWindow, stream_credit,
};
pub(crate) use report::Migration;
pub(crate) use slots::Slots;

pub(crate) use timer::Timer;

/// Turns of the loop before the task yields to others on its thread.
const MAX_TURNS_PER_POLL: usize = 8;

/// How long a session that has ended gracefully waits for the peer to close its connections.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a session above the driver: the server's half or the client's.
pub(crate) trait SessionHandler {
    /// What other tasks send through the mailbox.
    type Command;

    /// Handles an event of the engine.
    fn on_event(&mut self, turn: &mut TurnCx<'_>, event: Event);
    /// Handles a command.
    fn on_command(&mut self, turn: &mut TurnCx<'_>, command: Self::Command);
    /// Handles the wake-up of a stream.
    fn on_wake(&mut self, turn: &mut TurnCx<'_>, slot: Slot);
    /// Handles what depends on time or on the state of the connections; called once per turn.
    fn on_turn(&mut self, turn: &mut TurnCx<'_>);
    /// Returns whether [`SessionHandler::on_turn`] needs no second call now: it would do nothing, unless an event, a
    /// command or a wake-up is handled before.
    fn is_settled(&self) -> bool;
    /// Returns when [`SessionHandler::on_turn`] must run at the latest.
    fn deadline(&self) -> Option<Instant>;
    /// Returns whether the task may end. Called only when the session has no connection: a server's session closes its
    /// mailbox before it returns true.
    fn is_done(&self) -> bool;
    /// Handles the end of the task, once: it has completed, or it was dropped before, at any point. Streams
    /// may be open, and commands in the mailbox.
    fn on_end(&mut self);
}

/// What the methods of a [`SessionHandler`] may use.
#[derive(Debug)]
pub(crate) struct TurnCx<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) conns: &'a mut ConnSet,
    pub(crate) now: Instant,
}

/// A session's task.
pub(crate) struct Driver<A: SessionHandler> {
    session: Session,
    conns: ConnSet,
    handler: A,
    mailbox: Arc<Mailbox<A::Command>>,
    timer: Timer,
    woken_slots: Vec<Slot>,
}

// No field is structurally pinned.
impl<A: SessionHandler> Unpin for Driver<A> {}

impl<A: SessionHandler> Driver<A> {
    pub(crate) fn new(
        session: Session,
        conns: ConnSet,
        handler: A,
        mailbox: Arc<Mailbox<A::Command>>,
    ) -> Self {
        Self { session, conns, handler, mailbox, timer: Timer::default(), woken_slots: Vec::new() }
    }

    /// Does all that there is to do now. Returns `Progress::Yes` if there may be more.
    fn run_turn(&mut self, cx: &mut Context<'_>, clock: &TurnClock) -> Progress {
        let now = clock.begin_turn();
        if self.session.poll_timeout().is_some_and(|at| at <= now) {
            self.session.handle_timeout(now);
        }
        let mut progress = self.handle_wakeups(now);
        progress = progress.or(self.receive(cx, now));
        let Self { session, conns, handler, .. } = self;
        handler.on_turn(&mut TurnCx { session, conns, now });
        let mut late_progress = self.handle_events(now);
        progress = progress.or(self.conns.transmit(&mut self.session, now, cx));
        late_progress = late_progress.or(self.handle_events(now));
        late_progress = late_progress.or(self.conns.advance_close(&mut self.session, now, cx));
        match progress.or(late_progress) {
            // Most turns read a few requests and write their responses. Another one would find nothing.
            Progress::Yes if late_progress == Progress::No && self.is_settled() => Progress::No,
            progress => progress,
        }
    }

    fn is_settled(&mut self) -> bool {
        self.handler.is_settled() && self.conns.is_settled(&self.session)
    }

    /// Handles the commands and the streams that were woken.
    fn handle_wakeups(&mut self, now: Instant) -> Progress {
        let mut woken_slots = core::mem::take(&mut self.woken_slots);
        let woken = self.mailbox.notifier().take(&mut woken_slots);
        if woken == Woken::Yes {
            for command in self.mailbox.take() {
                let Self { session, conns, handler, .. } = self;
                handler.on_command(&mut TurnCx { session, conns, now }, command);
            }
            for slot in woken_slots.drain(..) {
                let Self { session, conns, handler, .. } = self;
                handler.on_wake(&mut TurnCx { session, conns, now }, slot);
            }
        }
        self.woken_slots = woken_slots;
        match woken {
            Woken::Yes => Progress::Yes,
            Woken::No => Progress::No,
        }
    }

    /// Reads from each connection; its events are handled before the next one is read.
    fn receive(&mut self, cx: &mut Context<'_>, now: Instant) -> Progress {
        let mut progress = Progress::No;
        for index in 0..self.conns.len() {
            progress = progress.or(self.conns.receive(index, &mut self.session, now, cx));
            progress = progress.or(self.handle_events(now));
        }
        progress
    }

    fn handle_events(&mut self, now: Instant) -> Progress {
        let mut progress = Progress::No;
        while let Some(event) = self.session.poll_event() {
            progress = Progress::Yes;
            let Self { session, conns, handler, .. } = self;
            conns.on_event(session, now, &event);
            handler.on_event(&mut TurnCx { session, conns, now }, event);
        }
        progress
    }

    /// Returns when the driver must run even if it is not woken.
    fn deadline(&self) -> Option<Instant> {
        [self.session.poll_timeout(), self.conns.deadline(), self.handler.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl<A: SessionHandler> Future for Driver<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.mailbox.notifier().begin_poll(cx.waker());
        let clock = TurnClock::new();
        for _ in 0..MAX_TURNS_PER_POLL {
            if this.run_turn(cx, &clock) == Progress::Yes {
                continue;
            }
            if this.conns.is_empty() && this.handler.is_done() {
                return Poll::Ready(());
            }
            let deadline = this.deadline();
            if this.timer.poll(cx, deadline).is_ready() {
                continue;
            }
            if this.mailbox.notifier().sleep() == Woken::No {
                this.conns.release_idle_memory();
                return Poll::Pending;
            }
        }
        // Still busy: yield to the other tasks of this thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

// A task that does not complete is dropped: by its runtime, by the application or in a panic. Then too, the session must
// not be found any more, nor waited for.
impl<A: SessionHandler> Drop for Driver<A> {
    fn drop(&mut self) {
        self.handler.on_end();
    }
}
