//! The follower: receives MIGRATE, answers with its own barrier, and follows immediately.

use crate::conn::{Charge, Connection, IdState, Membership, Offence};
use crate::error::{Cause, InputError};
use crate::ids::{Cid, ConnId, StreamAddr, StreamId};
use crate::migrate::{
    Collision, DeferredMigrate, MigrationState, Mover, NamedCarrier, OfferResponse,
    StrayMigrateResponse, check_migrate, on_stray_migrate,
};
use crate::session::{Event, Session};
use crate::stream::{RecvState, StreamKey};
use crate::time::Instant;
use crate::wire::{EndStream, Migrate, flag};

impl Session {
    /// Handles MIGRATE without ACK.
    pub(crate) fn on_migrate(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        migrate: Migrate,
        end: EndStream,
    ) -> Result<(), InputError> {
        if !self.conns.find(conn_id).is_some_and(Connection::accepts_migrate) {
            return Err(Cause::BadMigrate.into());
        }
        let s2 = migrate.dst.and_then(|(cid, id)| self.key_at(self.conn_by_cid(cid)?, id));
        check_migrate(self.side, migrate, s2.is_some())?;
        let from = StreamAddr { conn: conn_id, id: stream_id };
        let Some(key) = self.key_at(conn_id, stream_id) else {
            return self.on_stray_migrate(now, from, migrate);
        };
        if let Some(early) = self.early_frames_at(key, conn_id, stream_id) {
            return Ok(early.push_migrate(migrate, end)?);
        }
        self.check_barrier(from)?;
        self.count_reply(conn_id)?;
        self.apply_migrate(now, key, from, migrate, end)
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
        self.check_resumed(key, from.id)?;
        let Some(dst) = migrate.dst else { return self.on_offer(now, key) };
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        match stream.binding.on_migrate(self.side) {
            Collision::None => self.follow(now, key, from, dst, end),
            Collision::AnswersOffer => {
                stream.was_offered_or_declined = false;
                self.follow(now, key, from, dst, end)
            }
            Collision::LocalPrevails => {
                self.drop_carrier(dst);
                self.reset_budget.charge(now, Offence::Refused).1?;
                self.apply_barrier_end(now, key, end)
            }
            Collision::LocalYields(open) => {
                let increments = open.increments_on_carrier;
                self.undo_migration(key, *open);
                self.follow(now, key, from, dst, end)?;
                if increments > 0 {
                    self.send_window_update(key, increments);
                }
                Ok(())
            }
        }
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
        self.count_reply(at.conn)?;
        let charge = self.charge_decline(now)?;
        if migrate.dst.is_none() && !self.end_of_stray(at).is_end() {
            // RESUME has voided the offer, which may have crossed a MIGRATE that answered it (SMIG-13.7/earlier-void).
            return Ok(());
        }
        let own_pending = self.conns.find(at.conn).and_then(|conn| conn.pending_answer(at.id));
        let carrier = migrate.dst.and_then(|dst| self.named_carrier(at, dst));
        let response = on_stray_migrate(self.side, migrate, own_pending, carrier);
        if let Some(dst) = migrate.dst {
            self.drop_carrier(dst);
        }
        if response != StrayMigrateResponse::LocalPrevails
            && let Some(conn) = self.conns.find_mut(at.conn)
        {
            // The server will not answer the client's own MIGRATE.
            conn.take_pending_answer(at.id);
        }
        match response {
            StrayMigrateResponse::LocalPrevails => {}
            StrayMigrateResponse::AcceptAndReset(carrier, code) => {
                self.send_migrate(at, migrate, flag::SMIG_ACK);
                self.queue_reset(carrier, code);
            }
            StrayMigrateResponse::Decline { reset } => {
                if let Some(code) = reset {
                    self.queue_reset(at, code);
                }
                self.decline(at, self.end_of_stray(at), charge);
            }
        }
        Ok(())
    }

    /// Charges the peer for a move that is about to be declined.
    fn charge_decline(&mut self, now: Instant) -> Result<Charge, InputError> {
        let (charge, paid) = self.reset_budget.charge(now, Offence::Refused);
        paid?;
        Ok(charge)
    }

    /// Declines a MIGRATE, for which the peer was charged.
    pub(crate) fn decline(&mut self, at: StreamAddr, end: EndStream, Charge { .. }: Charge) {
        self.send_migrate(at, Migrate { dst: None }, flag::SMIG_ACK | end.flag());
    }

    /// Drops a carrier that will never be bound: its buffered frames and those that still arrive
    /// are dropped and credited (SMIG-5.27/abandoned-dropped).
    pub(super) fn drop_carrier(&mut self, (cid, s2): (Cid, StreamId)) {
        // A destination on no connection of the session has no carrier.
        let Some(conn_id) = self.conn_by_cid(cid) else { return };
        let early = self.conns.find_mut(conn_id).and_then(|conn| conn.unbound_carriers.remove(s2));
        if let Some(early) = early {
            self.return_credit(conn_id, early.into_credit());
        }
        self.ignore_late_frames(StreamAddr { conn: conn_id, id: s2 });
    }

    /// Handles an offer (SMIG-6.2/offer-answered).
    fn on_offer(&mut self, now: Instant, key: StreamKey) -> Result<(), InputError> {
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        let at = stream.binding.send_addr();
        let c1_joined = self.conns.find(at.conn).is_some_and(Connection::is_joined);
        match stream.binding.on_offer(stream.was_offered_or_declined, c1_joined)? {
            OfferResponse::AlreadyAnswered => {}
            OfferResponse::AskApplication => {
                self.events.push_back(Event::MigrationOffered { stream: key });
            }
            OfferResponse::Decline => {
                let send_end = stream.send.end_stream_flag();
                let charge = self.charge_decline(now)?;
                self.decline(at, send_end, charge);
            }
        }
        Ok(())
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
        if stream.binding.decline_offer() {
            stream.was_offered_or_declined = true;
            let (addr, send_end) = (stream.binding.send_addr(), stream.send.end_stream_flag());
            let charge = self.reset_budget.debit(Offence::Refused);
            self.decline(addr, send_end, charge);
        }
    }

    /// Follows a MIGRATE, declines it, or buffers it until the JOIN of its destination is answered.
    fn follow(
        &mut self,
        now: Instant,
        key: StreamKey,
        from: StreamAddr,
        dst: (Cid, StreamId),
        end: EndStream,
    ) -> Result<(), InputError> {
        if let Some(joining) = self.conn_by_cid(dst.0).and_then(|id| self.conns.find_mut(id))
            && matches!(joining.membership, Membership::Joining { .. })
        {
            // SMIG-5.12/join-pending
            let migrate = Migrate { dst: Some(dst) };
            joining.deferred_migrates.push(DeferredMigrate {
                from,
                migrate,
                end,
                window_adjustment: 0,
            });
            return Ok(());
        }
        let carrier = self.claim_carrier(now, key, from, dst);
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        let (send_end, received) = (stream.send.end_stream_flag(), stream.recv.received_bytes());
        let carrier_role = stream.offered_role.take().unwrap_or(self.carrier_role);
        let Some(to) = carrier else {
            let charge = self.charge_decline(now)?;
            self.drop_carrier(dst);
            self.decline(from, send_end, charge);
            self.apply_barrier_end(now, key, end)?;
            self.finish_if_complete(key);
            return Ok(());
        };
        self.unschedule(key);
        self.send_migrate(from, Migrate { dst: Some(dst) }, flag::SMIG_ACK | send_end.flag());
        self.keep_answer(key, from.conn);
        if let Some(c1) = self.conns.find_known_mut(from.conn) {
            c1.departed_stream_needs_output = true;
        }
        self.rebind(key, to, Mover::Peer);
        let c2 = self.conns.find_known_mut(to.conn);
        let early_frames = c2.and_then(|c2| {
            c2.set_carrier_role(carrier_role);
            c2.peer_ids.mark_used(to.id);
            c2.unbound_carriers.remove(to.id)
        });
        self.events.push_back(Event::Migrated {
            stream: key,
            from: from.conn,
            to: to.conn,
            mover: Mover::Peer,
            recv_offset: received,
        });
        let mut result = self.apply_barrier_end(now, key, end);
        if let Some(early) = early_frames {
            let early_result = self.apply_early_frames(now, key, to, early);
            result = result.and(early_result);
        }
        self.schedule(key);
        self.finish_if_complete(key);
        result
    }

    /// Charges the migration budget. Returns the carrier's address if this side can use it and
    /// neither the stream nor the session moves too often; `None` means decline
    /// (SMIG-5.13/must-decline).
    fn claim_carrier(
        &mut self,
        now: Instant,
        key: StreamKey,
        from: StreamAddr,
        dst: (Cid, StreamId),
    ) -> Option<StreamAddr> {
        let max_migrations = self.config.smig.as_ref()?.max_migrations_per_stream;
        let to = self.named_carrier(from, dst)?;
        let stream = self.streams.find_known(key)?;
        if stream.binding.migration_count() >= max_migrations || !self.migration_budget.take(now, 1)
        {
            self.events.push_back(Event::LimitHit { conn: from.conn, limit: "migrations" });
            return None;
        }
        Some(to)
    }

    /// Returns the address of the carrier that a MIGRATE on `from` names, if it may be used.
    fn named_carrier(&self, from: StreamAddr, (cid, s2): (Cid, StreamId)) -> Option<StreamAddr> {
        let c2 = self.conns.find(self.conn_by_cid(cid)?)?;
        let carrier = NamedCarrier {
            c1: from.conn,
            c1_joined: self.conns.find(from.conn).is_some_and(Connection::is_joined),
            c2: c2.id,
            c2_joined: c2.is_joined(),
            s2,
            s2_closed: matches!(c2.peer_ids.state(s2), IdState::Ignored | IdState::Closed),
            goaway_last_id: c2.goaway.sent_last_id,
        };
        carrier.usable_addr()
    }

    /// Rejects frames of a stream after a MIGRATE that is buffered until a JOIN is answered
    /// (SMIG-5.19/behind-barrier).
    pub(crate) fn check_barrier(&self, at: StreamAddr) -> Result<(), InputError> {
        if self.is_deferred(at) {
            return Err(InputError::Stream(at.id, Cause::StreamClosed));
        }
        Ok(())
    }

    /// Returns whether a MIGRATE that was read at `at` waits for a JOIN (SMIG-5.12/join-pending).
    pub(crate) fn is_deferred(&self, at: StreamAddr) -> bool {
        self.conns.iter().flat_map(|conn| &conn.deferred_migrates).any(|wait| wait.from == at)
    }

    /// Processes the moves that waited for the JOIN of this connection: it was answered, or the
    /// connection was closed.
    pub(crate) fn process_deferred_migrates(&mut self, now: Instant, conn_id: ConnId) {
        let waiting =
            self.conns.find_mut(conn_id).map(|conn| core::mem::take(&mut conn.deferred_migrates));
        for DeferredMigrate { from, migrate, end, window_adjustment } in waiting.unwrap_or_default()
        {
            let result = match self.key_at(from.conn, from.id) {
                Some(key) => {
                    let result = self.apply_migrate(now, key, from, migrate, end);
                    if let Some(stream) = self.streams.find_mut(key)
                        && stream.binding.adjusts_recv_window(from.conn)
                        && let Some(increment) = stream.recv.window.adjust(window_adjustment)
                    {
                        self.send_window_update(key, increment);
                    }
                    result
                }
                None => self.on_stray_migrate(now, from, migrate),
            };
            if let Err(error) = result {
                self.on_input_error(now, from.conn, error);
            }
        }
    }

    pub(crate) fn has_recv_ended(&self, key: StreamKey) -> bool {
        self.streams.find(key).is_none_or(|stream| stream.recv.state() == RecvState::Ended)
    }
}
