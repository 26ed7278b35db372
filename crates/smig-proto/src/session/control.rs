//! Frames that concern a connection: SETTINGS, PING, GOAWAY, PRIORITY_UPDATE.

use bytes::Bytes;

use crate::conn::{ConnState, Connection, IdState, Membership};
use crate::error::{Cause, ErrorCode, InputError};
use crate::flow::{INITIAL_WINDOW, MAX_WINDOW};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};
use crate::priority::Priority;
use crate::session::{Event, KeyingRequest, Session};
use crate::stream::StreamKey;
use crate::time::Instant;
use crate::wire::{self, MIN_MAX_FRAME_SIZE, Setting, SettingsPayload};

/// Payload of the PING between the two GOAWAY frames of a graceful shutdown (RFC 9113 section 6.8).
const DRAIN_PING: [u8; 8] = *b"smigdrai";

impl Session {
    pub(crate) fn on_settings(
        &mut self,
        now: Instant,
        id: ConnId,
        payload: &SettingsPayload,
    ) -> Result<(), InputError> {
        let limits = &self.config.limits;
        let (max_entries, max_frames) = (limits.max_settings_entries, limits.max_settings_frames);
        let points = self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        if payload.len() > max_entries || conn.abuse.settings_frames.exceeds(now, max_frames) {
            return Err(Cause::TooManySettings.into());
        }
        let is_first = matches!(conn.state, ConnState::Settings);
        for setting in payload.iter(points) {
            self.apply_setting(id, setting, is_first)?;
        }
        self.count_reply(id)?;
        if let Some(conn) = self.conns.known_mut(id) {
            wire::settings_ack(&mut conn.out.frames);
            if is_first {
                conn.state = ConnState::Open;
            }
        }
        if is_first {
            self.on_first_settings(now, id)?;
        }
        if core::mem::take(&mut self.open_blocked) {
            self.events.push_back(Event::StreamsAvailable);
        }
        Ok(())
    }

    fn apply_setting(
        &mut self,
        id: ConnId,
        setting: Setting,
        is_first: bool,
    ) -> Result<(), InputError> {
        let side = self.side;
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        match setting {
            Setting::HeaderTableSize(size) => conn.encoder.set_max_table_size(size as usize),
            Setting::EnablePush(value) => match (value, side) {
                (0, _) => conn.peer_settings.enable_push = false,
                (1, Side::Server) => conn.peer_settings.enable_push = true,
                (_, Side::Server | Side::Client) => return Err(Cause::BadEnablePush.into()),
            },
            Setting::MaxConcurrentStreams(max) => conn.peer_settings.max_concurrent_streams = max,
            Setting::InitialWindowSize(size) => return self.apply_initial_window(id, size),
            Setting::MaxFrameSize(size) => {
                if !(MIN_MAX_FRAME_SIZE..=0x00ff_ffff).contains(&size) {
                    return Err(Cause::BadMaxFrameSize.into());
                }
                conn.peer_settings.max_frame_size = size;
            }
            Setting::EnableConnectProtocol(value) => {
                if value > 1 || (value == 0 && conn.peer_settings.enable_connect_protocol) {
                    return Err(Cause::BadConnectProtocol.into());
                }
                conn.peer_settings.enable_connect_protocol = value == 1;
            }
            // Only the first SETTINGS negotiate the extension (SMIG-3.3/when-on).
            Setting::Smig(value) if is_first => conn.peer_settings.max_open_migrations = value,
            Setting::CidHi(word) if is_first => conn.peer_settings.cid[0] = Some(word),
            Setting::CidMid(word) if is_first => conn.peer_settings.cid[1] = Some(word),
            Setting::CidLo(word) if is_first => conn.peer_settings.cid[2] = Some(word),
            Setting::Smig(_) | Setting::CidHi(_) | Setting::CidMid(_) | Setting::CidLo(_) => {}
            // The limit is advisory: the application handles larger responses.
            Setting::MaxHeaderListSize(_) => {}
            Setting::NoRfc7540Priorities(_) | Setting::Unknown => {}
        }
        Ok(())
    }

    /// Adjusts the send windows of the streams that were opened on this connection and have not
    /// moved (SMIG-7.4/initial-window).
    fn apply_initial_window(&mut self, id: ConnId, size: u32) -> Result<(), InputError> {
        if size > MAX_WINDOW {
            return Err(Cause::BadInitialWindow.into());
        }
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        let by = i64::from(size) - i64::from(conn.peer_settings.initial_window);
        conn.peer_settings.initial_window = size;
        if by == 0 {
            return Ok(());
        }
        for (_, key) in conn.keys_in_order() {
            let Some(stream) = self.streams.known_mut(key) else { continue };
            if stream.binding.adjusts_send_window(id) {
                stream.send.window.adjust(by)?;
                self.schedule(key);
            }
        }
        Ok(())
    }

    /// Negotiates the extension, as the peer's first SETTINGS specify (SMIG-3.3/when-on).
    fn on_first_settings(&mut self, now: Instant, id: ConnId) -> Result<(), InputError> {
        let side = self.side;
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        if !conn.spec.may_offer_extension(&self.config) {
            return Ok(());
        }
        if conn.peer_settings.max_open_migrations == 0 {
            // Not supported by the peer; a server then ignores a JOIN that was sent in the first
            // flight.
            conn.membership = Membership::NotMember;
            self.process_deferred(now, id);
            return Ok(());
        }
        if side == Side::Server {
            // Without a complete CID, the extension is off.
            let [Some(hi), Some(mid), Some(low)] = conn.peer_settings.cid else { return Ok(()) };
            conn.cid = Cid::from_settings(hi, mid, low);
            let Some(cid) = conn.cid else { return Ok(()) };
            self.app = Some(cid.app);
            self.found_session(id, cid);
        } else if let (Membership::NotMember, Some(cid)) = (conn.membership, conn.cid) {
            self.found_session(id, cid);
        }
        Ok(())
    }

    /// Client: prepares the JOIN that follows a connection's SETTINGS, before any stream
    /// (SMIG-4.1/client-proof, SMIG-3.9/cleartext-key). The first connection of a session over TLS
    /// needs none.
    pub(crate) fn begin_join(&mut self, id: ConnId, cid: Cid, security: crate::conn::Security) {
        if self.key.is_some() {
            self.request_join_keying(id, cid);
        } else if security == crate::conn::Security::TrustedCleartext {
            self.found_session(id, cid);
        }
    }

    /// Requests the session's key from the driver. A server does this for every connection that
    /// names a session: it is not known yet whether a JOIN follows, which would replace this
    /// provisional session.
    pub(crate) fn found_session(&mut self, id: ConnId, cid: Cid) {
        let side = self.side;
        let Some(conn) = self.conns.known_mut(id) else { return };
        let security = conn.spec.security;
        let request = match (security, side) {
            // K arrives in a JOIN (SMIG-3.9/cleartext-key).
            (crate::conn::Security::TrustedCleartext, Side::Server) => return,
            (crate::conn::Security::TrustedCleartext, Side::Client) => KeyingRequest::Random,
            (crate::conn::Security::Tls13, _) => KeyingRequest::session(cid.app),
            (crate::conn::Security::Ineligible, _) => return,
        };
        conn.membership = Membership::KeyingFounder;
        self.events.push_back(Event::KeyingMaterialNeeded { conn: id, request });
    }

    /// Client: requests the exporter of an additional connection from the driver.
    fn request_join_keying(&mut self, id: ConnId, cid: Cid) {
        let Some(conn) = self.conns.known_mut(id) else { return };
        conn.membership = Membership::KeyingJoin;
        let request = KeyingRequest::join(cid, conn.spec.security);
        self.events.push_back(Event::KeyingMaterialNeeded { conn: id, request });
    }

    pub(crate) fn on_settings_ack(&mut self, id: ConnId) -> Result<(), InputError> {
        let size = self.config.stream_window;
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        if conn.settings_acked {
            return Err(Cause::UnexpectedSettingsAck.into());
        }
        conn.settings_acked = true;
        if size < INITIAL_WINDOW {
            let by = i64::from(size) - i64::from(INITIAL_WINDOW);
            for (stream_id, key) in conn.keys_in_order() {
                let Some(stream) = self.streams.known_mut(key) else { continue };
                if !stream.binding.adjusts_recv_window(id) {
                    continue;
                }
                let from = StreamAddr { conn: id, id: stream_id };
                let mut deferred =
                    self.conns.iter_mut().flat_map(|conn| &mut conn.deferred_migrates);
                match deferred.find(|waiting| waiting.from == from) {
                    // It is not known yet whether the barrier takes effect
                    // (SMIG-7.5/undone-barrier).
                    Some(waiting) => waiting.window_adjustment = by,
                    None => {
                        if let Some(increment) = stream.recv.window.adjust(by) {
                            self.send_stream_credit(key, increment);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn on_ping(&mut self, id: ConnId, opaque: [u8; 8]) -> Result<(), InputError> {
        self.count_reply(id)?;
        if let Some(conn) = self.conns.known_mut(id) {
            wire::pong(&mut conn.out.frames, opaque);
        }
        Ok(())
    }

    pub(crate) fn on_pong(&mut self, id: ConnId, opaque: [u8; 8]) -> Result<(), InputError> {
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        if conn.goaway.drain_started_at.is_some() && opaque == DRAIN_PING {
            end_drain(conn);
        }
        Ok(())
    }

    /// Sends a PING; the answer proves that the connection is alive.
    pub fn ping(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.live_mut(id) {
            wire::ping(&mut conn.out.frames, *b"smigping");
        }
    }

    pub(crate) fn on_goaway(
        &mut self,
        id: ConnId,
        last: StreamId,
        code: ErrorCode,
        debug: &Bytes,
    ) -> Result<(), InputError> {
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        let earlier = conn.goaway.received;
        let last = earlier.map_or(last, |earlier| earlier.min(last));
        conn.goaway.received = Some(last);
        // A graceful shutdown sends two. More are permitted, but count as frames without effect.
        if earlier.is_some() {
            self.count_empty(id)?;
        }
        // Limit the text: it is only for logs.
        let reason = String::from_utf8_lossy(debug.get(..debug.len().min(256)).unwrap_or_default());
        self.events.push_back(Event::GoingAway { conn: id, code, reason: reason.into_owned() });
        if earlier.is_some_and(|earlier| earlier <= last) {
            return Ok(());
        }
        let conn = self.conns.known(id);
        let excluded = conn.map(|conn| conn.keys_above(last)).unwrap_or_default();
        for (stream, key) in excluded {
            if !self.is_peer_id(stream) {
                self.on_excluded(key, StreamAddr { conn: id, id: stream });
            }
        }
        Ok(())
    }

    /// Handles a stream that the peer's GOAWAY excludes from processing.
    fn on_excluded(&mut self, key: StreamKey, at: StreamAddr) {
        let Some(stream) = self.streams.known_mut(key) else { return };
        if !stream.binding.on_excluded(at) {
            self.fail_excluded(key, at);
        }
    }

    pub(crate) fn on_priority_update(
        &mut self,
        id: ConnId,
        stream: StreamId,
        priority: Priority,
    ) -> Result<(), InputError> {
        if self.side == Side::Client {
            return Err(Cause::WrongStreamParity.into());
        }
        let at = StreamAddr { conn: id, id: stream };
        if let Some(key) = self.key_at(id, stream).or_else(|| self.vacated_key(at)) {
            self.set_priority(key, priority);
            return Ok(());
        }
        let max = self.config.limits.max_idle_priority_updates;
        if self.id_state(id, stream) != IdState::Idle {
            return Ok(());
        }
        if !self.is_peer_id(stream) {
            // The ID was neither promised nor chosen as a carrier (SMIG-7.8/even-priorities).
            return Err(Cause::IdleStream.into());
        }
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        conn.idle_priorities.retain(|&(other, _)| other != stream);
        if conn.idle_priorities.len() >= max {
            // Some may belong to requests that were refused, or to IDs that were skipped.
            conn.idle_priorities.retain(|&(other, _)| conn.peer_ids.may_open(other));
        }
        if conn.idle_priorities.len() >= max {
            return Err(Cause::TooManyPriorityUpdates.into());
        }
        conn.idle_priorities.push((stream, priority));
        Ok(())
    }

    pub(crate) fn set_priority(&mut self, key: StreamKey, priority: Priority) {
        let Some(stream) = self.streams.known_mut(key) else { return };
        let before = core::mem::replace(&mut stream.priority, priority);
        let Some(at) = stream.binding.scheduled().filter(|_| before != priority) else { return };
        // A stream has at most one entry in the scheduler, however often the peer changes the
        // priority. A stream that waits for the connection's window has none.
        let Some(conn) = self.conns.known_mut(at) else { return };
        if conn.scheduler.remove(key, before) {
            stream.binding.take_scheduled();
            self.schedule(key);
        }
    }

    /// Shuts the session down gracefully: no new streams; running streams complete (RFC 9113
    /// section 6.8).
    pub fn shutdown(&mut self, now: Instant) {
        self.is_closing = true;
        for conn in self.conns.iter_mut().filter(|conn| !conn.is_dead()) {
            drain(now, conn);
        }
        self.arm(now);
    }

    /// Shuts one connection down gracefully. Its streams may still migrate to another connection
    /// (SMIG-8.14/drain-by-moving).
    pub fn drain(&mut self, now: Instant, id: ConnId) {
        if let Some(conn) = self.conns.live_mut(id) {
            drain(now, conn);
            self.arm(now);
        }
    }
}

fn drain(now: Instant, conn: &mut Connection) {
    if conn.goaway.sent.is_none() {
        send_goaway(conn, StreamId::MAX, ErrorCode::NoError, b"");
        conn.goaway.drain_started_at = Some(now);
        wire::ping(&mut conn.out.frames, DRAIN_PING);
    }
}

/// Sends the second GOAWAY, which names the last stream: the peer has received the first, or the
/// timeout has expired.
pub(crate) fn end_drain(conn: &mut Connection) {
    conn.goaway.drain_started_at = None;
    let last = conn.peer_ids.highest();
    send_goaway(conn, last, ErrorCode::NoError, b"");
}

pub(crate) fn send_goaway(conn: &mut Connection, last: StreamId, code: ErrorCode, debug: &[u8]) {
    let last = conn.goaway.sent.map_or(last, |earlier| earlier.min(last));
    conn.goaway.sent = Some(last);
    // A carrier that no MIGRATE has named does not count as processed, and will be declined
    // (SMIG-8.16/bound-is-processed).
    for early in conn.carriers.take_above(last) {
        if let Some(increment) = conn.recv_window.give_back(early.into_credit()) {
            wire::window_update(&mut conn.out.frames, StreamId::CONNECTION, increment);
        }
    }
    wire::goaway(&mut conn.out.frames, last, code, debug);
}
