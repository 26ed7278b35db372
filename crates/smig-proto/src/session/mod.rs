//! All connections between one client and one server that share an AppID, and their streams.
//!
//! The engine's main interface. Owns connections, streams and limits; routes frames to streams on
//! any connection. Performs no I/O and reads no clock. Its methods are of four kinds: getters;
//! `handle_*`, input from network, clock and TLS; commands from the application; `poll_*`, output.

mod closing;
mod commands;
mod conn_numbers;
mod control;
mod data;
mod early_frames;
mod event;
mod follower;
mod headers;
mod input;
mod invariants;
mod join;
mod mover;
mod read;
mod release;
mod resets;
mod resume;
mod routing;
mod timers;
mod transmit;
mod view;

use std::collections::VecDeque;
use std::sync::Arc;

pub use commands::{OpenError, PushError, SendError};
pub use event::{Event, LostReason};
pub use join::{DetachedConnection, JoinProof, KeyingRequest};
pub use read::ReadResult;
pub use transmit::{TransmitDemand, TransmitLimits, Transmitted};
pub use view::{ConnectionView, OfferState, StreamView};

use crate::config::{Config, MIGRATION_BURST_SECONDS};
use crate::conn::{ConnState, Connection, ConnectionSpec, Connections, ResetBudget};
use crate::ids::{AppId, Cid, ConnId, Side};
use crate::role::ConnectionRole;
use crate::stream::Arena;
use crate::time::Instant;
use crate::token_bucket::TokenBucket;
use crate::wire::{self, Setting};
use conn_numbers::ConnNumbers;
use join::SessionKey;
pub(crate) use resume::Resumption;

/// All connections between one client and one server that share an AppID, and their streams.
///
/// After each `handle_*` or command: drain [`Session::poll_event`]. Then, for each connection
/// with a [`Session::transmit_demand`], call [`Session::poll_transmit`] until the transport is full.
/// Then wait for the transport or for [`Session::poll_timeout`].
#[derive(Debug)]
pub struct Session {
    pub(crate) side: Side,
    pub(crate) config: Arc<Config>,
    pub(crate) app_id: Option<AppId>,
    pub(crate) session_key: Option<SessionKey>,
    conn_numbers: ConnNumbers,
    pub(crate) conns: Connections,
    pub(crate) last_conn_id: u32,
    pub(crate) streams: Arena,
    pub(crate) events: VecDeque<Event>,
    /// Number of the peer's streams that count against the limit, in the entire session (RFC 9113
    /// section 5.1.2).
    pub(crate) open_peer_streams: u32,
    pub(crate) open_local_streams: u32,
    /// Whether an open was refused because of the peer's limit, so that an event is due.
    pub(crate) open_blocked: bool,
    /// The largest receive window that any failed stream had when it failed: the peer may be moving
    /// that stream (SMIG-5.22/unbound-bytes).
    pub(crate) max_reset_window: i64,
    pub(crate) reset_budget: ResetBudget,
    /// Number of streams that this side reset.
    pub(crate) local_resets: u64,
    pub(crate) migration_budget: TokenBucket,
    pub(crate) next_tick: Option<Instant>,
    pub(crate) is_closing: bool,
    pub(crate) carrier_role: ConnectionRole,
    /// If streams can be resumed, or may turn out to be.
    pub(crate) resumption: Option<Box<Resumption>>,
}

impl Session {
    /// Creates a server's side of a session, without connections.
    #[must_use]
    pub fn server(config: impl Into<Arc<Config>>, now: Instant) -> Self {
        Self::new(Side::Server, config.into(), None, now)
    }

    /// Creates a client's side. `app` must be 64 fresh random bits.
    #[must_use]
    pub fn client(config: impl Into<Arc<Config>>, app: AppId, now: Instant) -> Self {
        Self::new(Side::Client, config.into(), Some(app), now)
    }

    fn new(side: Side, config: Arc<Config>, app: Option<AppId>, now: Instant) -> Self {
        let limits = &config.limits;
        let reset_bucket = TokenBucket::new(limits.reset_burst, limits.resets_per_second, now);
        let migrations_per_second =
            config.smig.as_ref().map_or(0, |smig| smig.migrations_per_second);
        Self {
            side,
            app_id: app,
            session_key: None,
            conn_numbers: ConnNumbers::default(),
            conns: Connections::default(),
            last_conn_id: 0,
            streams: Arena::default(),
            events: VecDeque::new(),
            open_peer_streams: 0,
            open_local_streams: 0,
            open_blocked: false,
            max_reset_window: 0,
            local_resets: 0,
            reset_budget: match side {
                Side::Client => ResetBudget::of_server(),
                Side::Server => ResetBudget::of_client(reset_bucket),
            },
            migration_budget: TokenBucket::new(
                migrations_per_second.saturating_mul(MIGRATION_BURST_SECONDS),
                migrations_per_second,
                now,
            ),
            next_tick: None,
            is_closing: false,
            carrier_role: ConnectionRole::Bulk,
            resumption: match side {
                Side::Client => Resumption::provisional(&config),
                Side::Server => None,
            },
            config,
        }
    }

    /// Sets the role of connections that streams migrate to from now on, by either end, and of those that the client migrates them
    /// to later for offers that are made from now on; [`ConnectionRole::Bulk`] by default.
    /// With [`ConnectionRole::Interactive`] a stream is there what it was before, and not bulk because it has migrated.
    pub const fn set_carrier_role(&mut self, role: ConnectionRole) {
        self.carrier_role = role;
    }

    /// Adds a connection whose transport is ready. Queues SETTINGS immediately, and a client's
    /// preface.
    pub fn add_connection(&mut self, now: Instant, spec: ConnectionSpec) -> ConnId {
        let conn_id = self.new_conn_id();
        let state = match self.side {
            Side::Client => ConnState::Settings,
            Side::Server => ConnState::Preface,
        };
        let mut conn = Connection::new(conn_id, spec, state, now);
        if let (Side::Client, Some(app), true) =
            (self.side, self.app_id, spec.may_announce_extension(&self.config))
            && self.may_assign_cid()
        {
            conn.cid = self.conn_numbers.allocate().map(|number| Cid { app, number });
        }
        if self.config.resumption().is_some() && spec.may_announce_extension(&self.config) {
            conn.receipts = Some(Box::default());
        }
        self.write_preface(&mut conn);
        let cid = conn.cid.filter(|_| self.side == Side::Client);
        self.conns.push(conn);
        if let Some(cid) = cid {
            self.begin_join(conn_id, cid, spec.security);
        }
        let window = self.config.connection_window;
        if let Some(conn) = self.conns.find_mut(conn_id).filter(|conn| !conn.owes_join()) {
            conn.announce_window(window);
        }
        self.arm_tick(now);
        conn_id
    }

    /// Client: returns whether a new connection may have a CID. Without K it would found the
    /// session, and only one connection may do that (SMIG-3.6/founding).
    fn may_assign_cid(&self) -> bool {
        let may_found = |conn: &Connection| {
            let undecided = matches!(conn.state, ConnState::Settings);
            conn.cid.is_some() && (undecided || conn.is_member())
        };
        self.session_key.is_some() || !self.conns.iter().any(may_found)
    }

    pub(crate) const fn new_conn_id(&mut self) -> ConnId {
        self.last_conn_id += 1;
        ConnId(self.last_conn_id)
    }

    fn write_preface(&self, conn: &mut Connection) {
        let config = &self.config;
        let mut entries = vec![
            Setting::MaxConcurrentStreams(config.max_concurrent_streams),
            Setting::InitialWindowSize(config.stream_window),
            Setting::MaxFrameSize(config.max_frame_size),
            Setting::MaxHeaderListSize(config.limits.max_header_list),
            Setting::NoRfc7540Priorities(1),
        ];
        match self.side {
            Side::Client => {
                conn.control_queue.push_preface();
                let is_push_enabled = config.push == crate::config::Push::Enabled;
                entries.push(Setting::EnablePush(u32::from(is_push_enabled)));
                if !is_push_enabled {
                    // A server without push opens no streams.
                    entries.retain(|entry| !matches!(entry, Setting::MaxConcurrentStreams(_)));
                }
            }
            Side::Server => {
                if config.connect_protocol == crate::config::ConnectProtocol::Enabled {
                    entries.push(Setting::EnableConnectProtocol(1));
                }
            }
        }
        let mut code_points = wire::CodePoints::default();
        let may_announce = self.side == Side::Server || conn.cid.is_some();
        if let (Some(smig), true) =
            (&config.smig, may_announce && conn.spec.may_announce_extension(config))
        {
            code_points = smig.code_points;
            entries.push(Setting::Smig(smig.max_open_migrations));
            if let Some([hi, mid, low]) = conn.cid.map(Cid::to_settings) {
                entries.extend([Setting::CidHi(hi), Setting::CidMid(mid), Setting::CidLo(low)]);
            }
            if let Some(resumption) = config.resumption() {
                entries.push(Setting::Resume(resumption.linger_seconds()));
            }
        }
        wire::write_settings(&mut conn.control_queue.frames, &entries, &code_points);
    }

    /// Returns the next notification for the driver or the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the side of the session.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Returns the session's AppID, if known.
    #[must_use]
    pub const fn app_id(&self) -> Option<AppId> {
        self.app_id
    }

    /// Returns whether no connection is left, and no stream waits to be resumed on another one.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.conns.is_empty() && !self.lingers()
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, Session};
    use crate::stream::Stream;

    /// A server may have a hundred thousand idle sessions. 1,792 bytes are a size class of common
    /// allocators: one byte more costs each connection 256. A session is a part of its task.
    /// An arena, which has no size classes, stores the streams; their limit detects silent growth.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn connections_fit_their_size_class_and_streams_and_sessions_do_not_grow() {
        assert!(size_of::<Connection>() <= 1792, "Connection: {}", size_of::<Connection>());
        assert!(size_of::<Stream>() <= 584, "Stream: {}", size_of::<Stream>());
        assert!(size_of::<Session>() <= 320, "Session: {}", size_of::<Session>());
    }
}
