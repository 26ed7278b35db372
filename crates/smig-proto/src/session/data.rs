//! DATA frames, and the flow-control credit that they use.

use bytes::Bytes;

use crate::body::Chunk;
use crate::conn::IdState;
use crate::error::{Cause, InputError};
use crate::flow::Credit;
use crate::ids::{ConnId, StreamAddr, StreamId};
use crate::session::{Event, Session};
use crate::stream::{KeyState, RecvState, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream};

impl Session {
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        data: Bytes,
        charged_bytes: u32,
        end: EndStream,
    ) -> Result<(), InputError> {
        if data.is_empty() && !end.is_end() {
            self.count_empty_frame(conn_id)?;
        }
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let Some(mut credit) = conn.recv_window.charge(charged_bytes) else {
            return Err(Cause::ConnectionWindowExceeded.into());
        };
        let data = conn.input_tracker.make_body(data);
        conn.data_bytes_received += data.len() as u64;
        if !data.is_empty() {
            conn.abuse.reset_runs();
        }
        // Padding is consumed on arrival. Even without padding, returned credit may be due now,
        // because the window is smaller.
        let padding =
            charged_bytes - u32::try_from(data.len()).unwrap_or(charged_bytes).min(charged_bytes);
        let used = credit.split(padding);
        self.return_credit(conn_id, used);
        let chunk = Chunk { data, padding, conn: conn_id, credit };
        let Some(key) = self.key_at(conn_id, stream_id) else {
            return self.on_stray_data(now, conn_id, stream_id, chunk, end);
        };
        // The stream's window is charged when the data is applied.
        let found = self.streams.find_known(key);
        let window = found.map_or(0, |stream| stream.recv.window.value());
        if let Some(early) = self.early_frames_at(key, conn_id, stream_id) {
            let Err((cause, credit)) = early.push_data(chunk, end, window) else { return Ok(()) };
            self.return_credit(conn_id, credit);
            return Err(InputError::Stream(stream_id, cause));
        }
        if let Err(error) = self.check_barrier(StreamAddr { conn: conn_id, id: stream_id }) {
            self.return_credit(conn_id, chunk.credit);
            return Err(error);
        }
        self.apply_data(key, chunk, end).map_err(|cause| InputError::Stream(stream_id, cause))
    }

    /// Handles DATA on an ID that has no stream.
    fn on_stray_data(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        chunk: Chunk,
        end: EndStream,
    ) -> Result<(), InputError> {
        if self.vacated_key(StreamAddr { conn: conn_id, id: stream_id }).is_some() {
            self.return_credit(conn_id, chunk.credit);
            return Err(InputError::Stream(stream_id, Cause::StreamClosed));
        }
        match self.id_state(conn_id, stream_id) {
            IdState::Ignored => {
                self.return_credit(conn_id, chunk.credit);
                Ok(())
            }
            IdState::Closed => {
                chunk.credit.forfeit();
                Err(Cause::StreamClosed.into())
            }
            IdState::Idle | IdState::Skipped => {
                // A client sends nothing until the ACK (SMIG-5.6/client-holds), so only a
                // client can receive DATA on an unknown carrier.
                if self.side == crate::ids::Side::Server || !self.may_be_carrier(conn_id, stream_id)
                {
                    chunk.credit.forfeit();
                    return Err(Cause::IdleStream.into());
                }
                let window = self.largest_window();
                let early_frames =
                    match self.find_or_create_unbound_carrier(now, conn_id, stream_id) {
                        Ok(Some(early)) => early,
                        Ok(None) => {
                            self.return_credit(conn_id, chunk.credit);
                            return Ok(());
                        }
                        Err(error) => {
                            chunk.credit.forfeit();
                            return Err(error);
                        }
                    };
                let Err((cause, credit)) = early_frames.push_data(chunk, end, window) else {
                    return Ok(());
                };
                self.return_credit(conn_id, credit);
                self.refuse_unbound_carrier(StreamAddr { conn: conn_id, id: stream_id }, cause)
            }
        }
    }

    /// Returns the limit for the data of an unbound carrier: the largest window of any stream,
    /// because the carrier's stream is unknown (SMIG-5.22/unbound-bytes). It may be a stream that
    /// was reset here, if the mover has not received the reset, or one whose HEADERS or
    /// PUSH_PROMISE has not arrived yet.
    fn largest_window(&self) -> i64 {
        let windows = self.streams.iter().map(|(_, stream)| stream.recv.window.value());
        let new_stream_window = i64::from(self.config.stream_window);
        windows.fold(new_stream_window.max(self.max_reset_window), i64::max)
    }

    /// Applies DATA in stream order.
    pub(crate) fn apply_data(
        &mut self,
        key: StreamKey,
        chunk: Chunk,
        end: EndStream,
    ) -> Result<(), Cause> {
        let conn_id = chunk.conn;
        let Some(stream) = self.streams.find_known_mut(key) else {
            self.return_credit(conn_id, chunk.credit);
            return Ok(());
        };
        let error = match stream.recv.state() {
            // The answer to RESUME comes first.
            _ if stream.is_resuming() => Some(Cause::BadResume),
            RecvState::Head => Some(Cause::DataBeforeHeaders),
            RecvState::Ended => Some(Cause::HalfClosed),
            RecvState::Body => None,
        };
        if let Some(cause) = error {
            self.return_credit(conn_id, chunk.credit);
            return Err(cause);
        }
        let due_increment = match stream.recv.on_data(chunk) {
            Ok(due) => due,
            Err((cause, credit)) => {
                self.return_credit(conn_id, credit);
                return Err(cause);
            }
        };
        if end.is_end() {
            stream.recv.on_end()?;
        }
        let is_discarding = matches!(stream.key_state, KeyState::Discarding(_));
        if let Some(increment) = due_increment {
            self.send_window_update(key, increment);
        }
        if is_discarding {
            self.discard_unread(key);
        } else {
            self.signal_readable(key);
        }
        if end.is_end() {
            self.finish_if_complete(key);
        }
        Ok(())
    }

    pub(crate) fn signal_readable(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if !stream.recv.is_notified {
            stream.recv.is_notified = true;
            self.events.push_back(Event::Readable { stream: key });
        }
    }

    /// Returns credit to a connection, if it still exists, and sends a WINDOW_UPDATE if it is due.
    pub(crate) fn return_credit(&mut self, conn_id: ConnId, credit: Credit) {
        let Some(conn) = self.conns.find_live_mut(conn_id) else {
            return credit.forfeit();
        };
        if let Some(increment) = conn.recv_window.give_back(credit) {
            wire::write_window_update(
                &mut conn.control_queue.frames,
                StreamId::CONNECTION,
                increment,
            );
        }
    }

    /// Sends a WINDOW_UPDATE for a stream, on the stream's current address (SMIG-7.2/credit-on-s2).
    /// Does nothing if the stream, or the peer's direction, has ended meanwhile.
    pub(crate) fn send_window_update(&mut self, key: StreamKey, increment: u32) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if stream.has_failed()
            || stream.recv.state() == RecvState::Ended
            // RESUME will tell it.
            || stream.binding.is_adrift()
        {
            return;
        }
        stream.binding.on_window_update_sent(increment);
        let addr = stream.binding.send_addr();
        if let Some(conn) = self.conns.find_live_mut(addr.conn) {
            wire::write_window_update(&mut conn.control_queue.frames, addr.id, increment);
        }
    }

    pub(crate) fn on_window_update(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        increment: u32,
    ) -> Result<(), InputError> {
        if stream_id.is_connection() {
            let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
            conn.send_window.add(increment)?;
            for key in core::mem::take(&mut conn.blocked_streams) {
                if let Some(stream) = self.streams.find_known_mut(key) {
                    let scheduled_conn_id = stream.binding.take_scheduled();
                    debug_assert_eq!(
                        scheduled_conn_id,
                        Some(conn_id),
                        "a blocked stream counts as scheduled"
                    );
                }
                self.schedule(key);
            }
            return Ok(());
        }
        if let Some(key) = self.key_at(conn_id, stream_id) {
            self.check_barrier(StreamAddr { conn: conn_id, id: stream_id })?;
            self.check_resumed(key, stream_id)?;
            let added = self.grow_send_window(key, increment.into());
            return added.map_err(|cause| InputError::Stream(stream_id, cause));
        }
        if self.vacated_key(StreamAddr { conn: conn_id, id: stream_id }).is_some() {
            return Err(InputError::Stream(stream_id, Cause::StreamClosed));
        }
        match self.id_state(conn_id, stream_id) {
            IdState::Ignored | IdState::Closed => Ok(()),
            IdState::Idle | IdState::Skipped if self.may_be_carrier(conn_id, stream_id) => {
                let Some(early) = self.find_or_create_unbound_carrier(now, conn_id, stream_id)?
                else {
                    return Ok(());
                };
                early.window_increments = early.window_increments.saturating_add(increment.into());
                Ok(())
            }
            IdState::Skipped => Ok(()),
            IdState::Idle => Err(Cause::IdleStream.into()),
        }
    }

    /// Adds credit from the peer, unless the stream has ended meanwhile.
    pub(crate) fn grow_send_window(
        &mut self,
        key: StreamKey,
        total_increment: u64,
    ) -> Result<(), Cause> {
        let Some(stream) = self.streams.find_mut(key) else { return Ok(()) };
        let increment = u32::try_from(total_increment).map_err(|_| Cause::WindowOverflow)?;
        stream.send.window.add(increment)?;
        self.schedule(key);
        Ok(())
    }
}
