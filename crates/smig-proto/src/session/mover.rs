//! The mover: sends MIGRATE, and processes the answer.

use crate::conn::{Connection, ConnectionRole, IdState, Offence};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};
use crate::migrate::{
    EarlyFrames, MigrateError, MigrationState, MigrationTarget, Mover, OpenMigration,
};
use crate::session::{Event, Session};
use crate::stream::{Offer, RecvState, SendBeforeAnswer, SendState, Stream, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream, Migrate};

/// What a migration leaves that was declined or given up.
#[derive(Debug)]
pub(crate) struct Undone {
    /// Where the stream is again.
    pub(crate) from: StreamAddr,
    /// Credit that was sent on the carrier and must be sent again (SMIG-6.10/lost-credit).
    pub(crate) credit: u32,
    /// RST_STREAM(NO_ERROR) had arrived on the carrier.
    pub(crate) stopped: bool,
}

impl Session {
    /// Moves a running stream to another connection (section 5 of the specification), or offers it
    /// (SMIG-6.1/offer).
    ///
    /// # Errors
    ///
    /// Returns the reason why the stream was not moved; nothing was sent.
    pub fn migrate(
        &mut self,
        now: Instant,
        key: StreamKey,
        to: MigrationTarget,
    ) -> Result<(), MigrateError> {
        let smig = self.config.smig.as_ref().ok_or(MigrateError::Disabled)?;
        let (max_moves, replay_limit) = (smig.max_moves, smig.replay_limit);
        let stream = self.streams.find(key).ok_or(MigrateError::Ended)?;
        if stream.is_over() || stream.is_complete() {
            return Err(MigrateError::Ended);
        }
        match stream.binding.migration() {
            MigrationState::Idle | MigrationState::OfferReceived => {}
            MigrationState::Offered | MigrationState::Open(_) => {
                return Err(MigrateError::InProgress);
            }
        }
        if stream.binding.moves() >= max_moves {
            return Err(MigrateError::LimitReached);
        }
        let (from, offered) = (stream.binding.send_addr(), stream.offered);
        let conn = self.conn(from.conn).ok_or(MigrateError::Ended)?;
        if !conn.is_joined() {
            return Err(MigrateError::Disabled);
        }
        // The peer's MIGRATE waits for a JOIN (SMIG-5.12/join-pending); it takes precedence.
        if self.conns.iter().any(|conn| conn.deferred_migrates.iter().any(|w| w.from == from)) {
            return Err(MigrateError::InProgress);
        }
        if self.open_migrations() >= conn.peer.smig as usize {
            return Err(MigrateError::TooMany);
        }
        let target = match to {
            MigrationTarget::Offer if self.side != Side::Server => {
                return Err(MigrateError::NotServer);
            }
            MigrationTarget::Offer if offered => return Err(MigrateError::LimitReached),
            MigrationTarget::Offer => return self.offer(key, from),
            MigrationTarget::Spare => self.spare(from.conn).ok_or(MigrateError::NoTarget)?,
            MigrationTarget::Connection(id) => id,
        };
        let role = self.side;
        let conn = self.conn_mut(target).ok_or(MigrateError::NoTarget)?;
        if target == from.conn || !conn.is_joined() || !conn.accepts_streams() {
            return Err(MigrateError::NoTarget);
        }
        let cid = conn.cid.ok_or(MigrateError::NoTarget)?;
        let id = conn.local_ids.next(role.parity()).ok_or(MigrateError::NoTarget)?;
        conn.role = ConnectionRole::Bulk;
        conn.streams.insert(id, key);
        let to = StreamAddr { conn: target, id };
        let pace = match role {
            Side::Server => SendBeforeAnswer::UpToReplayLimit(replay_limit),
            Side::Client => SendBeforeAnswer::Held,
        };
        self.cross_barrier(now, key, (from, to), cid, pace);
        Ok(())
    }

    /// Sends the barrier, and changes the route of this side's direction (SMIG-5.3/mover-barrier).
    fn cross_barrier(
        &mut self,
        now: Instant,
        key: StreamKey,
        (from, to): (StreamAddr, StreamAddr),
        cid: Cid,
        before_answer: SendBeforeAnswer,
    ) {
        self.unschedule(key);
        let initial_window = self.conn(from.conn).map_or(0, |conn| conn.peer.initial_window);
        let Some(stream) = self.streams.find_mut(key) else { return };
        let end = stream.send.closed_flag();
        stream.send.begin_replay(before_answer);
        stream.binding.begin(OpenMigration {
            to,
            dst: (cid, to.id),
            early: EarlyFrames::default(),
            credit_on_carrier: 0,
            carrier_lost: false,
            since: now,
            initial_window,
        });
        self.send_migrate(from, Migrate { dst: Some((cid, to.id)) }, end.flag());
        self.arm(now);
        self.schedule(key);
    }

    /// Returns the number of this side's unanswered migrations and offers in the session, also of
    /// streams that have ended since (SMIG-5.9/open-limit).
    pub(crate) fn open_migrations(&self) -> usize {
        let is_open = |stream: &Stream| match stream.binding.migration() {
            MigrationState::Open(_) | MigrationState::Offered => true,
            MigrationState::Idle | MigrationState::OfferReceived => false,
        };
        let running = self.streams.iter().filter(|(_, stream)| is_open(stream)).count();
        running + self.conns.iter().map(|conn| conn.pending_answers.len()).sum::<usize>()
    }

    fn offer(&mut self, key: StreamKey, from: StreamAddr) -> Result<(), MigrateError> {
        let stream = self.streams.find_mut(key).ok_or(MigrateError::Ended)?;
        stream.binding.set_offer(Offer::Sent);
        stream.offered = true;
        self.send_migrate(from, Migrate { dst: None }, 0);
        Ok(())
    }

    pub(crate) fn send_migrate(&mut self, on: StreamAddr, migrate: Migrate, flags: u8) {
        let Some(points) = self.config.smig.as_ref().map(|smig| smig.code_points) else { return };
        if let Some(conn) = self.conn_mut(on.conn).filter(|conn| !conn.is_dead()) {
            wire::migrate(&mut conn.out.frames, &points, on.id, migrate, flags);
        }
    }

    /// Handles MIGRATE with ACK, the answer.
    pub(crate) fn on_migrate_ack(
        &mut self,
        now: Instant,
        conn: ConnId,
        id: StreamId,
        migrate: Migrate,
        end: EndStream,
    ) -> Result<(), InputError> {
        let here = StreamAddr { conn, id };
        let Some(key) = self.key_at(conn, id) else {
            return self.on_stray_answer(here, migrate);
        };
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        match stream.binding.migration() {
            MigrationState::Offered if migrate.dst.is_none() => {
                stream.binding.set_offer(Offer::None);
                self.events.push_back(Event::MigrationDeclined { stream: key });
                self.apply_barrier_end(now, key, end)
            }
            MigrationState::Open(open) if stream.binding.recv_addr() == here => match migrate.dst {
                None => self.on_decline(now, key, end),
                Some(dst) if dst == open.dst => self.on_barrier(now, key, end),
                Some(_) => Err(Cause::UnexpectedMigrateAck.into()),
            },
            MigrationState::Idle
            | MigrationState::Offered
            | MigrationState::OfferReceived
            | MigrationState::Open(_) => Err(Cause::UnexpectedMigrateAck.into()),
        }
    }

    /// Handles an answer for a stream that has ended here (SMIG-2.7/stray-answer,
    /// SMIG-8.3/reset-remembered).
    fn on_stray_answer(&mut self, at: StreamAddr, migrate: Migrate) -> Result<(), InputError> {
        let due = self.conn_mut(at.conn).and_then(|conn| conn.take_pending_answer(at.id));
        if let Some(due) = due {
            if migrate.dst.is_some_and(|dst| dst != due.dst) {
                return Err(Cause::UnexpectedMigrateAck.into());
            }
            if let (None, Some(code)) = (migrate.dst, due.reset) {
                self.queue_reset(at, code);
            }
            return Ok(());
        }
        match self.id_state(at.conn, at.id) {
            IdState::Idle | IdState::Skipped => Err(Cause::IdleStream.into()),
            IdState::Ignored | IdState::Closed => Ok(()),
        }
    }

    /// Handles the follower's barrier: its further frames arrive on the carrier
    /// (SMIG-5.11/follower-barrier).
    fn on_barrier(
        &mut self,
        now: Instant,
        key: StreamKey,
        end: EndStream,
    ) -> Result<(), InputError> {
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        let from = stream.binding.recv_addr();
        let Some(open) = stream.binding.revert() else { return Ok(()) };
        stream.send.end_replay();
        let received = stream.recv.received();
        self.rebind(key, open.to, Mover::Local);
        self.events.push_back(Event::Migrated {
            stream: key,
            from: from.conn,
            to: open.to.conn,
            mover: Mover::Local,
            received,
        });
        let ended = self.apply_barrier_end(now, key, end);
        // Apply or drop the buffered frames, even if the barrier's END_STREAM caused an error.
        let early = self.apply_early(now, key, open.to, open.early);
        ended.and(early)?;
        self.after_direction(key);
        let complete = self.streams.find(key).is_none_or(Stream::is_complete);
        if !complete && self.conn(open.to.conn).is_none_or(Connection::is_dead) {
            // The connection was lost before the answer; the stream fails only now
            // (SMIG-8.9/c2-ends-early, SMIG-8.10/c2-ends-late).
            self.fail_with_connection(key, open.to.conn);
            return Ok(());
        }
        self.schedule(key);
        self.stop_if_due(key);
        Ok(())
    }

    /// Applies END_STREAM of any MIGRATE of a stream. Has no effect if the direction has already
    /// ended (SMIG-5.4/end-stream).
    pub(crate) fn apply_barrier_end(
        &mut self,
        now: Instant,
        key: StreamKey,
        end: EndStream,
    ) -> Result<(), InputError> {
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        if !end.is_end() || stream.is_over() || stream.recv.state() == RecvState::Ended {
            return Ok(());
        }
        match stream.recv.on_end() {
            Ok(()) => {
                self.signal_readable(key);
                self.after_direction(key);
                Ok(())
            }
            Err(cause) => self.fail_by_fault(now, key, cause),
        }
    }

    /// Handles a decline: both directions resume at their barriers on the old connection
    /// (SMIG-6.8/resume, SMIG-6.9/lost-bytes, SMIG-6.10/lost-credit, SMIG-6.11/close-abandoned).
    fn on_decline(
        &mut self,
        now: Instant,
        key: StreamKey,
        end: EndStream,
    ) -> Result<(), InputError> {
        let Some(undone) = self.return_to_old_route(key) else { return Ok(()) };
        let Undone { from, credit, stopped } = undone;
        if credit > 0 {
            self.send_stream_credit(key, credit);
        }
        self.events.push_back(Event::MigrationDeclined { stream: key });
        self.apply_barrier_end(now, key, end)?;
        if stopped {
            // Repeat the reset of the carrier on S1 (SMIG-8.3/reset-remembered).
            self.queue_reset(from, ErrorCode::NoError);
            let charge = self.reset_budget.debit(Offence::Reset);
            self.fail_by_peer(key, from, ErrorCode::NoError, charge);
        }
        self.after_direction(key);
        self.stop_if_due(key);
        Ok(())
    }

    /// Returns the stream to its old route, because its migration was declined or given up.
    pub(crate) fn return_to_old_route(&mut self, key: StreamKey) -> Option<Undone> {
        self.unschedule(key);
        let stream = self.streams.find_mut(key)?;
        let carrier_used = stream.has_used_carrier();
        let from = stream.binding.recv_addr();
        let OpenMigration { to, early, credit_on_carrier: credit, initial_window, .. } =
            stream.binding.revert()?;
        let heads = stream.send.resume();
        let window_now = self.conn(from.conn).map_or(0, |conn| conn.peer.initial_window);
        if let Some(stream) = self.streams.find_mut(key)
            && stream.binding.adjusts_send_window(from.conn)
        {
            // Overflows only if the peer violates flow control; the window is then left as it is
            // (SMIG-7.5/undone-barrier).
            let by = i64::from(window_now) - i64::from(initial_window);
            let _fits = stream.send.window.adjust(by);
        }
        self.unmap(to);
        let stopped = early.is_stopped();
        self.give_back_to(to.conn, early.into_credit());
        if carrier_used {
            self.queue_reset(to, ErrorCode::Cancel);
        }
        self.ignore_from_peer(to);
        for (head, end) in heads {
            self.frame_response(from, &head, end);
        }
        self.schedule(key);
        Some(Undone { from, credit, stopped })
    }

    /// Handles the loss of one of the two connections of an unanswered migration
    /// (SMIG-8.8/c1-ends-at-mover, SMIG-8.9/c2-ends-early).
    pub(crate) fn on_moving_lost(&mut self, key: StreamKey, lost: ConnId) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        let complete =
            stream.recv.state() == RecvState::Ended && stream.send.state() == SendState::Ended;
        let from = stream.binding.recv_addr();
        let Some(open) = stream.binding.open_mut() else { return };
        if open.to.conn == lost && from.conn != lost {
            // The answer on the old connection decides.
            open.carrier_lost = true;
            return self.unschedule(key);
        }
        let to = open.to;
        if complete {
            let Some(open) = stream.binding.revert() else { return };
            stream.send.end_replay();
            // The follower, if it follows, has the stream on the carrier.
            self.rebind(key, to, Mover::Local);
            // A MIGRATE that waited for the answer must be answered itself
            // (SMIG-5.10/always-answer).
            open.early.into_items().into_iter().for_each(|item| self.drop_item(to, item));
            self.after_direction(key);
        } else {
            self.queue_reset(to, ErrorCode::Cancel);
            self.fail_with_connection(key, lost);
        }
    }
}
