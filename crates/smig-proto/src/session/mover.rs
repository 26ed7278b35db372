//! The mover: sends MIGRATE, and processes the answer.

use crate::conn::{Connection, IdState, Offence};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::{Cid, ConnId, StreamAddr, StreamId};
use crate::invariant::DebugExpect;
use crate::migrate::{
    Answer, DueResets, EndBeforeAnswer, LossEffect, MigrateError, MigrationPreconditions,
    MigrationState, MigrationTarget, Mover, OpenMigration, PendingAnswer, check_offer,
};
use crate::session::{Event, Session};
use crate::stream::{RecvState, SendBeforeAnswer, Stream, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream, Migrate};

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
        let stream = self.streams.find(key).ok_or(MigrateError::Ended)?;
        // C1, even during an open migration: C2 may have ended (SMIG-8.9/c2-ends-early).
        let from = stream.binding.recv_addr();
        if stream.is_resuming() {
            return Err(MigrateError::InProgress);
        }
        let c1 = self.conns.find(from.conn).ok_or(MigrateError::Ended)?;
        let preconditions = MigrationPreconditions {
            migration: stream.binding.migration(),
            has_ended: stream.has_failed() || stream.is_complete(),
            migrations: stream.binding.migration_count(),
            max_migrations: smig.max_migrations_per_stream,
            c1_joined: c1.is_joined(),
            is_deferred: self.is_deferred(from),
            open_migrations: self.open_migration_count(),
            max_open_migrations: c1.peer_settings.max_open_migrations,
        };
        preconditions.check()?;
        let before_answer = SendBeforeAnswer::for_side(self.side, smig.replay_limit);
        let target = match to {
            MigrationTarget::Offer => {
                check_offer(self.side, stream.was_offered_or_declined)?;
                self.send_offer(key, from);
                return Ok(());
            }
            MigrationTarget::Spare => self.spare(from.conn).ok_or(MigrateError::NoTarget)?,
            MigrationTarget::Connection(id) => id,
        };
        let (side, carrier_role) = (self.side, self.carrier_role);
        let c2 = self.conns.find_mut(target).ok_or(MigrateError::NoTarget)?;
        if !c2.accepts_carrier(from.conn) {
            return Err(MigrateError::NoTarget);
        }
        let cid = c2.cid.ok_or(MigrateError::NoTarget)?;
        // SMIG-5.2/choice-of-s2
        let s2 = c2.local_ids.allocate(side.first_stream_id()).ok_or(MigrateError::NoTarget)?;
        c2.set_carrier_role(carrier_role);
        c2.streams.insert(s2, key);
        self.begin_migration(now, key, StreamAddr { conn: target, id: s2 }, cid, before_answer);
        Ok(())
    }

    /// Sends the barrier, and changes the address of this side's direction
    /// (SMIG-5.3/mover-barrier).
    fn begin_migration(
        &mut self,
        now: Instant,
        key: StreamKey,
        to: StreamAddr,
        cid: Cid,
        before_answer: SendBeforeAnswer,
    ) {
        self.unschedule(key);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let from = stream.binding.send_addr();
        let Some(c1) = self.conns.find_known(from.conn) else { return };
        let end = stream.send.end_stream_flag();
        let open = OpenMigration::new(to, cid, now, c1.peer_settings.initial_window);
        let dst = open.dst();
        stream.binding.begin(open);
        self.send_migrate(from, Migrate { dst: Some(dst) }, end.flag());
        let sent_at = self.conns.find_known_mut(from.conn).map(Connection::last_framed);
        let stream = self.streams.find_known_mut(key);
        if let (Some(stream), Some(sent_at)) = (stream, sent_at) {
            stream.send.begin_barrier(before_answer, sent_at);
        }
        self.arm_tick(now);
        self.schedule(key);
    }

    /// Returns the number of this side's unanswered migrations, including those of streams that have ended since, and of its
    /// unanswered offers of streams that have not (SMIG-5.9/open-limit).
    pub(crate) fn open_migration_count(&self) -> usize {
        let is_open = |stream: &Stream| match stream.binding.migration() {
            MigrationState::Open(_) | MigrationState::Offered => true,
            MigrationState::Idle | MigrationState::OfferReceived => false,
        };
        let running = self.streams.iter().filter(|(_, stream)| is_open(stream)).count();
        running + self.conns.iter().map(|conn| conn.pending_answers.len()).sum::<usize>()
    }

    fn send_offer(&mut self, key: StreamKey, from: StreamAddr) {
        let carrier_role = self.carrier_role;
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        stream.binding.begin_offer();
        stream.was_offered_or_declined = true;
        stream.offered_role = Some(carrier_role);
        self.send_migrate(from, Migrate { dst: None }, 0);
    }

    /// Sends MIGRATE, unless its connection has ended.
    pub(crate) fn send_migrate(&mut self, on: StreamAddr, migrate: Migrate, flags: u8) {
        let code_points = self.config.smig.as_ref().map(|smig| smig.code_points);
        let Some(points) = code_points.debug_expect("the extension is on") else { return };
        if let Some(conn) = self.conns.find_live_mut(on.conn) {
            wire::write_migrate(&mut conn.control_queue.frames, &points, on.id, migrate, flags);
        }
    }

    /// Handles MIGRATE with ACK, the answer.
    pub(crate) fn on_migrate_ack(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        migrate: Migrate,
        end: EndStream,
    ) -> Result<(), InputError> {
        let at = StreamAddr { conn: conn_id, id: stream_id };
        let Some(key) = self.key_at(conn_id, stream_id) else {
            return self.on_stray_answer(at, migrate);
        };
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        match stream.binding.on_answer(at, migrate.dst)? {
            Answer::OfferDeclined => {
                stream.offered_role = None;
                self.events.push_back(Event::MigrationDeclined { stream: key });
                self.apply_barrier_end(now, key, end)
            }
            Answer::Declined(open) => self.on_decline(now, key, *open, end),
            Answer::Accepted(open) => self.on_accept(now, key, *open, end),
        }
    }

    /// Handles an answer for a stream that has ended here (SMIG-2.7/stray-answer,
    /// SMIG-8.3/reset-remembered).
    fn on_stray_answer(&mut self, at: StreamAddr, migrate: Migrate) -> Result<(), InputError> {
        let pending =
            self.conns.find_known_mut(at.conn).and_then(|conn| conn.take_pending_answer(at.id));
        if let Some(pending) = pending {
            if let Some(code) = pending.on_answer(migrate.dst)? {
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
    fn on_accept(
        &mut self,
        now: Instant,
        key: StreamKey,
        open: OpenMigration,
        end: EndStream,
    ) -> Result<(), InputError> {
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        let from = stream.binding.recv_addr();
        stream.send.on_barrier_accepted();
        let received = stream.recv.received_bytes();
        self.rebind(key, open.to, Mover::Local);
        self.events.push_back(Event::Migrated {
            stream: key,
            from: from.conn,
            to: open.to.conn,
            mover: Mover::Local,
            recv_offset: received,
        });
        let barrier_result = self.apply_barrier_end(now, key, end);
        // Apply or drop the buffered frames, even if the barrier's END_STREAM caused an error.
        let early_result = self.apply_early_frames(now, key, open.to, open.early_frames);
        barrier_result.and(early_result)?;
        self.finish_if_complete(key);
        let complete = self.streams.find(key).is_none_or(Stream::is_complete);
        if !complete && self.conns.find(open.to.conn).is_none_or(Connection::is_dead) {
            // The connection was lost before the answer; the stream fails only now
            // (SMIG-8.9/c2-ends-early, SMIG-8.10/c2-ends-late), or has to be resumed.
            self.on_bound_to_ended(key, open.to.conn);
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
        // A stream that has ended meanwhile needs no end.
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        if !end.is_end() || stream.has_failed() || stream.recv.state() == RecvState::Ended {
            return Ok(());
        }
        match stream.recv.on_end() {
            Ok(()) => {
                self.signal_readable(key);
                self.finish_if_complete(key);
                Ok(())
            }
            Err(cause) => self.fail_by_peer_error(now, key, cause),
        }
    }

    /// Handles a decline: both directions resume at their barriers on the old connection
    /// (SMIG-6.8/resume, SMIG-6.9/lost-bytes, SMIG-6.10/lost-credit, SMIG-6.11/close-abandoned).
    fn on_decline(
        &mut self,
        now: Instant,
        key: StreamKey,
        open: OpenMigration,
        end: EndStream,
    ) -> Result<(), InputError> {
        let (increments, is_stopped) = (open.increments_on_carrier, open.early_frames.is_stopped());
        let from = self.undo_migration(key, open);
        if increments > 0 {
            self.send_window_update(key, increments);
        }
        self.events.push_back(Event::MigrationDeclined { stream: key });
        self.apply_barrier_end(now, key, end)?;
        if is_stopped && let Some(from) = from {
            // Repeat the reset of the carrier on S1 (SMIG-8.3/reset-remembered).
            self.queue_reset(from, ErrorCode::NoError);
            let charge = self.reset_budget.debit(Offence::Reset);
            self.fail_by_peer_reset(key, from, ErrorCode::NoError, charge);
        }
        self.finish_if_complete(key);
        self.stop_if_due(key);
        Ok(())
    }

    /// Returns the stream to its old address, because its migration was declined or abandoned. The
    /// caller sends the credit of the carrier again (SMIG-6.10/lost-credit). Returns the address.
    pub(crate) fn undo_migration(
        &mut self,
        key: StreamKey,
        open: OpenMigration,
    ) -> Option<StreamAddr> {
        self.unschedule(key);
        let stream = self.streams.find_known_mut(key)?;
        let from = stream.binding.recv_addr();
        let window = self.conns.find_known(from.conn)?.peer_settings.initial_window;
        let carrier_used = stream.has_used_carrier(&open);
        let OpenMigration { to, early_frames: early, initial_window, .. } = open;
        if stream.binding.adjusts_send_window(from.conn) {
            // Overflows only if the peer violates flow control; the window is then left as it is
            // (SMIG-7.5/undone-barrier).
            let delta = i64::from(window) - i64::from(initial_window);
            let _ignored_overflow = stream.send.window.adjust(delta);
        }
        let heads = stream.send.undo_barrier();
        self.unmap(to);
        self.return_credit(to.conn, early.into_credit());
        if carrier_used {
            // SMIG-6.11/close-abandoned
            self.queue_reset(to, ErrorCode::Cancel);
        }
        self.ignore_late_frames(to);
        for head in heads {
            self.frame_kept_head(key, &head);
        }
        self.schedule(key);
        Some(from)
    }

    /// Handles the loss of a stream's connection, or of C1 or C2 of an open migration.
    pub(crate) fn on_stream_connection_lost(&mut self, key: StreamKey, lost_conn: ConnId) {
        if self.on_carrier_ended(key, lost_conn) {
            return;
        }
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let both_ended = stream.has_ended_both_directions();
        match stream.binding.on_connection_lost(lost_conn, both_ended) {
            LossEffect::AwaitAnswer => self.unschedule(key),
            LossEffect::Fail => self.fail_with_connection(key, lost_conn),
            LossEffect::Complete(open) => {
                stream.send.on_barrier_accepted();
                // If the follower accepts, its stream is on the carrier.
                self.rebind(key, open.to, Mover::Local);
                self.drop_early_frames(*open);
                self.finish_if_complete(key);
            }
        }
    }

    /// Sends the resets that are due when a stream ends during an open migration, and records what
    /// its answer requires. Does nothing without an open migration.
    pub(crate) fn end_migration(&mut self, key: StreamKey, end_kind: EndBeforeAnswer) {
        let Some(stream) = self.streams.find_known(key) else { return };
        let Some(open) = stream.binding.open_migration() else { return };
        let (s1, s2, dst) = (stream.binding.recv_addr(), open.to, open.dst());
        let DueResets { reset_s2, reset_s1_on_decline: on_decline } =
            open.on_end_before_answer(end_kind, stream.has_used_carrier(open));
        if let Some(code) = reset_s2 {
            self.queue_reset(s2, code);
        }
        // No answer arrives on a connection that has ended.
        if let Some(c1) = self.conns.find_live_mut(s1.conn) {
            c1.pending_answers.push(PendingAnswer {
                s1: s1.id,
                dst,
                reset_s1_on_decline: on_decline,
            });
        }
    }

    /// Drops the frames that waited for the answer. A MIGRATE among them must be answered itself
    /// (SMIG-5.10/always-answer).
    pub(crate) fn drop_early_frames(&mut self, open: OpenMigration) {
        let OpenMigration { to, early_frames: early, .. } = open;
        early.into_items().into_iter().for_each(|item| self.drop_early_frame(to, item));
    }
}
