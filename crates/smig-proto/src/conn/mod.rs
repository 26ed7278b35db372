//! One HTTP/2 connection: everything that is bound to one ordered byte stream.
//!
//! Owns HPACK contexts, settings, the connection's windows, which ids are used, unsent control
//! frames and the schedule of streams. Knows streams by key only and never looks inside them; what
//! concerns a stream or the session is [`crate::session`]'s.

mod assembly;
mod budget;
mod carriers;
mod ledger;
mod outbox;
mod scheduler;
mod settings;

use core::fmt;

use http::uri::Authority;
use rustc_hash::FxHashMap;

pub(crate) use assembly::{Assembly, BlockKind};
pub(crate) use budget::{Charge, Counter, Offence, ResetBudget, TokenBucket};
pub(crate) use carriers::{Carriers, Early, EarlyItem};
pub(crate) use ledger::{Ledger, Standing};
pub(crate) use outbox::Outbox;
pub use outbox::Transmit;
pub(crate) use scheduler::Scheduler;
pub(crate) use settings::PeerSettings;

use crate::error::{ConnectionError, ErrorCode};
use crate::flow::{INITIAL_WINDOW, RecvWindow, SendWindow};
use crate::hpack;
use crate::migrate::{AnswerDue, WaitingMove};
use crate::priority::Priority;
use crate::stream::{Buffer, StreamKey};
use crate::time::Instant;
use crate::wire::{Cid, StreamId};

/// One TCP connection of a session, as the driver and the engine name it. Never reused in a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(crate) u32);

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnId({})", self.0)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What protects a connection, which decides how SMig may be used on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS 1.3: exporters prove membership.
    Tls13,
    /// Cleartext on a network that both sides were told to trust (SMIG-3.8/cleartext-off). It
    /// protects against nothing on the path.
    TrustedCleartext,
    /// Anything else: SMig stays off.
    Plain,
}

/// The driver's digest of what must be equal for a connection to join a session: listener, SNI,
/// client certificate, tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 32]);

/// What the connection's octets are used for; the driver tunes its socket by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionRole {
    /// New streams start here.
    #[default]
    Interactive,
    /// Big transfers were moved here.
    Bulk,
}

/// What the driver knows of a new connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSpec {
    /// What protects it.
    pub security: Security,
    /// Whom it belongs to.
    pub identity: Identity,
}

/// How far a connection has come. Receiving side; sending needs no state before the end.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Server: octets of the preface still to come.
    Preface,
    /// The peer's SETTINGS are to come.
    Settings,
    Open,
    /// Server: JOIN was read and waits for its answer; nothing further is read
    /// (SMIG-4.2/join-first).
    JoinPending {
        nonce: [u8; 16],
        mac: [u8; 32],
    },
    /// GOAWAY with an error was sent, or the transport is gone.
    Dead,
}

/// The connection's place in the session (SMIG section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The extension is off here, or not negotiated yet.
    Plain,
    /// Keying material was asked for: of the session's key, or of a join.
    KeyingFounder,
    KeyingJoin,
    /// Client: JOIN was sent.
    Joining {
        nonce: [u8; 16],
        exporter: [u8; 32],
    },
    /// Founder, or proved by JOIN.
    Joined,
    /// Client: joined to a session that the server has forgotten since, or about to be. Its streams go
    /// on, and none moves from it or to it (SMIG-4.8/new-session).
    Former,
    /// The same, while the answer to its JOIN is to come; the key that could check it is gone.
    JoiningFormer,
}

/// Server: whether JOIN may come on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinTurn {
    /// It may: which session the connection belongs to is not settled.
    Open,
    /// It belongs to its session for good: it has joined it, has founded it by a JOIN, or others have
    /// joined it (SMIG-4.14/join-once).
    Over,
}

/// Frames that RFC 9113 allows but that only an attacker sends many of.
#[derive(Debug)]
pub(crate) struct Nuisances {
    pub(crate) empty_in_a_row: u32,
    /// PRIORITY frames, which mean nothing here.
    pub(crate) priorities_in_a_row: u32,
    pub(crate) settings: Counter,
    pub(crate) tiny_frames: Counter,
    /// JOINs that were refused, for whatever reason.
    pub(crate) refused_joins: u8,
}

impl Nuisances {
    /// Something useful came: what came in a row has ended.
    pub(crate) const fn end_rows(&mut self) {
        self.empty_in_a_row = 0;
        self.priorities_in_a_row = 0;
    }
}

/// GOAWAY in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GoAways {
    /// The last id that we told the peer; frames above it are ignored.
    pub(crate) sent: Option<StreamId>,
    pub(crate) received: Option<StreamId>,
    /// Since when the PING is unanswered behind which the second GOAWAY follows.
    pub(crate) draining: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) spec: ConnectionSpec,
    pub(crate) cid: Option<Cid>,
    pub(crate) phase: Phase,
    pub(crate) membership: Membership,
    pub(crate) join_turn: JoinTurn,
    /// Client: since when its JOIN is unanswered.
    pub(crate) join_since: Option<Instant>,
    pub(crate) role: ConnectionRole,
    pub(crate) decoder: hpack::Decoder,
    pub(crate) encoder: hpack::Encoder,
    /// Of the last request that came: most are for the same.
    pub(crate) authority: Option<Authority>,
    pub(crate) assembly: Option<Assembly>,
    pub(crate) input: Buffer,
    pub(crate) peer: PeerSettings,
    /// Our SETTINGS were acknowledged.
    pub(crate) settings_acked: bool,
    pub(crate) send_window: SendWindow,
    pub(crate) recv_window: RecvWindow,
    pub(crate) streams: FxHashMap<StreamId, StreamKey>,
    /// Streams that were here and moved on.
    pub(crate) departed: FxHashMap<StreamId, StreamKey>,
    /// Something was sent here on which a stream depends that is not here any more: the answer that let it move
    /// on (SMIG-8.8/c1-ends-at-mover), or the end of its request, with which it was complete at this side. The peer
    /// does not report when that has arrived.
    pub(crate) relied_on: bool,
    pub(crate) answers_due: Vec<AnswerDue>,
    pub(crate) waiting_moves: Vec<WaitingMove>,
    pub(crate) local_ids: Ledger,
    pub(crate) peer_ids: Ledger,
    pub(crate) carriers: Carriers,
    pub(crate) idle_priorities: Vec<(StreamId, Priority)>,
    pub(crate) scheduler: Scheduler,
    /// Streams that wait for the connection's window.
    pub(crate) blocked: Vec<StreamKey>,
    pub(crate) out: Outbox,
    pub(crate) goaway: GoAways,
    pub(crate) nuisances: Nuisances,
    pub(crate) born: Instant,
    pub(crate) error: Option<ConnectionError>,
    /// Octets of DATA payload each way.
    pub(crate) data_sent: u64,
    pub(crate) data_received: u64,
}

impl Connection {
    pub(crate) fn new(id: ConnId, spec: ConnectionSpec, phase: Phase, now: Instant) -> Self {
        Self {
            id,
            spec,
            cid: None,
            phase,
            membership: Membership::Plain,
            join_turn: JoinTurn::Open,
            join_since: None,
            role: ConnectionRole::default(),
            decoder: hpack::Decoder::new(4096),
            encoder: hpack::Encoder::new(),
            authority: None,
            assembly: None,
            input: Buffer::default(),
            peer: PeerSettings::default(),
            settings_acked: false,
            send_window: SendWindow::new(INITIAL_WINDOW),
            recv_window: RecvWindow::new(INITIAL_WINDOW),
            streams: FxHashMap::default(),
            departed: FxHashMap::default(),
            relied_on: false,
            answers_due: Vec::new(),
            waiting_moves: Vec::new(),
            local_ids: Ledger::default(),
            peer_ids: Ledger::default(),
            carriers: Carriers::default(),
            idle_priorities: Vec::new(),
            scheduler: Scheduler::default(),
            blocked: Vec::new(),
            out: Outbox::default(),
            goaway: GoAways::default(),
            nuisances: Nuisances {
                empty_in_a_row: 0,
                priorities_in_a_row: 0,
                settings: Counter::default(),
                tiny_frames: Counter::default(),
                refused_joins: 0,
            },
            born: now,
            error: None,
            data_sent: 0,
            data_received: 0,
        }
    }

    pub(crate) const fn is_dead(&self) -> bool {
        matches!(self.phase, Phase::Dead)
    }

    /// Whether streams may be opened here, or moved here, as far as GOAWAY says and a JOIN that must
    /// come before them (SMIG-4.1/client-proof).
    pub(crate) fn takes_streams(&self) -> bool {
        !self.is_dead()
            && !self.owes_join()
            && self.goaway.sent.is_none()
            && self.goaway.received.is_none()
    }

    /// Whether the connection belongs to a session or is about to.
    pub(crate) fn is_member(&self) -> bool {
        let member = match self.membership {
            Membership::KeyingFounder
            | Membership::KeyingJoin
            | Membership::Joining { .. }
            | Membership::Joined => true,
            Membership::Plain | Membership::Former | Membership::JoiningFormer => false,
        };
        member && !self.is_dead()
    }

    /// Client: whether a JOIN waits for its keying material.
    pub(crate) fn owes_join(&self) -> bool {
        match self.membership {
            Membership::KeyingJoin => true,
            Membership::KeyingFounder => self.spec.security == Security::TrustedCleartext,
            Membership::Plain
            | Membership::Joining { .. }
            | Membership::Joined
            | Membership::Former
            | Membership::JoiningFormer => false,
        }
    }

    /// Client: whether a JOIN is to be sent or answered.
    pub(crate) fn awaits_join(&self) -> bool {
        let sent =
            matches!(self.membership, Membership::Joining { .. } | Membership::JoiningFormer);
        !self.is_dead() && (sent || self.owes_join())
    }

    /// Whether the extension runs on this connection and it belongs to the session.
    pub(crate) fn is_joined(&self) -> bool {
        // Over TLS the first connection is joined from the start (SMIG-3.6/founding): its frames
        // may come before the driver has supplied the key, which only later joins need.
        let founds =
            self.membership == Membership::KeyingFounder && self.spec.security == Security::Tls13;
        !self.is_dead() && (founds || self.membership == Membership::Joined)
    }

    /// Whether MIGRATE may come here: the peer may still take it for a connection of its session.
    pub(crate) fn may_be_named(&self) -> bool {
        self.is_joined() || (!self.is_dead() && self.membership == Membership::Former)
    }

    /// Whether the peer owes the answer to a move from `s1`, whose stream is over.
    pub(crate) fn owes_answer(&self, s1: StreamId) -> bool {
        self.answers_due.iter().any(|due| due.s1 == s1)
    }

    /// Takes the record of an open migration from `s1`, whose stream is over.
    pub(crate) fn take_answer_due(&mut self, s1: StreamId) -> Option<AnswerDue> {
        let at = self.answers_due.iter().position(|due| due.s1 == s1)?;
        Some(self.answers_due.swap_remove(at))
    }

    pub(crate) fn max_frame(&self) -> usize {
        self.peer.max_frame_size as usize
    }

    /// Why the connection ended, for streams that end with it.
    pub(crate) fn end_code(&self) -> ErrorCode {
        self.error.as_ref().map_or(ErrorCode::Cancel, |error| error.code)
    }

    /// Stream keys in order of their ids here: hash order must not reach behaviour.
    pub(crate) fn keys_in_order(&self) -> Vec<(StreamId, StreamKey)> {
        self.keys_above(StreamId::CONNECTION)
    }

    /// The same for ids above `last`.
    pub(crate) fn keys_above(&self, last: StreamId) -> Vec<(StreamId, StreamKey)> {
        #[expect(clippy::disallowed_methods, reason = "sorted before use")]
        let streams = self.streams.iter();
        let above = streams.filter(|&(&id, _)| id > last);
        let mut keys: Vec<_> = above.map(|(&id, &key)| (id, key)).collect();
        keys.sort_unstable_by_key(|&(id, _)| id);
        keys
    }
}
