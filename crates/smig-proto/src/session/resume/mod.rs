//! Resumption: a stream goes on after the end of its connection (spec/resumption.md).
//!
//! - `adrift`: which streams have to be resumed, and what ends with their connection
//! - `client`: RESUME, and its answer; `server`: the other side
//! - `ended`: streams that have ended, as long as their peer may lack something
//! - `lost`: connections that have ended, and LOST
//! - `receipts`: RECEIPT, and what is kept

mod adrift;
mod client;
mod ended;
mod lost;
mod receipts;
mod server;

use core::time::Duration;

use crate::config::{Config, ResumptionConfig};
use crate::conn::{ConnState, Connection, ConnectionSpec};
use crate::ids::{ConnId, Side, StreamAddr, StreamName};
use crate::session::Session;
use crate::stream::{Stream, StreamKey, StreamResumption};
use crate::wire::{self, CodePoints, Resume};
use ended::EndedStreams;
use lost::EndedConnections;

/// What a session knows besides, if its streams can be resumed.
#[derive(Debug)]
pub(crate) struct Resumption {
    /// The lesser of both ends' values; a client's own until the server's SETTINGS have come.
    linger: Duration,
    is_agreed: bool,
    ended_streams: EndedStreams,
    ended_conns: EndedConnections,
    /// IDs on which frames of streams that are being resumed are dropped (SMIG-13.7/earlier-void).
    dropped_at: Vec<StreamAddr>,
    /// Server: requests that it has promised not to process, whenever they come (SMIG-13.9/never-processed).
    refused_requests: Vec<StreamAddr>,
    /// Server: ConnNos that must not join any more: LOST or RESUME has named them (SMIG-13.9/never-processed).
    forbidden_conns: Vec<u32>,
    /// The connection that the peer's LOST names, while it is being handled.
    named_lost: Option<u32>,
    /// Bytes that were kept since the last look at their sum.
    unchecked_bytes: usize,
    /// What the session's connections have in common, once one has ended.
    member_spec: Option<ConnectionSpec>,
}

impl Config {
    /// Returns the settings of resumption, unless it is off.
    pub(crate) fn resumption(&self) -> Option<&ResumptionConfig> {
        let resumption = self.smig.as_ref()?.resumption.as_ref();
        resumption.filter(|resumption| resumption.linger_seconds() > 0)
    }
}

impl ResumptionConfig {
    /// Returns the value of SETTINGS_SMIG_RESUME.
    pub(crate) fn linger_seconds(&self) -> u32 {
        u32::try_from(self.linger.as_secs()).unwrap_or(u32::MAX)
    }
}

impl Resumption {
    /// A client keeps what it sends from the start: the server may turn out to support resumption.
    pub(crate) fn provisional(config: &Config) -> Option<Box<Self>> {
        Self::new(config.resumption()?.linger, false)
    }

    fn new(linger: Duration, is_agreed: bool) -> Option<Box<Self>> {
        Some(Box::new(Self {
            linger,
            is_agreed,
            ended_streams: EndedStreams::default(),
            ended_conns: EndedConnections::default(),
            dropped_at: Vec::new(),
            refused_requests: Vec::new(),
            forbidden_conns: Vec::new(),
            named_lost: None,
            unchecked_bytes: 0,
            member_spec: None,
        }))
    }
}

impl Session {
    /// Handles SETTINGS_SMIG_RESUME of the connection that founds the session.
    pub(crate) fn negotiate_resumption(&mut self, conn_id: ConnId) {
        let Some(config) = self.config.resumption() else { return };
        if self.resumption.as_ref().is_some_and(|resumption| resumption.is_agreed) {
            return;
        }
        let conn = self.conns.find_known(conn_id);
        let peer_seconds = conn.map_or(0, |conn| conn.peer_settings.linger_seconds);
        let seconds = peer_seconds.min(config.linger_seconds());
        if seconds == 0 {
            return self.disable_resumption();
        }
        self.agree(seconds);
        self.set_receipts(conn_id, true);
    }

    fn agree(&mut self, seconds: u32) {
        match &mut self.resumption {
            Some(resumption) => {
                resumption.linger = Duration::from_secs(seconds.into());
                resumption.is_agreed = true;
            }
            none if self.side == Side::Server => {
                *none = Resumption::new(Duration::from_secs(seconds.into()), true);
            }
            // The connection that founded the session has said no.
            _ => {}
        }
    }

    /// The peer does not support resumption, or has forgotten the session: its streams fail with their connections.
    fn disable_resumption(&mut self) {
        if self.resumption.take().is_none() {
            return;
        }
        for (_, stream) in self.streams.iter_mut() {
            stream.send.forget_kept();
            stream.resumption = None;
        }
    }

    /// Client: the connection founds the session again, because the server has forgotten it. What is adrift
    /// fails, and no stream of the old session is resumed (SMIG-13.9/never-processed).
    pub(crate) fn restart_resumption(&mut self) {
        if self.resumption.is_none() {
            return;
        }
        self.fail_adrift();
        self.disable_resumption();
        self.resumption = Resumption::provisional(&self.config);
    }

    /// Forgets the session's key, with its last connection or after it has lingered: the client's next connection founds
    /// another one.
    pub(crate) fn leave_session(&mut self) {
        self.session_key = None;
        if self.side == Side::Client {
            self.restart_resumption();
        }
    }

    /// Returns whether resumption is on, and both ends know it.
    pub(crate) fn can_resume(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.is_agreed)
    }

    /// Server: returns what a connection that joins a session without connections must have in common with it.
    pub(crate) fn former_spec(&self) -> Option<ConnectionSpec> {
        self.resumption.as_ref().filter(|_| self.lingers())?.member_spec
    }

    /// Makes a stream that the client has just opened one that can be resumed.
    pub(crate) fn make_resumable(&mut self, key: StreamKey) {
        if self.resumption.is_none() {
            return;
        }
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let addr = stream.binding.send_addr();
        let conn = self.conns.find(addr.conn);
        let may_be_member = |conn: &&Connection| match self.side {
            // It may found the session when the server's SETTINGS have come.
            Side::Client => conn.is_member() || matches!(conn.state, ConnState::Settings),
            Side::Server => conn.is_joined(),
        };
        let Some(cid) = conn.filter(may_be_member).and_then(|conn| conn.cid) else { return };
        let name = StreamName { cid, id: addr.id };
        stream.resumption = Some(Box::new(StreamResumption::new(name)));
        stream.send.keep_until_receipt();
    }

    /// The connection is not one of the session: streams that were opened there cannot be resumed.
    pub(crate) fn make_unresumable(&mut self, conn_id: ConnId) {
        self.set_receipts(conn_id, false);
        let Some(cid) = self.conns.find(conn_id).and_then(|conn| conn.cid) else { return };
        for (_, stream) in self.streams.iter_mut() {
            let is_named = |resumption: &StreamResumption| resumption.name.cid == cid;
            if stream.resumption.as_ref().is_some_and(|resumption| is_named(resumption)) {
                stream.resumption = None;
                stream.send.forget_kept();
            }
        }
    }

    fn resume_code_points(&self) -> CodePoints {
        self.config.smig.as_ref().map(|smig| smig.code_points).unwrap_or_default()
    }

    /// Writes RESUME, unless its connection has ended.
    fn send_resume(&mut self, at: StreamAddr, resume: Resume) {
        let code_points = self.resume_code_points();
        if let Some(conn) = self.conns.find_live_mut(at.conn) {
            wire::write_resume(&mut conn.control_queue.frames, &code_points, at.id, resume);
        }
    }

    /// Returns whether streams may be resumed in the session although it has no connection: it keeps its key, for JOIN
    /// (SMIG-13.13/linger). Not if its connections have ended in order, and all that was sent is known to have arrived.
    #[must_use]
    pub fn lingers(&self) -> bool {
        let Some(session) = self.resumption.as_ref().filter(|session| session.is_agreed) else {
            return false;
        };
        let is_adrift = |stream: &Stream| !stream.has_failed() && stream.is_resuming();
        self.side == Side::Server
            && (session.ended_conns.is_unsettled() || session.ended_streams.has_adrift())
            || self.streams.iter().any(|(_, stream)| is_adrift(stream))
    }

    /// Returns whether the session goes on if a connection joins it now. A client that lacks nothing keeps its key, too, as long
    /// as the server may wait for it: founding another session takes a round trip more, and another AppID.
    pub(crate) fn may_continue(&self) -> bool {
        let session = self.resumption.as_ref().filter(|session| session.is_agreed);
        self.lingers() || session.is_some_and(|session| session.ended_conns.is_unsettled())
    }

    /// Returns whether a session without connections has something to check once a second.
    pub(crate) fn has_resumption_timeouts(&self) -> bool {
        self.resumption.as_ref().is_some_and(|session| {
            !session.ended_streams.is_empty() || !session.ended_conns.is_empty()
        }) || self.connections_with_due_receipts().next().is_some()
            || self.awaits_receipts()
    }
}
