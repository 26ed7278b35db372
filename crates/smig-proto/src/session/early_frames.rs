//! Frames that arrived before their barrier: buffers them, and applies them when it arrives
//! (SMIG-5.15/kept-in-order).

use crate::body::Chunk;
use crate::conn::{Connection, Offence};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::{ConnId, StreamAddr, StreamId};
use crate::migrate::{EarlyFrame, EarlyFrames};
use crate::session::{Event, Session};
use crate::stream::{Stream, StreamKey};
use crate::time::Instant;
use crate::wire::EndStream;

impl Session {
    /// Returns the buffer for a frame on this stream ID, if its barrier has not arrived: at the
    /// mover, the follower's frames on the carrier.
    pub(crate) fn early_frames_at(
        &mut self,
        key: StreamKey,
        conn_id: ConnId,
        stream_id: StreamId,
    ) -> Option<&mut EarlyFrames> {
        let stream = self.streams.find_known_mut(key)?;
        stream.binding.early_frames_at(StreamAddr { conn: conn_id, id: stream_id })
    }

    /// Returns the buffer of a carrier that no MIGRATE has named yet; the first frame creates it.
    /// Returns `None` if it was refused because there are too many (SMIG-5.23/unbound-count).
    pub(crate) fn find_or_create_unbound_carrier(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        carrier: StreamId,
    ) -> Result<Option<&mut EarlyFrames>, InputError> {
        self.arm_tick(now);
        let max_open =
            self.config.smig.as_ref().map_or(0, |smig| smig.max_open_migrations as usize);
        let total: usize = self.conns.iter().map(|conn| conn.unbound_carriers.len()).sum();
        let conn = self.conns.find_known_mut(conn_id);
        let conn = conn.ok_or(Cause::Internal)?;
        if conn.unbound_carriers.find_mut(carrier).is_none() {
            if total >= max_open {
                self.events.push_back(Event::LimitHit { conn: conn_id, limit: "unbound carriers" });
                self.close_unbound_carrier(
                    StreamAddr { conn: conn_id, id: carrier },
                    Some(ErrorCode::RefusedStream),
                );
                self.reset_budget.charge(now, Offence::Refused).1?;
                return self.count_reset(conn_id).map(|()| None);
            }
            conn.unbound_carriers.insert(carrier, now);
        }
        Ok(self.conns.find_mut(conn_id).and_then(|conn| conn.unbound_carriers.find_mut(carrier)))
    }

    /// Returns whether `stream_id`, which has no stream, may be an unbound carrier that the peer
    /// chose.
    pub(crate) fn may_be_carrier(&self, conn_id: ConnId, stream_id: StreamId) -> bool {
        self.is_peer_id(stream_id)
            && self.conns.find(conn_id).is_some_and(Connection::accepts_migrate)
    }

    /// Applies the buffered frames after their barrier has arrived.
    pub(crate) fn apply_early_frames(
        &mut self,
        now: Instant,
        key: StreamKey,
        at: StreamAddr,
        early_frames: EarlyFrames,
    ) -> Result<(), InputError> {
        let mut charge_result = Ok(());
        if early_frames.window_increments > 0
            && let Err(cause) = self.grow_send_window(key, early_frames.window_increments)
        {
            charge_result = self.fail_by_peer_error(now, key, cause);
        }
        for item in early_frames.into_items() {
            if self.streams.find(key).is_none_or(Stream::has_failed) {
                self.drop_early_frame(at, item);
                continue;
            }
            let item_result = match item {
                EarlyFrame::Section(section, end) => self.apply_section(now, key, *section, end),
                EarlyFrame::Data(chunk, end) => self.apply_data(key, chunk, end),
                EarlyFrame::Coalesced(buf, credit, padding) => {
                    let chunk = Chunk { data: buf.into(), padding, conn: at.conn, credit };
                    self.apply_data(key, chunk, EndStream::No)
                }
                EarlyFrame::Migrate(migrate, end) => {
                    if let Err(error) = self.apply_migrate(now, key, at, migrate, end) {
                        // An error of the connection on which the frame arrived.
                        self.on_input_error(now, at.conn, error);
                    }
                    Ok(())
                }
                EarlyFrame::Stop => {
                    let charge = self.reset_budget.debit(Offence::Reset);
                    self.fail_by_peer_reset(key, at, ErrorCode::NoError, charge);
                    Ok(())
                }
            };
            if let Err(cause) = item_result {
                let failed = self.fail_by_peer_error(now, key, cause);
                charge_result = charge_result.and(failed);
            }
        }
        charge_result
    }

    /// Drops a buffered frame, because the stream has ended. DATA's credit is returned to the
    /// connection, and a MIGRATE is declined.
    pub(crate) fn drop_early_frame(&mut self, at: StreamAddr, item: EarlyFrame) {
        match item {
            EarlyFrame::Data(Chunk { credit, .. }, _) | EarlyFrame::Coalesced(_, credit, _) => {
                self.return_credit(at.conn, credit);
            }
            EarlyFrame::Section(..) | EarlyFrame::Stop => {}
            EarlyFrame::Migrate(..) => {
                let charge = self.reset_budget.debit(Offence::Refused);
                self.decline(at, self.end_of_stray(at), charge);
            }
        }
    }

    /// Closes an unbound carrier that exceeds a limit, or on which frames follow its end.
    pub(crate) fn refuse_unbound_carrier(
        &mut self,
        at: StreamAddr,
        cause: Cause,
    ) -> Result<(), InputError> {
        // Frames after its end exceed no limit (SMIG-5.31/ended-carrier).
        if !matches!(cause, Cause::HalfClosed | Cause::StreamClosed) {
            self.events.push_back(Event::LimitHit { conn: at.conn, limit: cause.describe() });
        }
        self.close_unbound_carrier(at, Some(cause.code()));
        self.count_reply(at.conn)
    }

    /// Closes an unbound carrier: its timeout has expired, it exceeds a limit, frames follow its
    /// end, or the peer reset it (SMIG-5.24/unbound-timeout, SMIG-5.22/unbound-bytes,
    /// SMIG-5.31/ended-carrier, SMIG-5.25/unbound-reset).
    pub(crate) fn close_unbound_carrier(&mut self, at: StreamAddr, reset: Option<ErrorCode>) {
        let early =
            self.conns.find_mut(at.conn).and_then(|conn| conn.unbound_carriers.remove(at.id));
        if let Some(early) = early {
            self.return_credit(at.conn, early.into_credit());
        }
        if let Some(code) = reset {
            self.queue_reset(at, code);
        }
        self.ignore_late_frames(at);
    }
}
