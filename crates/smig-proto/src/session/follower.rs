//! The follower: receives MIGRATE, answers with its own barrier, and follows immediately.

use crate::conn::{Charge, Connection, ConnectionRole, IdState, Membership, Offence};
use crate::error::{Cause, InputError};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};
use crate::migrate::{DeferredMigrate, MigrationState, Mover};
use crate::session::{Event, Session};
use crate::stream::{Offer, RecvState, StreamKey};
use crate::time::Instant;
use crate::wire::{EndStream, Migrate, flag};

impl Session {
    /// Handles MIGRATE without ACK.
    pub(crate) fn on_migrate(
        &mut self,
        now: Instant,
        conn: ConnId,
        id: StreamId,
        migrate: Migrate,
        end: EndStream,
    ) -> Result<(), InputError> {
        if !self.conn(conn).is_some_and(Connection::accepts_migrate) {
            return Err(Cause::BadMigrate.into());
        }
        if migrate.dst.is_none() && self.side == Side::Server {
            return Err(Cause::BadMigrate.into());
        }
        self.check_destination(migrate)?;
        let from = StreamAddr { conn, id };
        let Some(key) = self.key_at(conn, id) else {
            return self.on_stray_migrate(now, from, migrate);
        };
        if let Some(early) = self.early_of(key, conn, id) {
            return Ok(early.push_migrate(migrate, end)?);
        }
        self.check_barrier(from)?;
        self.count_answer(conn)?;
        self.apply_migrate(now, key, from, migrate, end)
    }

    /// Checks the ID of the destination: the mover may open it, and it is not in use
    /// (SMIG-2.6/bad-destination).
    fn check_destination(&self, migrate: Migrate) -> Result<(), InputError> {
        let Some((cid, sid)) = migrate.dst else { return Ok(()) };
        let in_use = self.conn_by_cid(cid).and_then(|conn| self.key_at(conn, sid)).is_some();
        if sid.is_connection() || !self.is_peers(sid) || in_use {
            return Err(Cause::BadMigrate.into());
        }
        Ok(())
    }

    /// Applies a MIGRATE in stream order.
    pub(crate) fn apply_migrate(
        &mut self,
        now: Instant,
        key: StreamKey,
        from: StreamAddr,
        migrate: Migrate,
        end: EndStream,
    ) -> Result<(), InputError> {
        let Some((cid, sid)) = migrate.dst else {
            return self.on_offer(now, key);
        };
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        match (stream.binding.migration(), self.side) {
            (MigrationState::Idle | MigrationState::OfferReceived, _) => {}
            (MigrationState::Offered, _) => {
                // The client's move answers the offer (SMIG-6.3/offer-stays-open).
                stream.binding.set_offer(Offer::None);
                stream.offered = false;
            }
            (MigrationState::Open(_), Side::Server) => {
                // The server's move takes precedence (SMIG-6.5/server-wins).
                self.drop_carrier(cid, sid);
                self.reset_budget.charge(now, Offence::Refused).1?;
                return self.apply_barrier_end(now, key, end);
            }
            (MigrationState::Open(_), Side::Client) => {
                let undone = self.return_to_old_route(key);
                let credit = undone.map_or(0, |undone| undone.credit);
                self.follow(now, key, from, (cid, sid), end)?;
                if credit > 0 {
                    self.send_stream_credit(key, credit);
                }
                return Ok(());
            }
        }
        self.follow(now, key, from, (cid, sid), end)
    }

    /// Handles MIGRATE for a stream that has ended here: declines it, like any MIGRATE that cannot
    /// be followed (SMIG-5.10/always-answer, SMIG-8.1/reset-crosses).
    fn on_stray_migrate(
        &mut self,
        now: Instant,
        at: StreamAddr,
        migrate: Migrate,
    ) -> Result<(), InputError> {
        if matches!(self.id_state(at.conn, at.id), IdState::Idle | IdState::Skipped) {
            return Err(Cause::IdleStream.into());
        }
        if self.vacated_key(at).is_some() {
            return Err(InputError::Stream(at.id, Cause::StreamClosed));
        }
        self.count_answer(at.conn)?;
        let charge = self.charge_refusal(now)?;
        let moving = self.conn(at.conn).is_some_and(|conn| conn.owes_answer(at.id));
        if moving && (self.side == Side::Server || migrate.dst.is_none()) {
            // This side's own move of the stream is open: a server's takes precedence
            // (SMIG-6.5/server-wins), a client's answers the offer (SMIG-6.2/offer-answered).
            if let Some((cid, sid)) = migrate.dst {
                self.drop_carrier(cid, sid);
            }
            return Ok(());
        }
        // A client gives up its own move, because the server will not answer it.
        let due = self.conn_mut(at.conn).and_then(|conn| conn.take_pending_answer(at.id));
        let reset = due.and_then(|due| due.reset);
        if let (Some(dst), Some(code)) = (migrate.dst, reset)
            && let Some(carrier) = self.named_carrier(at, dst)
        {
            // The reset must be sent on the server's carrier, where the stream is now
            // (SMIG-8.3/reset-remembered). No END_STREAM: the server must not take a truncated
            // request for a complete one.
            self.drop_carrier(dst.0, dst.1);
            self.send_migrate(at, migrate, flag::SMIG_ACK);
            self.queue_reset(carrier, code);
            return Ok(());
        }
        if let Some((cid, sid)) = migrate.dst {
            self.drop_carrier(cid, sid);
        }
        // Send the reset first: after the decline, it would be too late to revoke END_STREAM.
        if let Some(code) = reset {
            self.queue_reset(at, code);
        }
        self.decline(at, EndStream::Yes, charge);
        Ok(())
    }

    /// Charges the peer for a move that is about to be declined.
    fn charge_refusal(&mut self, now: Instant) -> Result<Charge, InputError> {
        let (charge, paid) = self.reset_budget.charge(now, Offence::Refused);
        paid?;
        Ok(charge)
    }

    /// Declines a MIGRATE, for which the peer was charged.
    pub(crate) fn decline(&mut self, at: StreamAddr, ended: EndStream, Charge { .. }: Charge) {
        self.send_migrate(at, Migrate { dst: None }, flag::SMIG_ACK | ended.flag());
    }

    /// Drops a carrier that will never be bound: its buffered frames and those that still arrive
    /// are dropped and credited (SMIG-5.27/abandoned-dropped).
    fn drop_carrier(&mut self, cid: Cid, sid: StreamId) {
        let Some(conn) = self.conn_by_cid(cid) else { return };
        let early = self.conn_mut(conn).and_then(|conn| conn.carriers.take(sid));
        if let Some(early) = early {
            self.give_back_to(conn, early.into_credit());
        }
        self.ignore_from_peer(StreamAddr { conn, id: sid });
    }

    /// Handles an offer (SMIG-6.2/offer-answered).
    fn on_offer(&mut self, now: Instant, key: StreamKey) -> Result<(), InputError> {
        let Some(stream) = self.streams.find(key) else { return Ok(()) };
        let joined = self.conn(stream.binding.send_addr().conn).is_some_and(Connection::is_joined);
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        match stream.binding.migration() {
            MigrationState::Idle if stream.offered || !joined => {
                // The stream was offered and declined before, and nothing has changed since
                // (SMIG-6.4/offered-once). Or its connection has left the session: such streams do
                // not move (SMIG-4.8/new-session).
                let (route, ended) = (stream.binding.send_addr(), stream.send.closed_flag());
                let charge = self.charge_refusal(now)?;
                self.decline(route, ended, charge);
                Ok(())
            }
            MigrationState::Idle => {
                stream.binding.set_offer(Offer::Received);
                self.events.push_back(Event::MigrationOffered { stream: key });
                Ok(())
            }
            // This side's own move stays open, and answers the offer.
            MigrationState::Open(_) => Ok(()),
            MigrationState::Offered | MigrationState::OfferReceived => {
                Err(Cause::BadMigrate.into())
            }
        }
    }

    /// Client: returns whether an offer of the stream has not been answered.
    #[must_use]
    pub fn has_offer(&self, key: StreamKey) -> bool {
        self.streams.find(key).is_some_and(|stream| {
            matches!(stream.binding.migration(), MigrationState::OfferReceived)
        })
    }

    /// Client: declines an offer.
    pub fn decline_offer(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if matches!(stream.binding.migration(), MigrationState::OfferReceived) {
            stream.binding.set_offer(Offer::None);
            stream.offered = true;
            let (route, ended) = (stream.binding.send_addr(), stream.send.closed_flag());
            let charge = self.reset_budget.debit(Offence::Refused);
            self.decline(route, ended, charge);
        }
    }

    /// Follows a MIGRATE, declines it, or buffers it until the JOIN of its destination is answered.
    fn follow(
        &mut self,
        now: Instant,
        key: StreamKey,
        from: StreamAddr,
        (cid, sid): (Cid, StreamId),
        end: EndStream,
    ) -> Result<(), InputError> {
        if let Some(joining) = self.conn_by_cid(cid).and_then(|id| self.conn_mut(id))
            && matches!(joining.membership, Membership::Joining { .. })
        {
            let migrate = Migrate { dst: Some((cid, sid)) };
            joining.deferred_migrates.push(DeferredMigrate { from, migrate, end, window_due: 0 });
            return Ok(());
        }
        let carrier = self.usable_carrier(now, key, from, (cid, sid));
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        stream.binding.set_offer(Offer::None);
        let ended = stream.send.closed_flag();
        let Some(to) = carrier else {
            let charge = self.charge_refusal(now)?;
            self.drop_carrier(cid, sid);
            self.decline(from, ended, charge);
            self.apply_barrier_end(now, key, end)?;
            self.after_direction(key);
            return Ok(());
        };
        self.unschedule(key);
        self.send_migrate(from, Migrate { dst: Some((cid, sid)) }, flag::SMIG_ACK | ended.flag());
        if let Some(conn) = self.conn_mut(from.conn) {
            conn.relied_on = true;
        }
        self.rebind(key, to, Mover::Peer);
        let early = self.conn_mut(to.conn).and_then(|conn| {
            conn.role = ConnectionRole::Bulk;
            conn.peer_ids.mark_used(sid);
            conn.streams.insert(sid, key);
            conn.carriers.take(sid)
        });
        let received = self.stream(key).map_or(0, |view| view.received);
        self.events.push_back(Event::Migrated {
            stream: key,
            from: from.conn,
            to: to.conn,
            mover: Mover::Peer,
            received,
        });
        let mut paid = self.apply_barrier_end(now, key, end);
        if let Some(early) = early {
            let early = self.apply_early(now, key, to, early);
            paid = paid.and(early);
        }
        self.schedule(key);
        self.after_direction(key);
        paid
    }

    /// Returns the carrier's route if this side can use it; `None` means decline
    /// (SMIG-5.13/must-decline).
    fn usable_carrier(
        &mut self,
        now: Instant,
        key: StreamKey,
        from: StreamAddr,
        (cid, sid): (Cid, StreamId),
    ) -> Option<StreamAddr> {
        let max_moves = self.config.smig.as_ref()?.max_moves;
        let to = self.named_carrier(from, (cid, sid))?;
        let moves = self.streams.find(key).map_or(u8::MAX, |stream| stream.binding.moves());
        if moves >= max_moves || !self.migration_budget.take(now, 1) {
            self.events.push_back(Event::LimitHit { conn: from.conn, limit: "migrations" });
            return None;
        }
        Some(to)
    }

    /// Returns the carrier's route if the destination is a valid carrier.
    fn named_carrier(&self, from: StreamAddr, (cid, sid): (Cid, StreamId)) -> Option<StreamAddr> {
        let id = self.conn_by_cid(cid)?;
        let conn = self.conn(id)?;
        let excluded = conn.goaway.sent.is_some_and(|last| sid > last);
        let former = !self.conn(from.conn).is_some_and(Connection::is_joined);
        if id == from.conn || former || !conn.is_joined() || excluded {
            return None;
        }
        let closed = matches!(conn.peer_ids.standing(sid), IdState::Ignored | IdState::Closed);
        (!closed).then_some(StreamAddr { conn: id, id: sid })
    }

    /// Rejects frames of a stream after a MIGRATE that is buffered until a JOIN is answered
    /// (SMIG-5.19/behind-barrier).
    pub(crate) fn check_barrier(&self, at: StreamAddr) -> Result<(), InputError> {
        let mut waiting = self.conns.iter().flat_map(|conn| &conn.deferred_migrates);
        if waiting.any(|waiting| waiting.from == at) {
            return Err(InputError::Stream(at.id, Cause::StreamClosed));
        }
        Ok(())
    }

    /// Processes the moves that waited for the JOIN of `id`: it was answered, or the connection was
    /// closed.
    pub(crate) fn release_waiting_moves(&mut self, now: Instant, id: ConnId) {
        let waiting = self.conn_mut(id).map(|conn| core::mem::take(&mut conn.deferred_migrates));
        for DeferredMigrate { from, migrate, end, window_due } in waiting.unwrap_or_default() {
            let done = match self.key_at(from.conn, from.id) {
                Some(key) => {
                    let done = self.apply_migrate(now, key, from, migrate, end);
                    if let Some(stream) = self.streams.find_mut(key)
                        && stream.binding.adjusts_recv_window(from.conn)
                        && let Some(increment) = stream.recv.window.adjust(window_due)
                    {
                        self.send_stream_credit(key, increment);
                    }
                    done
                }
                None => self.on_stray_migrate(now, from, migrate),
            };
            if let Err(fault) = done {
                self.on_input_error(now, from.conn, fault);
            }
        }
    }

    pub(crate) fn recv_ended(&self, key: StreamKey) -> bool {
        self.streams.find(key).is_none_or(|stream| stream.recv.state() == RecvState::Ended)
    }
}
