//! Streams that have ended, as long as their peer may lack something of them (SMIG-13.14/kept-to-the-end).

use core::time::Duration;
use std::collections::VecDeque;

use crate::error::ErrorCode;
use crate::ids::{ConnId, FrameNumber, SentAt, Side, StreamAddr, StreamName};
use crate::priority::Priority;
use crate::session::Session;
use crate::stream::{
    Binding, ExchangeKind, Kept, KeyState, Opener, RecvHalf, SendHalf, StallClock, Stream,
    StreamKey, StreamResumption,
};
use crate::time::Instant;

/// Maximum number of streams of which a server remembers only how they ended.
const MAX_TOMBSTONES: usize = 256;

/// A stream whose directions have both ended, and of which something may have to be sent again.
#[derive(Debug)]
pub(super) struct EndedStream {
    name: StreamName,
    send: SendHalf,
    received_bytes: u64,
    addr: StreamAddr,
    exchange_kind: ExchangeKind,
    priority: Priority,
    attempt: u32,
    /// Server: the request has not come whole; RST_STREAM(NO_ERROR) has requested that the client stop (RFC 9113 section 8.1).
    is_stopped: bool,
    /// Its connection has ended.
    is_adrift: bool,
    /// The first tick at which it had.
    adrift_since: Option<Instant>,
}

/// What is known of a stream that no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epitaph {
    /// Everything was read.
    Complete,
    /// It was reset, with this code.
    Reset(ErrorCode),
}

#[derive(Debug)]
struct Tombstone {
    name: StreamName,
    epitaph: Epitaph,
    /// Where RST_STREAM was sent; a receipt for it ends the memory.
    reset_at: Option<SentAt>,
    since: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct EndedStreams {
    kept: VecDeque<EndedStream>,
    tombstones: VecDeque<Tombstone>,
}

impl EndedStreams {
    fn insert(&mut self, stream: EndedStream, max: usize) {
        if self.kept.len() >= max.max(1) {
            self.kept.pop_front();
        }
        self.kept.push_back(stream);
    }

    fn bury(&mut self, tombstone: Tombstone) {
        self.tombstones.retain(|other| other.name != tombstone.name);
        if self.tombstones.len() >= MAX_TOMBSTONES {
            self.tombstones.pop_front();
        }
        self.tombstones.push_back(tombstone);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.tombstones.is_empty()
    }

    /// Returns whether one of them waits for a RESUME.
    pub(super) fn has_adrift(&self) -> bool {
        self.kept.iter().any(|stream| stream.is_adrift)
    }

    pub(super) fn kept_memory(&self) -> usize {
        self.kept.iter().map(|stream| stream.send.kept_memory()).sum()
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.iter().filter_map(|stream| stream.send.kept()).map(Kept::bytes).sum()
    }

    /// Lets go of the oldest streams until no more than this much memory is in use. Returns how much is.
    pub(super) fn shrink(&mut self, max_memory: usize) -> usize {
        let mut memory = self.kept_memory();
        while memory > max_memory
            && let Some(oldest) = self.kept.pop_front()
        {
            memory -= oldest.send.kept_memory();
        }
        memory
    }

    /// Handles a receipt: streams of which everything was read are forgotten, but for their name.
    pub(super) fn on_receipt(&mut self, conn: ConnId, last: FrameNumber, side: Side) {
        let mut complete = Vec::new();
        self.kept.retain_mut(|stream| {
            let kept = stream.send.kept_mut();
            let is_read = kept.is_none_or(|kept| {
                kept.on_receipt(conn, last);
                kept.is_empty()
            });
            if is_read {
                complete.push(stream.name);
            }
            !is_read
        });
        self.tombstones.retain(|tombstone| {
            !tombstone.reset_at.is_some_and(|at| at.conn == conn && at.frame <= last)
        });
        if side == Side::Server {
            for name in complete {
                let epitaph = Epitaph::Complete;
                self.bury(Tombstone { name, epitaph, reset_at: None, since: None });
            }
        }
    }

    /// Forgets what has waited for `linger`.
    pub(super) fn expire(&mut self, now: Instant, linger: Duration) {
        let is_late = |since: &mut Option<Instant>| {
            now.saturating_duration_since(*since.get_or_insert(now)) >= linger
        };
        self.kept.retain_mut(|stream| !stream.is_adrift || !is_late(&mut stream.adrift_since));
        self.tombstones.retain_mut(|tombstone| !is_late(&mut tombstone.since));
    }

    /// Its connection has ended: what is kept there waits for a RESUME.
    pub(super) fn on_connection_end(&mut self, conn: ConnId) {
        for stream in self.kept.iter_mut().filter(|stream| stream.addr.conn == conn) {
            stream.is_adrift = true;
        }
    }

    /// The client has given the connection up (SMIG-13.12/lost-last).
    pub(super) fn on_lost(&mut self, conn: ConnId) {
        self.kept.retain(|stream| stream.addr.conn != conn);
    }

    /// Returns what has to be sent again of a stream, and the last attempt to resume it.
    pub(super) fn find_mut(&mut self, name: StreamName) -> Option<(&mut SendHalf, &mut u32)> {
        let found = self.kept.iter_mut().find(|stream| stream.name == name)?;
        Some((&mut found.send, &mut found.attempt))
    }

    pub(super) fn epitaph(&self, name: StreamName) -> Option<Epitaph> {
        let tombstone = self.tombstones.iter().find(|tombstone| tombstone.name == name);
        tombstone.map(|tombstone| tombstone.epitaph)
    }

    fn take(&mut self, is_wanted: impl Fn(&EndedStream) -> bool) -> Option<EndedStream> {
        let index = self.kept.iter().position(is_wanted)?;
        self.kept.remove(index)
    }
}

impl Session {
    /// Keeps what the peer may lack of a stream that is complete.
    pub(crate) fn keep_ended(&mut self, key: StreamKey) {
        self.keep_ended_or_stopped(key, false);
    }

    /// Server: keeps what the client may lack of a response, and of the RST_STREAM(NO_ERROR) that was just framed
    /// behind it.
    pub(crate) fn keep_stopped(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let addr = stream.binding.send_addr();
        let Some(kept) = stream.send.kept_mut().filter(|_| stream.resumption.is_some()) else {
            return;
        };
        if let Some(conn) = self.conns.find_live_mut(addr.conn) {
            kept.push_stop(conn.last_framed());
        }
        self.keep_ended_or_stopped(key, true);
    }

    fn keep_ended_or_stopped(&mut self, key: StreamKey, is_stopped: bool) {
        let max = self.config.resumption().map_or(0, |resumption| resumption.max_ended);
        let addr = self.streams.find_known(key).map(|stream| stream.binding.recv_addr());
        let conn = addr.and_then(|addr| self.conns.find(addr.conn));
        let is_conn_ended = conn.is_none_or(|conn| conn.is_dead());
        let (Some(session), Some(stream)) =
            (&mut self.resumption, self.streams.find_known_mut(key))
        else {
            return;
        };
        let Some(resumption) = stream.resumption.take() else { return };
        let Some(send) = stream.send.take_ended() else { return };
        session.ended_streams.insert(
            EndedStream {
                name: resumption.name,
                send,
                received_bytes: stream.recv.received_bytes(),
                addr: stream.binding.recv_addr(),
                exchange_kind: stream.exchange_kind,
                priority: stream.priority,
                attempt: resumption.attempt,
                is_stopped,
                is_adrift: is_conn_ended,
                adrift_since: None,
            },
            max,
        );
    }

    /// Server: remembers the code with which a stream was reset: the client may not read it.
    pub(crate) fn remember_reset(&mut self, key: StreamKey, code: ErrorCode) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let Some(resumption) = stream.resumption.take() else { return };
        let conn_id = stream.binding.send_addr().conn;
        let is_moving = stream.binding.open_migration().is_some();
        if self.side == Side::Client {
            return;
        }
        // Of two RST_STREAM, either may be the one that is lost.
        let live = self.conns.find_live_mut(conn_id).filter(|_| !is_moving);
        let reset_at = live.map(|conn| conn.last_framed());
        if let Some(session) = &mut self.resumption {
            let (name, epitaph) = (resumption.name, Epitaph::Reset(code));
            session.ended_streams.bury(Tombstone { name, epitaph, reset_at, since: None });
        }
    }

    /// Server: remembers that a request was refused because there are too many: the client may not read it.
    pub(crate) fn remember_refused(&mut self, at: StreamAddr) {
        let conn = self.conns.find(at.conn).filter(|conn| conn.is_joined());
        let cid = conn.and_then(|conn| conn.cid);
        if let (Some(cid), Some(session)) = (cid, &mut self.resumption) {
            let name = StreamName { cid, id: at.id };
            let epitaph = Epitaph::Reset(ErrorCode::RefusedStream);
            session.ended_streams.bury(Tombstone { name, epitaph, reset_at: None, since: None });
        }
    }

    /// Makes an ended stream one that runs, so that it can be resumed: without an application. Returns its key.
    pub(super) fn revive(&mut self, name: StreamName) -> Option<StreamKey> {
        let ended = self.resumption.as_mut()?.ended_streams.take(|stream| stream.name == name)?;
        Some(self.revive_stream(ended))
    }

    /// Client: revives the ended streams of which something was sent on a connection that has ended, and may not have
    /// been read.
    pub(super) fn revive_unread_on(&mut self, conn: ConnId) {
        let is_unread =
            |stream: &EndedStream| stream.send.kept().is_some_and(|kept| kept.has_unread_on(conn));
        while let Some(ended) =
            self.resumption.as_mut().and_then(|session| session.ended_streams.take(is_unread))
        {
            let key = self.revive_stream(ended);
            self.set_adrift(key);
            let resumption = self.streams.find_known_mut(key).and_then(|s| s.resumption.as_mut());
            if let Some(resumption) = resumption {
                // LOST of it must not overtake RESUME, although the stream has gone on elsewhere since.
                resumption.left_conns.push(conn);
            }
        }
    }

    fn revive_stream(&mut self, ended: EndedStream) -> StreamKey {
        let opener = match self.side {
            Side::Client => {
                self.open_local_streams += 1;
                Opener::Local
            }
            Side::Server => {
                self.open_peer_streams += 1;
                Opener::Peer
            }
        };
        let mut resumption = StreamResumption::new(ended.name);
        resumption.attempt = ended.attempt;
        self.streams.insert(Stream {
            opener,
            exchange_kind: ended.exchange_kind,
            binding: Binding::new(ended.addr),
            send: ended.send,
            recv: if ended.is_stopped {
                RecvHalf::stopped(ended.received_bytes)
            } else {
                RecvHalf::ended(ended.received_bytes)
            },
            priority: ended.priority,
            frame_received: true,
            was_offered_or_declined: true,
            offered_role: None,
            key_state: KeyState::Released,
            stop_due: ended.is_stopped,
            stall: StallClock::new(Instant::from_nanos(0)),
            error: None,
            resumption: Some(Box::new(resumption)),
        })
    }
}
