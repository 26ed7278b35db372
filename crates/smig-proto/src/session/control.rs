//! Frames that concern a connection: SETTINGS, PING, GOAWAY, PRIORITY_UPDATE.

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
const DRAIN_PING_PAYLOAD: [u8; 8] = *b"smigdrai";

impl Session {
    pub(crate) fn on_settings(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        payload: SettingsPayload<'_>,
    ) -> Result<(), InputError> {
        let limits = &self.config.limits;
        let (max_entries, max_frames) = (limits.max_settings_entries, limits.max_settings_frames);
        let code_points =
            self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default();
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if payload.entry_count() > max_entries
            || conn.abuse.settings_frames.increment_exceeds(now, max_frames)
        {
            return Err(Cause::TooManySettings.into());
        }
        let is_first = matches!(conn.state, ConnState::Settings);
        for setting in payload.iter(code_points) {
            self.apply_setting(conn_id, setting, is_first)?;
        }
        self.count_reply(conn_id)?;
        if let Some(conn) = self.conns.find_known_mut(conn_id) {
            wire::write_settings_ack(&mut conn.control_queue.frames);
            if is_first {
                conn.state = ConnState::Open;
            }
        }
        if is_first {
            self.on_first_settings(now, conn_id)?;
        }
        if core::mem::take(&mut self.open_blocked) {
            self.events.push_back(Event::StreamsAvailable);
        }
        Ok(())
    }

    fn apply_setting(
        &mut self,
        conn_id: ConnId,
        setting: Setting,
        is_first: bool,
    ) -> Result<(), InputError> {
        let side = self.side;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        match setting {
            Setting::HeaderTableSize(size) => conn.encoder.set_max_table_size(size as usize),
            Setting::EnablePush(value) => match (value, side) {
                (0, _) => conn.peer_settings.enable_push = false,
                (1, Side::Server) => conn.peer_settings.enable_push = true,
                (_, Side::Server | Side::Client) => return Err(Cause::BadEnablePush.into()),
            },
            Setting::MaxConcurrentStreams(max) => conn.peer_settings.max_concurrent_streams = max,
            Setting::InitialWindowSize(size) => return self.apply_initial_window(conn_id, size),
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
            Setting::CidHi(word) if is_first => conn.peer_settings.cid_settings[0] = Some(word),
            Setting::CidMid(word) if is_first => conn.peer_settings.cid_settings[1] = Some(word),
            Setting::CidLo(word) if is_first => conn.peer_settings.cid_settings[2] = Some(word),
            Setting::Resume(value) if is_first => conn.peer_settings.linger_seconds = value,
            Setting::Resume(_) => {}
            Setting::Smig(_) | Setting::CidHi(_) | Setting::CidMid(_) | Setting::CidLo(_) => {}
            // The limit is advisory: the application handles larger responses.
            Setting::MaxHeaderListSize(_) => {}
            Setting::NoRfc7540Priorities(_) | Setting::Unknown => {}
        }
        Ok(())
    }

    /// Adjusts the send windows of the streams that were opened on this connection and have not
    /// moved (SMIG-7.4/initial-window).
    fn apply_initial_window(&mut self, conn_id: ConnId, size: u32) -> Result<(), InputError> {
        if size > MAX_WINDOW {
            return Err(Cause::BadInitialWindow.into());
        }
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let delta = i64::from(size) - i64::from(conn.peer_settings.initial_window);
        conn.peer_settings.initial_window = size;
        if delta == 0 {
            return Ok(());
        }
        for (_, key) in conn.keys_in_order() {
            let Some(stream) = self.streams.find_known_mut(key) else { continue };
            if stream.binding.adjusts_send_window(conn_id) {
                stream.send.window.adjust(delta)?;
                self.schedule(key);
            }
        }
        Ok(())
    }

    /// Negotiates the extension, as the peer's first SETTINGS specify (SMIG-3.3/when-on).
    fn on_first_settings(&mut self, now: Instant, conn_id: ConnId) -> Result<(), InputError> {
        let side = self.side;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if !conn.spec.may_announce_extension(&self.config) {
            return Ok(());
        }
        if conn.peer_settings.max_open_migrations == 0 {
            // Not supported by the peer; a server then ignores a JOIN that was sent in the first
            // flight.
            conn.membership = Membership::NotMember;
            self.process_deferred_migrates(now, conn_id);
            self.make_unresumable(conn_id);
            return Ok(());
        }
        if side == Side::Server {
            // Without a complete CID, the extension is off.
            let [Some(hi), Some(mid), Some(low)] = conn.peer_settings.cid_settings else {
                return Ok(());
            };
            conn.cid = Cid::from_settings(hi, mid, low);
            let Some(cid) = conn.cid else { return Ok(()) };
            self.app_id = Some(cid.app);
            self.negotiate_resumption(conn_id);
            self.begin_founding(conn_id, cid);
        } else if conn.cid.is_some() {
            self.negotiate_resumption(conn_id);
        }
        if let (Side::Client, Some(conn)) = (side, self.conns.find_known(conn_id))
            && let (Membership::NotMember, Some(cid)) = (conn.membership, conn.cid)
        {
            self.begin_founding(conn_id, cid);
        }
        Ok(())
    }

    /// Client: prepares the JOIN that follows a connection's SETTINGS, before any stream
    /// (SMIG-4.1/client-proof, SMIG-3.9/cleartext-key). The first connection of a session over TLS
    /// needs none.
    pub(crate) fn begin_join(
        &mut self,
        conn_id: ConnId,
        cid: Cid,
        security: crate::conn::Security,
    ) {
        if self.session_key.is_some() {
            self.request_join_keying(conn_id, cid);
        } else if security == crate::conn::Security::TrustedCleartext {
            self.begin_founding(conn_id, cid);
        }
    }

    /// Requests the session's key from the driver. A server does this for every connection that
    /// names a session: it is not known yet whether a JOIN follows, which would replace this
    /// provisional session.
    pub(crate) fn begin_founding(&mut self, conn_id: ConnId, cid: Cid) {
        let side = self.side;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        let security = conn.spec.security;
        let request = match (security, side) {
            // K arrives in a JOIN (SMIG-3.9/cleartext-key).
            (crate::conn::Security::TrustedCleartext, Side::Server) => return,
            (crate::conn::Security::TrustedCleartext, Side::Client) => KeyingRequest::Random,
            (crate::conn::Security::Tls13, _) => KeyingRequest::session(cid.app),
            (crate::conn::Security::Ineligible, _) => return,
        };
        conn.membership = Membership::KeyingFounder;
        self.events.push_back(Event::KeyingMaterialNeeded { conn: conn_id, request });
    }

    /// Client: requests the exporter of an additional connection from the driver.
    fn request_join_keying(&mut self, conn_id: ConnId, cid: Cid) {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        conn.membership = Membership::KeyingJoin;
        let request = KeyingRequest::join(cid, conn.spec.security);
        self.events.push_back(Event::KeyingMaterialNeeded { conn: conn_id, request });
    }

    pub(crate) fn on_settings_ack(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        let size = self.config.stream_window;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if conn.settings_acked {
            return Err(Cause::UnexpectedSettingsAck.into());
        }
        conn.settings_acked = true;
        if size < INITIAL_WINDOW {
            let delta = i64::from(size) - i64::from(INITIAL_WINDOW);
            for (stream_id, key) in conn.keys_in_order() {
                let Some(stream) = self.streams.find_known_mut(key) else { continue };
                if !stream.binding.adjusts_recv_window(conn_id) {
                    continue;
                }
                let from = StreamAddr { conn: conn_id, id: stream_id };
                let mut deferred =
                    self.conns.iter_mut().flat_map(|conn| &mut conn.deferred_migrates);
                match deferred.find(|waiting| waiting.from == from) {
                    // It is not known yet whether the barrier takes effect
                    // (SMIG-7.5/undone-barrier).
                    Some(waiting) => waiting.window_adjustment = delta,
                    None => {
                        if let Some(increment) = stream.recv.window.adjust(delta) {
                            self.send_window_update(key, increment);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn on_ping(&mut self, conn_id: ConnId, opaque: [u8; 8]) -> Result<(), InputError> {
        self.count_reply(conn_id)?;
        if let Some(conn) = self.conns.find_known_mut(conn_id) {
            wire::write_pong(&mut conn.control_queue.frames, opaque);
        }
        Ok(())
    }

    pub(crate) fn on_pong(&mut self, conn_id: ConnId, opaque: [u8; 8]) -> Result<(), InputError> {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        if conn.goaway.drain_started_at.is_some() && opaque == DRAIN_PING_PAYLOAD {
            end_drain(conn);
        }
        Ok(())
    }

    /// Sends a PING; the answer proves that the connection is alive.
    pub fn ping(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.find_live_mut(conn_id) {
            wire::write_ping(&mut conn.control_queue.frames, *b"smigping");
        }
    }

    pub(crate) fn on_goaway(
        &mut self,
        conn_id: ConnId,
        last_id: StreamId,
        code: ErrorCode,
        debug: &[u8],
    ) -> Result<(), InputError> {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let earlier_last_id = conn.goaway.received_last_id;
        let last_id = earlier_last_id.map_or(last_id, |earlier| earlier.min(last_id));
        conn.goaway.received_last_id = Some(last_id);
        // A graceful shutdown sends two. More are permitted; all but the first count as frames without effect.
        if earlier_last_id.is_some() {
            self.count_empty_frame(conn_id)?;
        }
        // Limit the text: it is only for logs.
        let reason = String::from_utf8_lossy(debug.get(..debug.len().min(256)).unwrap_or_default());
        self.events.push_back(Event::GoingAway {
            conn: conn_id,
            code,
            reason: reason.into_owned(),
        });
        if earlier_last_id.is_some_and(|earlier| earlier <= last_id) {
            return Ok(());
        }
        let conn = self.conns.find_known(conn_id);
        let excluded = conn.map(|conn| conn.keys_above(last_id)).unwrap_or_default();
        for (stream, key) in excluded {
            if !self.is_peer_id(stream) {
                self.on_excluded(key, StreamAddr { conn: conn_id, id: stream });
            }
        }
        Ok(())
    }

    /// Handles a stream that the peer's GOAWAY excludes from processing.
    fn on_excluded(&mut self, key: StreamKey, at: StreamAddr) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if !stream.binding.on_excluded(at) && !self.on_resume_rejected(key, at) {
            self.fail_excluded_stream(key, at);
        }
    }

    pub(crate) fn on_priority_update(
        &mut self,
        conn_id: ConnId,
        stream_id: StreamId,
        priority: Priority,
    ) -> Result<(), InputError> {
        if self.side == Side::Client {
            return Err(Cause::PriorityUpdateFromServer.into());
        }
        let at = StreamAddr { conn: conn_id, id: stream_id };
        if let Some(key) = self.key_at(conn_id, stream_id).or_else(|| self.vacated_key(at)) {
            self.set_priority(key, priority);
            return Ok(());
        }
        let max_updates = self.config.limits.max_idle_priority_updates;
        if self.id_state(conn_id, stream_id) != IdState::Idle {
            return Ok(());
        }
        if !self.is_peer_id(stream_id) {
            // The ID was neither promised nor chosen as a carrier (SMIG-7.8/even-priorities).
            return Err(Cause::IdleStream.into());
        }
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        conn.idle_priorities.retain(|&(other, _)| other != stream_id);
        if conn.idle_priorities.len() >= max_updates {
            // Some may belong to requests that were refused, or to IDs that were skipped.
            conn.idle_priorities.retain(|&(other, _)| conn.peer_ids.may_open(other));
        }
        if conn.idle_priorities.len() >= max_updates {
            return Err(Cause::TooManyPriorityUpdates.into());
        }
        conn.idle_priorities.push((stream_id, priority));
        Ok(())
    }

    pub(crate) fn set_priority(&mut self, key: StreamKey, priority: Priority) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let old_priority = core::mem::replace(&mut stream.priority, priority);
        let Some(scheduled_conn_id) =
            stream.binding.scheduled_on().filter(|_| old_priority != priority)
        else {
            return;
        };
        // A stream has at most one entry in the scheduler, however often the peer changes the
        // priority. A stream that waits for the connection's window has none.
        let Some(conn) = self.conns.find_known_mut(scheduled_conn_id) else { return };
        if conn.scheduler.remove(key, old_priority) {
            stream.binding.take_scheduled();
            self.schedule(key);
        }
    }

    /// Shuts the session down gracefully: no new streams; running streams complete (RFC 9113
    /// section 6.8).
    pub fn shutdown(&mut self, now: Instant) {
        self.is_closing = true;
        for conn in self.conns.iter_mut().filter(|conn| !conn.is_dead()) {
            begin_drain(now, conn);
        }
        self.arm_tick(now);
    }

    /// Shuts one connection down gracefully. Its streams may still migrate to another connection
    /// (SMIG-8.14/drain-by-moving).
    pub fn drain(&mut self, now: Instant, conn_id: ConnId) {
        if let Some(conn) = self.conns.find_live_mut(conn_id) {
            begin_drain(now, conn);
            self.arm_tick(now);
        }
    }
}

fn begin_drain(now: Instant, conn: &mut Connection) {
    if conn.goaway.sent_last_id.is_none() {
        send_goaway(conn, StreamId::MAX, ErrorCode::NoError, b"");
        conn.goaway.drain_started_at = Some(now);
        wire::write_ping(&mut conn.control_queue.frames, DRAIN_PING_PAYLOAD);
    }
}

/// Sends the second GOAWAY, which names the last stream: the peer has received the first, or the
/// timeout has expired.
pub(crate) fn end_drain(conn: &mut Connection) {
    conn.goaway.drain_started_at = None;
    let last_id = conn.peer_ids.highest_used();
    send_goaway(conn, last_id, ErrorCode::NoError, b"");
}

pub(crate) fn send_goaway(conn: &mut Connection, last_id: StreamId, code: ErrorCode, debug: &[u8]) {
    let last_id = conn.goaway.sent_last_id.map_or(last_id, |earlier| earlier.min(last_id));
    conn.goaway.sent_last_id = Some(last_id);
    // A carrier that no MIGRATE has named does not count as processed, and will be declined
    // (SMIG-8.16/bound-is-processed).
    for early in conn.unbound_carriers.take_above(last_id) {
        if let Some(increment) = conn.recv_window.give_back(early.into_credit()) {
            wire::write_window_update(
                &mut conn.control_queue.frames,
                StreamId::CONNECTION,
                increment,
            );
        }
    }
    wire::write_goaway(&mut conn.control_queue.frames, last_id, code, debug);
}
