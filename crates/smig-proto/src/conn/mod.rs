//! One HTTP/2 connection: everything that is bound to one ordered byte stream.
//!
//! Owns HPACK contexts, settings, the connection's windows, the used stream IDs, unsent control
//! frames and the scheduler. Knows streams only by key and does not access them; [`crate::session`]
//! handles everything that concerns a stream or the session.

mod assembly;
mod budget;
mod list;
mod output;
mod receipts;
mod repeated_request;
mod scheduler;
mod settings;
mod stream_ids;

use http::uri::Authority;
use rustc_hash::FxHashMap;

pub(crate) use assembly::{BlockKind, FieldBlockAssembly};
pub(crate) use budget::{Charge, Counter, Offence, ResetBudget};
pub(crate) use list::Connections;
pub(crate) use output::ControlQueue;
pub use output::OutputBuffer;
pub(crate) use receipts::Receipts;
pub(crate) use repeated_request::{RepeatableBlock, RepeatedRequest};
pub(crate) use scheduler::{Scheduler, SendClass};
pub(crate) use settings::PeerSettings;
pub(crate) use stream_ids::{IdState, StreamIdSpace};

use crate::body::BufferTracker;
use crate::config::Config;
use crate::error::ErrorCode;
use crate::flow::{INITIAL_WINDOW, RecvWindow, SendWindow};
use crate::hpack;
use crate::ids::{Cid, ConnId, FrameNumber, SentAt, StreamId};
use crate::migrate::{DeferredMigrate, PendingAnswer, UnboundCarriers};
use crate::priority::Priority;
use crate::role::ConnectionRole;
use crate::stream::StreamKey;
use crate::time::Instant;
use crate::wire;

/// Protection of a connection, which decides whether and how SMig may be used on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS 1.3: exporters prove membership.
    Tls13,
    /// Cleartext on a network that both sides are configured to trust (SMIG-3.8/cleartext-off).
    /// Does not protect against attackers on the path.
    TrustedCleartext,
    /// Anything else: SMig is off.
    Ineligible,
}

/// The driver's digest of the properties that must be equal for a connection to join a session:
/// listener, SNI, client certificate, tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 32]);

/// Properties of a new connection that the driver supplies.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSpec {
    /// Its protection.
    pub security: Security,
    /// Its identity, which must match that of the session.
    pub identity: Identity,
}

impl ConnectionSpec {
    /// Returns whether the extension may be announced on the connection.
    pub(crate) fn may_announce_extension(&self, config: &Config) -> bool {
        config.smig.is_some() && self.security != Security::Ineligible
    }
}

/// State of a connection's receiving side. The sending side needs no state until the connection is
/// closed.
#[derive(Clone, Debug)]
pub(crate) enum ConnState {
    /// Server: the preface is incomplete.
    Preface,
    /// The peer's SETTINGS have not been received.
    Settings,
    Open,
    /// Server: JOIN was received and is undecided; nothing more is read (SMIG-4.2/join-first).
    JoinPending(Box<UndecidedJoin>),
    /// The connection was closed with GOAWAY, or abandoned without (SMIG-8.4/cancel-by-close), or its
    /// transport was lost.
    Dead,
}

/// The client's proof in a JOIN that is undecided. Boxed wherever it is stored: few connections
/// have one, and none for long.
#[derive(Clone, Debug)]
pub(crate) struct UndecidedJoin {
    pub(crate) nonce: [u8; 16],
    pub(crate) mac: [u8; 32],
}

/// Relation of a connection to the session (SMIG section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The extension is off on this connection, or not negotiated yet.
    NotMember,
    /// Keying material was requested: for the session's key, or for a join.
    KeyingFounder,
    KeyingJoin,
    /// Client: JOIN was sent.
    Joining {
        nonce: [u8; 16],
        exporter: [u8; 32],
    },
    /// The connection founded the session, or proved its membership by JOIN.
    Joined,
    /// Client: joined a session that the server has forgotten since, or will soon. Its streams
    /// continue, but no stream moves from or to it (SMIG-4.8/new-session).
    Former,
    /// Like [`Self::Former`], while the answer to its JOIN is outstanding; the key that could
    /// verify it was dropped.
    JoiningFormer,
}

/// Server: whether a connection may send JOIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinPermission {
    /// It may: its session is not final.
    Allowed,
    /// Its session is final: it joined the session, founded it by a JOIN, or other connections have
    /// joined it (SMIG-4.14/join-once).
    Forbidden,
}

/// Counters of frames that are permitted but that only an attacker sends in large numbers.
#[derive(Debug)]
pub(crate) struct AbuseCounters {
    pub(crate) consecutive_empty_frames: u32,
    /// PRIORITY frames, which have no effect here.
    pub(crate) consecutive_priority_frames: u32,
    pub(crate) settings_frames: Counter,
    pub(crate) small_data_frames: Counter,
    /// Refused JOINs, for any reason.
    pub(crate) refused_joins: u8,
}

impl AbuseCounters {
    /// Resets the counters of consecutive frames, because a useful frame arrived.
    pub(crate) const fn reset_runs(&mut self) {
        self.consecutive_empty_frames = 0;
        self.consecutive_priority_frames = 0;
    }
}

/// GOAWAY in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GoAways {
    /// The last ID that this side announced; frames on higher IDs are ignored.
    pub(crate) sent_last_id: Option<StreamId>,
    pub(crate) received_last_id: Option<StreamId>,
    /// When the PING was sent. Its answer triggers the second GOAWAY.
    pub(crate) drain_started_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) spec: ConnectionSpec,
    pub(crate) cid: Option<Cid>,
    pub(crate) state: ConnState,
    pub(crate) membership: Membership,
    pub(crate) join_permission: JoinPermission,
    /// Client: the first tick at which its JOIN was unanswered.
    pub(crate) join_awaited_since: Option<Instant>,
    pub(crate) role: ConnectionRole,
    /// Whether requests of the client begin here. Then others will, and what returns here must not make them bulk.
    pub(crate) opens_streams: bool,
    pub(crate) decoder: hpack::Decoder,
    pub(crate) encoder: hpack::Encoder,
    /// Authority of the last request: most requests repeat it.
    pub(crate) authority: Option<Authority>,
    /// Server: the newest request that was repeated; others may have followed it.
    pub(crate) repeated_request: RepeatedRequest,
    pub(crate) field_block: Option<FieldBlockAssembly>,
    pub(crate) input_tracker: BufferTracker,
    pub(crate) peer_settings: PeerSettings,
    /// Whether the peer acknowledged this side's SETTINGS.
    pub(crate) settings_acked: bool,
    pub(crate) send_window: SendWindow,
    pub(crate) recv_window: RecvWindow,
    pub(crate) streams: FxHashMap<StreamId, StreamKey>,
    /// Streams that moved away from this connection.
    pub(crate) vacated_streams: FxHashMap<StreamId, StreamKey>,
    /// Whether a stream that has left this connection needs a frame that was sent here to arrive:
    /// the answer by which it followed (SMIG-8.8/c1-ends-at-mover), or the end of its request,
    /// which completed it on this side. The peer does not acknowledge either.
    pub(crate) departed_stream_needs_output: bool,
    pub(crate) pending_answers: Vec<PendingAnswer>,
    pub(crate) deferred_migrates: Vec<DeferredMigrate>,
    pub(crate) local_ids: StreamIdSpace,
    pub(crate) peer_ids: StreamIdSpace,
    pub(crate) unbound_carriers: UnboundCarriers,
    pub(crate) idle_priorities: Vec<(StreamId, Priority)>,
    pub(crate) scheduler: Scheduler,
    /// Streams that wait for the connection's window.
    pub(crate) blocked_streams: Vec<StreamKey>,
    pub(crate) control_queue: ControlQueue,
    /// If streams can be resumed, or may turn out to be.
    pub(crate) receipts: Option<Box<Receipts>>,
    pub(crate) goaway: GoAways,
    pub(crate) abuse: AbuseCounters,
    pub(crate) created_at: Instant,
    /// The error code for streams that fail with the connection.
    pub(crate) end_code: ErrorCode,
    /// Bytes of DATA payload in each direction.
    pub(crate) data_bytes_sent: u64,
    pub(crate) data_bytes_received: u64,
}

impl Connection {
    pub(crate) fn new(id: ConnId, spec: ConnectionSpec, state: ConnState, now: Instant) -> Self {
        Self {
            id,
            spec,
            cid: None,
            state,
            membership: Membership::NotMember,
            join_permission: JoinPermission::Allowed,
            join_awaited_since: None,
            role: ConnectionRole::default(),
            opens_streams: false,
            decoder: hpack::Decoder::new(4096),
            encoder: hpack::Encoder::new(),
            authority: None,
            repeated_request: RepeatedRequest::default(),
            field_block: None,
            input_tracker: BufferTracker::default(),
            peer_settings: PeerSettings::default(),
            settings_acked: false,
            send_window: SendWindow::new(INITIAL_WINDOW),
            recv_window: RecvWindow::of_connection(INITIAL_WINDOW),
            streams: FxHashMap::default(),
            vacated_streams: FxHashMap::default(),
            departed_stream_needs_output: false,
            pending_answers: Vec::new(),
            deferred_migrates: Vec::new(),
            local_ids: StreamIdSpace::default(),
            peer_ids: StreamIdSpace::default(),
            unbound_carriers: UnboundCarriers::default(),
            idle_priorities: Vec::new(),
            scheduler: Scheduler::default(),
            blocked_streams: Vec::new(),
            control_queue: ControlQueue::default(),
            receipts: None,
            goaway: GoAways::default(),
            abuse: AbuseCounters {
                consecutive_empty_frames: 0,
                consecutive_priority_frames: 0,
                settings_frames: Counter::default(),
                small_data_frames: Counter::default(),
                refused_joins: 0,
            },
            created_at: now,
            end_code: ErrorCode::Cancel,
            data_bytes_sent: 0,
            data_bytes_received: 0,
        }
    }

    pub(crate) const fn is_dead(&self) -> bool {
        matches!(self.state, ConnState::Dead)
    }

    /// Returns whether streams may be opened here or moved here: no GOAWAY was sent or received,
    /// and no JOIN must be sent first (SMIG-4.1/client-proof).
    pub(crate) fn accepts_streams(&self) -> bool {
        !self.is_dead() && !self.owes_join() && !self.is_going_away()
    }

    /// Returns whether a GOAWAY was sent or received.
    pub(crate) fn is_going_away(&self) -> bool {
        self.goaway.sent_last_id.is_some() || self.goaway.received_last_id.is_some()
    }

    /// Announces the connection's window, after SETTINGS and a JOIN that must immediately follow
    /// them (SMIG-4.1/client-proof).
    pub(crate) fn announce_window(&mut self, size: u32) {
        if let Some(increment) = self.recv_window.grow(size) {
            wire::write_window_update(
                &mut self.control_queue.frames,
                StreamId::CONNECTION,
                increment,
            );
        }
    }

    /// Returns whether a stream of `c1` may be moved here (SMIG-5.1/choice-of-c2).
    pub(crate) fn accepts_carrier(&self, c1: ConnId) -> bool {
        self.id != c1 && self.is_joined() && self.accepts_streams()
    }

    /// Gives the connection the role of those that streams move to, unless requests begin here.
    pub(crate) const fn set_carrier_role(&mut self, role: ConnectionRole) {
        if !self.opens_streams {
            self.role = role;
        }
    }

    /// Returns whether no stream is here, and no carrier that might become one.
    pub(crate) fn is_unused(&self) -> bool {
        self.streams.is_empty() && self.unbound_carriers.len() == 0
    }

    /// Returns whether closing the connection would end its only stream and lose nothing else:
    /// neither an answer that is due in either direction, nor something that was sent here and may
    /// not have arrived (SMIG-8.4/cancel-by-close).
    pub(crate) fn may_end_with_its_stream(&self) -> bool {
        self.role == ConnectionRole::Bulk
            && self.streams.len() == 1
            && self.unbound_carriers.len() == 0
            && self.pending_answers.is_empty()
            && self.deferred_migrates.is_empty()
            && !self.departed_stream_needs_output
    }

    /// Returns whether the connection belongs to a session or is about to.
    pub(crate) fn is_member(&self) -> bool {
        let member = match self.membership {
            Membership::KeyingFounder
            | Membership::KeyingJoin
            | Membership::Joining { .. }
            | Membership::Joined => true,
            Membership::NotMember | Membership::Former | Membership::JoiningFormer => false,
        };
        member && !self.is_dead()
    }

    /// Client: returns whether a JOIN waits for its keying material.
    pub(crate) fn owes_join(&self) -> bool {
        match self.membership {
            Membership::KeyingJoin => true,
            Membership::KeyingFounder => self.spec.security == Security::TrustedCleartext,
            Membership::NotMember
            | Membership::Joining { .. }
            | Membership::Joined
            | Membership::Former
            | Membership::JoiningFormer => false,
        }
    }

    /// Client: returns whether a JOIN is unsent or unanswered.
    pub(crate) fn awaits_join(&self) -> bool {
        let sent =
            matches!(self.membership, Membership::Joining { .. } | Membership::JoiningFormer);
        !self.is_dead() && (sent || self.owes_join())
    }

    /// Returns whether the extension is active on this connection and it belongs to the session.
    pub(crate) fn is_joined(&self) -> bool {
        // Over TLS the first connection is joined from the start (SMIG-3.6/founding): its frames
        // may arrive before the driver has supplied the key, which only later joins need.
        let is_founder =
            self.membership == Membership::KeyingFounder && self.spec.security == Security::Tls13;
        !self.is_dead() && (is_founder || self.membership == Membership::Joined)
    }

    /// Returns whether MIGRATE is permitted here: the peer may still regard the connection as a
    /// member of its session.
    pub(crate) fn accepts_migrate(&self) -> bool {
        self.is_joined() || (!self.is_dead() && self.membership == Membership::Former)
    }

    /// Returns the record of an open migration from `s1`, whose stream has ended.
    pub(crate) fn pending_answer(&self, s1: StreamId) -> Option<PendingAnswer> {
        self.pending_answers.iter().find(|due| due.s1 == s1).copied()
    }

    /// Removes and returns the record of an open migration from `s1`, whose stream has ended.
    pub(crate) fn take_pending_answer(&mut self, s1: StreamId) -> Option<PendingAnswer> {
        let index = self.pending_answers.iter().position(|due| due.s1 == s1)?;
        Some(self.pending_answers.swap_remove(index))
    }

    /// Returns where the frame is that was put into the control queue last.
    pub(crate) fn last_framed(&mut self) -> SentAt {
        let queued = u64::from(self.control_queue.count_frames().frames);
        let sent = self.receipts.as_ref().map_or(0, |receipts| receipts.last_sent().0);
        SentAt { conn: self.id, frame: FrameNumber(sent + queued) }
    }

    /// Counts frames that were taken from the engine. Returns where the last one is.
    pub(crate) fn count_sent(&mut self, frames: u64) -> SentAt {
        let receipts = self.receipts.as_mut();
        let frame = receipts.map_or(FrameNumber(0), |receipts| receipts.on_sent(frames));
        SentAt { conn: self.id, frame }
    }

    pub(crate) fn peer_max_frame_size(&self) -> usize {
        self.peer_settings.max_frame_size as usize
    }

    /// Returns the stream keys in ascending order of their IDs here: hash order must not affect
    /// behavior.
    pub(crate) fn keys_in_order(&self) -> Vec<(StreamId, StreamKey)> {
        self.keys_above(StreamId::CONNECTION)
    }

    /// Like [`Self::keys_in_order`], for IDs above `last`.
    pub(crate) fn keys_above(&self, last: StreamId) -> Vec<(StreamId, StreamKey)> {
        sorted_keys_above(&self.streams, last)
    }

    /// Like [`Self::keys_in_order`], for the streams that moved away.
    pub(crate) fn vacated_keys_in_order(&self) -> Vec<(StreamId, StreamKey)> {
        sorted_keys_above(&self.vacated_streams, StreamId::CONNECTION)
    }
}

fn sorted_keys_above(
    map: &FxHashMap<StreamId, StreamKey>,
    above: StreamId,
) -> Vec<(StreamId, StreamKey)> {
    #[expect(clippy::disallowed_methods, reason = "sorted before use")]
    let streams = map.iter();
    let mut keys: Vec<_> =
        streams.filter(|&(&id, _)| id > above).map(|(&id, &key)| (id, key)).collect();
    keys.sort_unstable_by_key(|&(id, _)| id);
    keys
}
