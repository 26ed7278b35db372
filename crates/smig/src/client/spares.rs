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
use crate::throttled;
use crate::transport::Transport;

/// Delay after a spare failed or was refused; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// State of a session's spare connections.
#[derive(Debug)]
pub(super) struct Spares {
    addr: SocketAddr,
    cleartext_security: Security,
    /// Number of spares to keep ready.
    target: usize,
    dials_in_progress: usize,
    state: DialState,
    /// Streams whose offer waits for a connection.
    offers: VecDeque<StreamKey>,
    backoff_until: Option<Instant>,
    backoff: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialState {
    /// The server does not support SMig, or its SETTINGS have not arrived yet.
    Disabled,
    Enabled,
    /// The session accepts no more requests and dials no more.
    Stopped,
}

impl Spares {
    pub(super) const fn new(addr: SocketAddr, cleartext_security: Security, target: usize) -> Self {
        Self {
            addr,
            cleartext_security,
            target,
            dials_in_progress: 0,
            state: DialState::Disabled,
            offers: VecDeque::new(),
            backoff_until: None,
            backoff: MIN_BACKOFF,
        }
    }

    /// Returns the address to which the session is connected.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn on_established(&mut self) {
        if self.state == DialState::Disabled {
            self.state = DialState::Enabled;
        }
    }

    /// Stops dialing. The results of attempts in progress are not reported any more, so all waiting offers are
    /// declined.
    pub(super) fn stop(&mut self, turn: &mut TurnCx<'_>) {
        self.state = DialState::Stopped;
        self.decline_all(turn);
    }

    /// Returns whether a connection may be dialed now: the server supports SMig, and no backoff is in
    /// progress.
    fn may_dial(&self, now: Instant) -> bool {
        self.state == DialState::Enabled && self.backoff_until.is_none_or(|at| now >= at)
    }

    /// Closes idle spares.
    pub(super) fn close_idle(&self, turn: &mut TurnCx<'_>) {
        let primary = primary(turn);
        let is_idle = |conn: &ConnectionView| conn.stream_count == 0 && Some(conn.id) != primary;
        let idle_conns: Vec<ConnId> =
            turn.session.connections().filter(is_idle).map(|conn| conn.id).collect();
        for conn in idle_conns {
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
        let is_idle = |conn: &ConnectionView| conn.stream_count == 0 && Some(conn.id) != primary;
        let idle_count = turn.session.connections().filter(is_idle).count();
        self.offers.retain(|&stream| turn.session.has_offer(stream));
        let target = self.target.max(self.offers.len());
        let missing = target.saturating_sub(idle_count + self.dials_in_progress);
        for _ in 0..missing {
            if !turn.session.can_join()
                || turn.conns.len() + self.dials_in_progress >= context.max_session_connections
            {
                break;
            }
            let Ok(connection_permit) = context.try_acquire_permit() else { break };
            self.dials_in_progress += 1;
            self.dial(context, mailbox, connection_permit);
        }
        if missing > 0 && self.dials_in_progress == 0 {
            self.decline_all(turn);
        }
    }

    fn dial(
        &self,
        context: &Arc<OriginContext>,
        mailbox: &Arc<Mailbox<Command>>,
        connection_permit: Option<ConnectionPermit>,
    ) {
        let (context, mailbox, addr) = (Arc::clone(context), Arc::clone(mailbox), self.addr);
        tokio::spawn(async move {
            let dialed = dial::dial_addr(addr, &context).await;
            let dialed =
                dialed.map(|transport| attach_permit(&context, transport, connection_permit));
            // If the session closed in the meantime, the connection is dropped.
            drop(mailbox.send(Command::Dialed(Box::new(dialed))));
        });
    }

    /// Adds a dialed connection; it joins with its first frames.
    pub(super) fn on_dialed(
        &mut self,
        turn: &mut TurnCx<'_>,
        dial_result: Result<Transport, Error>,
    ) {
        self.dials_in_progress = self.dials_in_progress.saturating_sub(1);
        match dial_result {
            Ok(transport) if turn.session.can_join() => {
                let info = ConnectionInfo::new(&transport, self.cleartext_security, None);
                turn.conns.add(turn.session, turn.now, transport, info, CLIENT_IDENTITY);
            }
            // The session is closing, or has its maximum of connections.
            Ok(_) => self.decline_all(turn),
            Err(error) => {
                throttled!(info, "no spare", %error, "spare connection failed");
                self.back_off(turn);
            }
        }
    }

    /// Closes a spare that the server refused, unless a new session starts on it.
    pub(super) fn on_refused(&mut self, turn: &mut TurnCx<'_>, conn: ConnId, reason: JoinRefusal) {
        if reason != JoinRefusal::UnknownSession {
            turn.session.drain(turn.now, conn);
        }
        self.back_off(turn);
    }

    /// Handles a closed connection; `cause` is set if this side closed it.
    pub(super) fn on_closed(&mut self, turn: &mut TurnCx<'_>, cause: Option<Cause>) {
        if cause == Some(Cause::JoinTimeout) {
            self.back_off(turn);
        }
    }

    fn back_off(&mut self, turn: &mut TurnCx<'_>) {
        self.backoff_until = Some(turn.now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.decline_all(turn);
    }

    /// Migrates the stream of the oldest offer to the spare that has joined. Streams that
    /// have ended meanwhile do not use up the spare.
    pub(super) fn on_joined(&mut self, turn: &mut TurnCx<'_>) {
        self.backoff = MIN_BACKOFF;
        self.backoff_until = None;
        while let Some(stream) = self.offers.pop_front() {
            if turn.session.migrate(turn.now, stream, MigrationTarget::Spare).is_ok() {
                return;
            }
            turn.session.decline_offer(stream);
        }
    }

    /// Handles the server's offer to migrate a stream. The offer waits for a connection only if
    /// one can be dialed now: an answer is due within that time (SMIG-6.2/offer-answered).
    pub(super) fn on_offer(&mut self, turn: &mut TurnCx<'_>, stream: StreamKey) {
        match turn.session.migrate(turn.now, stream, MigrationTarget::Spare) {
            Ok(_) => {}
            Err(MigrateError::NoTarget) if self.may_dial(turn.now) && turn.session.can_join() => {
                self.offers.push_back(stream);
            }
            // Another connection would not help.
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
pub(super) const CLIENT_IDENTITY: Identity = Identity([0; 32]);

/// Counts a client's connection, and attaches its permit if connections are limited.
pub(super) fn attach_permit(
    context: &OriginContext,
    transport: Transport,
    connection_permit: Option<ConnectionPermit>,
) -> Transport {
    let addrs = || Some(transport.addrs());
    match OpenPermit::try_acquire(&context.open_connections, usize::MAX, &context.events, addrs) {
        Some(permit) => transport.with_permit(permit.with_limit_permit(connection_permit)),
        None => transport,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_dialed_only_while_enabled_and_outside_a_backoff() {
        // SMIG-6.2/offer-answered
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut spares = Spares::new(([127, 0, 0, 1], 1).into(), Security::Ineligible, 0);
        assert!(!spares.may_dial(at(1)), "the server cannot migrate");
        spares.on_established();
        assert!(spares.may_dial(at(1)));
        spares.backoff_until = Some(at(3));
        assert!(!spares.may_dial(at(2)) && spares.may_dial(at(3)), "one failed");
        spares.state = DialState::Stopped;
        spares.on_established();
        assert!(!spares.may_dial(at(4)), "the session ends");
    }
}
