//! Frames that overtook their barrier: keeping them, and handing them on when it comes
//! (SMIG-5.15/kept-in-order).

use crate::conn::{ConnId, Connection, Early, EarlyItem, Offence};
use crate::error::{Cause, ErrorCode, Fault};
use crate::migrate::HandOver;
use crate::session::{Event, Session};
use crate::stream::{Chunk, Route, Stream, StreamKey};
use crate::time::Instant;
use crate::wire::{EndStream, StreamId};

impl Session {
    /// Where a frame on `id` of `conn` must wait, if it stands behind a barrier that has not come:
    /// at the mover, the follower's frames on the carrier.
    pub(crate) fn early_of(
        &mut self,
        key: StreamKey,
        conn: ConnId,
        id: StreamId,
    ) -> Option<&mut Early> {
        let stream = self.streams.find_mut(key)?;
        match &mut stream.hand_over {
            HandOver::Moving(moving) if moving.to == (Route { conn, id }) => {
                Some(&mut moving.early)
            }
            HandOver::Moving(_)
            | HandOver::Settled
            | HandOver::Offered
            | HandOver::OfferReceived => None,
        }
    }

    /// The carrier that no MIGRATE has named yet, opened by this frame; `None` if it was refused
    /// because there are too many (SMIG-5.23/unbound-count).
    pub(crate) fn unbound(
        &mut self,
        now: Instant,
        id: ConnId,
        carrier: StreamId,
    ) -> Result<Option<&mut Early>, Fault> {
        self.arm(now);
        let tolerated = self.config.smig.as_ref().map_or(0, |smig| smig.tolerated as usize);
        let total: usize = self.conns.iter().map(|conn| conn.carriers.len()).sum();
        let conn = self.conn_mut(id).ok_or(Cause::Internal)?;
        if conn.carriers.find(carrier).is_none() {
            if total >= tolerated {
                self.events.push_back(Event::LimitHit { conn: id, limit: "unbound carriers" });
                self.close_unbound(Route { conn: id, id: carrier }, Some(ErrorCode::RefusedStream));
                self.reset_budget.charge(now, Offence::Refused).1?;
                return self.count_reset(id).map(|()| None);
            }
            conn.carriers.open(carrier, now);
        }
        Ok(self.conn_mut(id).and_then(|conn| conn.carriers.find(carrier)))
    }

    /// Whether `id`, which names no stream, may be an unbound carrier that the peer picked.
    pub(crate) fn may_be_carrier(&self, conn: ConnId, id: StreamId) -> bool {
        self.is_peers(id) && self.conn(conn).is_some_and(Connection::may_be_named)
    }

    /// Hands on what waited behind the barrier that has come.
    pub(crate) fn apply_early(
        &mut self,
        now: Instant,
        key: StreamKey,
        at: Route,
        early: Early,
    ) -> Result<(), Fault> {
        let mut paid = Ok(());
        if early.credit > 0
            && let Err(cause) = self.add_stream_credit(key, early.credit)
        {
            paid = self.fail_by_fault(now, key, cause);
        }
        for item in early.into_items() {
            if self.streams.find(key).is_none_or(Stream::is_over) {
                self.drop_item(at, item);
                continue;
            }
            let done = match item {
                EarlyItem::Section(section, end) => self.apply_section(now, key, *section, end),
                EarlyItem::Data(chunk, end) => self.apply_data(key, chunk, end),
                EarlyItem::Gathered(buf, credit, padding) => {
                    let chunk = Chunk { data: buf.into(), padding, conn: at.conn, credit };
                    self.apply_data(key, chunk, EndStream::No)
                }
                EarlyItem::Migrate(migrate, end) => {
                    if let Err(fault) = self.apply_migrate(now, key, at, migrate, end) {
                        // Of the connection on which it came.
                        self.on_fault(now, at.conn, fault);
                    }
                    Ok(())
                }
                EarlyItem::Stop => {
                    let charge = self.reset_budget.debit(Offence::Reset);
                    self.fail_by_peer(key, at, ErrorCode::NoError, charge);
                    Ok(())
                }
            };
            if let Err(cause) = done {
                let failed = self.fail_by_fault(now, key, cause);
                paid = paid.and(failed);
            }
        }
        paid
    }

    /// Lets go of what waited, for the stream is over.
    pub(crate) fn drop_item(&mut self, at: Route, item: EarlyItem) {
        match item {
            EarlyItem::Data(Chunk { credit, .. }, _) | EarlyItem::Gathered(_, credit, _) => {
                self.give_back_to(at.conn, credit);
            }
            EarlyItem::Section(..) | EarlyItem::Stop => {}
            EarlyItem::Migrate(..) => {
                let charge = self.reset_budget.debit(Offence::Refused);
                self.decline(at, EndStream::Yes, charge);
            }
        }
    }

    /// An unbound carrier holds too much, or goes on behind its end.
    pub(crate) fn refuse_unbound(&mut self, at: Route, cause: Cause) -> Result<(), Fault> {
        self.events.push_back(Event::LimitHit { conn: at.conn, limit: cause.describe() });
        self.close_unbound(at, Some(cause.code()));
        self.count_answer(at.conn)
    }

    /// An unbound carrier ends: its time is over, it holds too much, goes on behind its end, or the
    /// peer reset it (SMIG-5.24/unbound-timeout, SMIG-5.22/unbound-bytes, SMIG-5.31/ended-carrier,
    /// SMIG-5.25/unbound-reset).
    pub(crate) fn close_unbound(&mut self, at: Route, tell: Option<ErrorCode>) {
        let early = self.conn_mut(at.conn).and_then(|conn| conn.carriers.take(at.id));
        if let Some(early) = early {
            self.give_back_to(at.conn, early.into_credit());
        }
        if let Some(code) = tell {
            self.queue_reset(at, code);
        }
        self.ignore_from_peer(at);
    }
}
