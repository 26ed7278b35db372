//! The mover: sends MIGRATE, and processes the answer.

use super::{MigrateError, MigrationState, MigrationTarget, OpenMigration};
use crate::conn::{ConnId, Connection, ConnectionRole, EarlyFrames, IdState, Offence};
use crate::error::{Cause, ErrorCode, InputError};
use crate::migrate::Mover;
use crate::session::{Event, Session, Side};
use crate::stream::{RecvState, SendBeforeAnswer, SendState, Stream, StreamAddr, StreamKey};
use crate::time::Instant;
use crate::wire::{self, Cid, EndStream, Migrate, StreamId};

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
        match stream.migration {
            MigrationState::Idle | MigrationState::OfferReceived => {}
            MigrationState::Offered | MigrationState::Open(_) => {
                return Err(MigrateError::InProgress);
            }
        }
        if stream.moves >= max_moves {
            return Err(MigrateError::LimitReached);
        }
        let (from, offered) = (stream.addr, stream.offered);
        let conn = self.conn(from.conn).ok_or(MigrateError::Ended)?;
        if !conn.is_joined() {
            return Err(MigrateError::Disabled);
        }
        // The peer's MIGRATE waits for a JOIN (SMIG-5.12/join-pending); it takes precedence.
        if self.conns.iter().any(|conn| conn.deferred_migrates.iter().any(|w| w.from == from)) {
            return Err(MigrateError::InProgress);
        }
        if self.open_migrations >= conn.peer.smig as usize {
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
        let peer_window = self.conn(from.conn).map_or(0, |conn| conn.peer.initial_window);
        let Some(stream) = self.streams.find_mut(key) else { return };
        let home = stream.send_home.take().map(|home| (home, peer_window));
        let end = stream.send.closed_flag();
        stream.migration = MigrationState::Open(Box::new(OpenMigration {
            from,
            to,
            dst: (cid, to.id),
            early: EarlyFrames::default(),
            credit_on_carrier: 0,
            carrier_lost: false,
            since: now,
            home,
        }));
        stream.send.begin_replay(before_answer);
        stream.addr = to;
        stream.moves += 1;
        self.open_migrations += 1;
        self.send_migrate(from, Migrate { dst: Some((cid, to.id)) }, end.flag());
        self.arm(now);
        self.schedule(key);
    }

    fn offer(&mut self, key: StreamKey, from: StreamAddr) -> Result<(), MigrateError> {
        let stream = self.streams.find_mut(key).ok_or(MigrateError::Ended)?;
        stream.migration = MigrationState::Offered;
        stream.offered = true;
        self.open_migrations += 1;
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
        match &stream.migration {
            MigrationState::Offered if migrate.dst.is_none() && stream.addr == here => {
                stream.migration = MigrationState::Idle;
                self.open_migrations -= 1;
                self.events.push_back(Event::MigrationDeclined { stream: key });
                self.apply_barrier_end(now, key, end)
            }
            MigrationState::Open(moving) if moving.from == here => match migrate.dst {
                None => self.on_decline(now, key, end),
                Some(dst) if dst == moving.dst => self.on_barrier(now, key, end),
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
            self.open_migrations = self.open_migrations.saturating_sub(1);
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
        let Some(moving) = self.settle(key) else { return Ok(()) };
        self.vacate(key, moving.from);
        if let Some(stream) = self.streams.find_mut(key) {
            stream.recv_home = None;
            stream.send.end_replay();
        }
        let received = self.stream(key).map_or(0, |view| view.received);
        self.events.push_back(Event::Migrated {
            stream: key,
            from: moving.from.conn,
            to: moving.to.conn,
            mover: Mover::Local,
            received,
        });
        let ended = self.apply_barrier_end(now, key, end);
        // Apply or drop the buffered frames, even if the barrier's END_STREAM caused an error.
        let early = self.apply_early(now, key, moving.to, moving.early);
        ended.and(early)?;
        self.after_direction(key);
        let complete = self.streams.find(key).is_none_or(Stream::is_complete);
        if !complete && self.conn(moving.to.conn).is_none_or(Connection::is_dead) {
            // The connection was lost before the answer; the stream fails only now
            // (SMIG-8.9/c2-ends-early, SMIG-8.10/c2-ends-late).
            self.fail_with_connection(key, moving.to.conn);
            return Ok(());
        }
        self.schedule(key);
        self.stop_if_due(key);
        Ok(())
    }

    /// Ends the mover's phase; the carrier remains the route.
    pub(crate) fn settle(&mut self, key: StreamKey) -> Option<OpenMigration> {
        let stream = self.streams.find_mut(key)?;
        let moving = stream.migration.take_moving()?;
        self.open_migrations = self.open_migrations.saturating_sub(1);
        Some(*moving)
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
        let Some(moving) = self.settle(key) else { return Ok(()) };
        let (from, credit) = (moving.from, moving.credit_on_carrier);
        let stopped = moving.early.is_stopped();
        self.return_to(key, moving);
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

    /// Returns the stream to its old route after a migration of this side has failed.
    pub(crate) fn return_to(&mut self, key: StreamKey, open: OpenMigration) {
        let OpenMigration { from, to, early, home, .. } = open;
        self.unschedule(key);
        self.unmap(to);
        self.give_back_to(to.conn, early.into_credit());
        let window_now = self.conn(from.conn).map_or(0, |conn| conn.peer.initial_window);
        let Some(stream) = self.streams.find_mut(key) else { return };
        let carrier_used = open.credit_on_carrier > 0 || stream.send.is_behind_barrier();
        stream.addr = from;
        if let Some((home, window)) = home {
            stream.send_home = Some(home);
            // Overflows only if the peer violates flow control; the window is then left as it is.
            let _fits = stream.send.window.adjust(i64::from(window_now) - i64::from(window));
        }
        let heads = stream.send.resume();
        if carrier_used {
            self.queue_reset(to, ErrorCode::Cancel);
        }
        self.ignore_from_peer(to);
        for (head, end) in heads {
            self.frame_response(from, &head, end);
        }
        self.schedule(key);
    }

    /// Handles the loss of one of the two connections of an unanswered migration
    /// (SMIG-8.8/c1-ends-at-mover, SMIG-8.9/c2-ends-early).
    pub(crate) fn on_moving_lost(&mut self, key: StreamKey, lost: ConnId) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        let complete =
            stream.recv.state() == RecvState::Ended && stream.send.state() == SendState::Ended;
        let MigrationState::Open(moving) = &mut stream.migration else { return };
        if moving.to.conn == lost && moving.from.conn != lost {
            // The answer on the old connection decides.
            moving.carrier_lost = true;
            return;
        }
        let to = moving.to;
        if complete {
            let Some(moving) = self.settle(key) else { return };
            // A MIGRATE that waited for the answer must be answered itself
            // (SMIG-5.10/always-answer).
            moving.early.into_items().into_iter().for_each(|item| self.drop_item(to, item));
            if let Some(stream) = self.streams.find_mut(key) {
                stream.send.end_replay();
            }
            self.after_direction(key);
        } else {
            self.queue_reset(to, ErrorCode::Cancel);
            self.fail_with_connection(key, lost);
        }
    }
}
