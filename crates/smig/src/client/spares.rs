//! Spare connections: opened before they are needed, joined at once.
//!
//! The client dials only the address that the session already uses, and only as many connections
//! as its own limit allows, whatever the server offers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smig_proto::{
    Cause, ConnId, ConnectionRole, ConnectionView, Identity, Instant, JoinRefusal, MigrateError,
    MigrationTarget, Security, StreamKey,
};

use super::dial;
use super::pool::OriginContext;
use super::session::Command;
use crate::connection::ConnectionInfo;
use crate::driver::TurnCx;
use crate::error::Error;
use crate::limits::{ConnectionPermit, OpenPermit};
use crate::mailbox::Mailbox;
use crate::seldom;
use crate::transport::Transport;

/// Delay after a spare failed or was refused; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// State of a session's spare connections.
#[derive(Debug)]
pub(super) struct Spares {
    addr: SocketAddr,
    clear: Security,
    /// Number of spares to keep ready.
    wanted: usize,
    dialing: usize,
    state: State,
    /// Streams whose offer waits for a connection.
    offers: VecDeque<StreamKey>,
    not_before: Option<Instant>,
    backoff: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The server does not support SMig, or its SETTINGS have not arrived yet.
    Off,
    On,
    /// The session accepts no more requests and dials no more.
    Over,
}

impl Spares {
    pub(super) const fn new(addr: SocketAddr, clear: Security, wanted: usize) -> Self {
        Self {
            addr,
            clear,
            wanted,
            dialing: 0,
            state: State::Off,
            offers: VecDeque::new(),
            not_before: None,
            backoff: MIN_BACKOFF,
        }
    }

    /// Returns the address to which the session is connected.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn on_established(&mut self) {
        if self.state == State::Off {
            self.state = State::On;
        }
    }

    /// Stops dialing. The results of attempts in progress are not reported any more, so all waiting offers are
    /// declined.
    pub(super) fn finish(&mut self, turn: &mut TurnCx<'_>) {
        self.state = State::Over;
        self.decline_all(turn);
    }

    /// Returns whether a connection may be dialed now: the server supports SMig, and no backoff is in
    /// progress.
    fn may_dial(&self, now: Instant) -> bool {
        self.state == State::On && self.not_before.is_none_or(|at| now >= at)
    }

    /// Closes idle spares.
    pub(super) fn close_idle(&self, turn: &mut TurnCx<'_>) {
        let primary = primary(turn);
        let idle = |conn: &ConnectionView| conn.streams == 0 && Some(conn.id) != primary;
        let idle: Vec<ConnId> =
            turn.session.connections().filter(idle).map(|conn| conn.id).collect();
        for conn in idle {
            turn.session.drain(turn.now, conn);
        }
    }

    /// Dials the missing spares.
    pub(super) fn keep_ready(
        &mut self,
        turn: &mut TurnCx<'_>,
        context: &Arc<OriginContext>,
        mailbox: &Arc<Mailbox<Command>>,
    ) {
        if !self.may_dial(turn.now) {
            return;
        }
        let primary = primary(turn);
        let idle = |conn: &ConnectionView| conn.streams == 0 && Some(conn.id) != primary;
        let idle = turn.session.connections().filter(idle).count();
        self.offers.retain(|&stream| turn.session.has_offer(stream));
        let wanted = self.wanted.max(self.offers.len());
        let missing = wanted.saturating_sub(idle + self.dialing);
        for _ in 0..missing {
            if !turn.session.can_join()
                || turn.conns.len() + self.dialing >= context.max_connections
            {
                break;
            }
            let Ok(place) = context.spare_place() else { break };
            self.dialing += 1;
            self.dial(context, mailbox, place);
        }
        if missing > 0 && self.dialing == 0 {
            self.decline_all(turn);
        }
    }

    fn dial(
        &self,
        context: &Arc<OriginContext>,
        mailbox: &Arc<Mailbox<Command>>,
        place: Option<ConnectionPermit>,
    ) {
        let (context, mailbox, addr) = (Arc::clone(context), Arc::clone(mailbox), self.addr);
        tokio::spawn(async move {
            let dialed = dial::dial_again(addr, &context).await;
            let dialed = dialed.map(|transport| counted(&context, transport, place));
            // If the session closed in the meantime, the connection is dropped.
            drop(mailbox.send(Command::Dialed(Box::new(dialed))));
        });
    }

    /// Adds a dialed connection; it joins with its first frames.
    pub(super) fn on_dialed(&mut self, turn: &mut TurnCx<'_>, dialed: Result<Transport, Error>) {
        self.dialing = self.dialing.saturating_sub(1);
        match dialed {
            Ok(transport) if turn.session.can_join() => {
                let info = ConnectionInfo::new(&transport, self.clear, None);
                turn.conns.add(turn.session, turn.now, transport, info, IDENTITY);
            }
            // The session is closing, or has its maximum of connections.
            Ok(_) => self.decline_all(turn),
            Err(error) => {
                seldom!(info, "no spare", %error, "spare connection failed");
                self.fail(turn);
            }
        }
    }

    /// Closes a spare that the server refused, unless the session starts anew on it.
    pub(super) fn on_refused(&mut self, turn: &mut TurnCx<'_>, conn: ConnId, reason: JoinRefusal) {
        if reason != JoinRefusal::UnknownSession {
            turn.session.drain(turn.now, conn);
        }
        self.fail(turn);
    }

    /// Handles a closed connection; `cause` is set if this side closed it.
    pub(super) fn on_closed(&mut self, turn: &mut TurnCx<'_>, cause: Option<Cause>) {
        if cause == Some(Cause::JoinTimeout) {
            self.fail(turn);
        }
    }

    fn fail(&mut self, turn: &mut TurnCx<'_>) {
        self.not_before = Some(turn.now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.decline_all(turn);
    }

    /// Moves the stream of the oldest offer to the spare that has joined. Streams that have ended meanwhile do not
    /// use up the spare.
    pub(super) fn on_joined(&mut self, turn: &mut TurnCx<'_>) {
        self.backoff = MIN_BACKOFF;
        self.not_before = None;
        while let Some(stream) = self.offers.pop_front() {
            if turn.session.migrate(turn.now, stream, MigrationTarget::Spare).is_ok() {
                return;
            }
            turn.session.decline_offer(stream);
        }
    }

    /// Handles the server's offer to move a stream. The offer waits for a connection only if one can be dialed
    /// now: an answer is due within that time (SMIG-6.2/offer-answered).
    pub(super) fn on_offer(&mut self, turn: &mut TurnCx<'_>, stream: StreamKey) {
        match turn.session.migrate(turn.now, stream, MigrationTarget::Spare) {
            Ok(_) => {}
            Err(MigrateError::NoTarget) if self.may_dial(turn.now) && turn.session.can_join() => {
                self.offers.push_back(stream);
            }
            // A connection would not change that.
            Err(_) => turn.session.decline_offer(stream),
        }
    }

    fn decline_all(&mut self, turn: &mut TurnCx<'_>) {
        for stream in self.offers.drain(..) {
            turn.session.decline_offer(stream);
        }
    }
}

/// Returns the connection on which new streams start: the first interactive one. It is not a spare.
fn primary(turn: &TurnCx<'_>) -> Option<ConnId> {
    let interactive = |conn: &ConnectionView| conn.role == ConnectionRole::Interactive;
    turn.session.connections().find(interactive).map(|conn| conn.id)
}

/// All connections of a client have the same identity: nothing distinguishes them for a join.
pub(super) const IDENTITY: Identity = Identity([0; 32]);

/// Counts a client's connection, and attaches its slot if connections are limited.
pub(super) fn counted(
    context: &OriginContext,
    transport: Transport,
    place: Option<ConnectionPermit>,
) -> Transport {
    let ends = || Some(transport.addrs());
    match OpenPermit::try_acquire(&context.open, usize::MAX, &context.counters, ends) {
        Some(permit) => transport.with_permit(permit.with_limit_permit(place)),
        None => transport,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_waits_only_for_what_can_be_dialed() {
        // SMIG-6.2/offer-answered
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut spares = Spares::new(([127, 0, 0, 1], 1).into(), Security::Ineligible, 0);
        assert!(!spares.may_dial(at(1)), "the server cannot migrate");
        spares.on_established();
        assert!(spares.may_dial(at(1)));
        spares.not_before = Some(at(3));
        assert!(!spares.may_dial(at(2)) && spares.may_dial(at(3)), "one failed");
        spares.state = State::Over;
        spares.on_established();
        assert!(!spares.may_dial(at(4)), "the session ends");
    }
}
