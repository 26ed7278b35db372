//! Connections that have ended, and LOST (SMIG-13.12/lost-last, SMIG-13.9/never-processed).

use core::time::Duration;

use crate::error::{Cause, ErrorCode, Initiator, InputError, Processed, StreamError};
use crate::ids::{Cid, ConnId, FrameNumber, SentAt, Side, StreamAddr, StreamId, StreamName};
use crate::session::Session;
use crate::stream::Stream;
use crate::time::Instant;
use crate::wire;

/// Maximum number of connections that have ended and are remembered.
const MAX_ENDED_CONNS: usize = 64;

/// Maximum number of requests that were promised not to be processed and may still come.
const MAX_REFUSED_REQUESTS: usize = 128;

/// Maximum number of ConnNos that must not join: a client has fewer connections that have not joined.
const MAX_FORBIDDEN_CONNS: usize = 64;

/// A connection of the session that has ended.
#[derive(Debug)]
struct EndedConnection {
    /// Its ConnNo.
    number: u32,
    id: ConnId,
    /// Server: the last request that was read there.
    last_request: StreamId,
    /// Where LOST was sent.
    reported: Option<SentAt>,
    /// The peer's LOST was read. At a server, it names what the client has given up.
    is_lost: bool,
    /// Whether one end may lack what the other has sent there, as far as this side knows: it did not end in order, or not
    /// everything was covered.
    is_unsettled: bool,
    since: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct EndedConnections(Vec<EndedConnection>);

/// What a server knows of the connection on which a stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// It lives, or its requests are known up to this one.
    Known { last_request: StreamId },
    /// It never joined the session, or the client has given it up.
    Unknown,
}

impl EndedConnections {
    fn find_mut(&mut self, number: u32) -> Option<&mut EndedConnection> {
        self.0.iter_mut().find(|conn| conn.number == number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_lost(&self, id: ConnId) -> bool {
        self.0.iter().any(|conn| conn.id == id && conn.is_lost)
    }

    /// Returns whether one end may lack something that the other has sent on one of them.
    pub(super) fn is_unsettled(&self) -> bool {
        self.0.iter().any(|conn| conn.is_unsettled)
    }

    /// Forgets connections that ended `linger` ago. Returns them.
    pub(super) fn expire(&mut self, now: Instant, linger: Duration) -> Vec<ConnId> {
        let mut expired = Vec::new();
        self.0.retain_mut(|conn| {
            let since = *conn.since.get_or_insert(now);
            let is_late = now.saturating_duration_since(since) >= linger;
            if is_late {
                expired.push(conn.id);
            }
            !is_late
        });
        expired
    }

    /// Client: forgets what the server is known to have read.
    pub(super) fn on_receipt(&mut self, on: ConnId, last: FrameNumber) {
        self.0.retain(|conn| !conn.reported.is_some_and(|at| at.conn == on && at.frame <= last));
    }
}

impl Session {
    /// Remembers a connection that is about to end.
    pub(crate) fn note_connection_end(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.find_known(conn_id) else { return };
        let is_joined = conn.is_joined();
        let has_ended_in_order = conn.is_going_away()
            || conn.receipts.as_ref().is_some_and(|receipts| receipts.is_closed_in_order);
        let is_unsettled = !(has_ended_in_order && self.is_settled(conn));
        let (Some(cid), Some(session)) = (conn.cid, &mut self.resumption) else { return };
        if !is_joined || !session.is_agreed {
            return self.make_unresumable(conn_id);
        }
        session.member_spec = Some(conn.spec);
        session.refused_requests.retain(|at| at.conn != conn_id);
        session.ended_streams.on_connection_end(conn_id);
        let ended = &mut session.ended_conns.0;
        if ended.len() >= MAX_ENDED_CONNS {
            ended.remove(0);
        }
        // LOST that was sent there may not have arrived.
        for conn in
            ended.iter_mut().filter(|conn| conn.reported.is_some_and(|at| at.conn == conn_id))
        {
            conn.reported = None;
        }
        ended.push(EndedConnection {
            number: cid.number,
            id: conn_id,
            last_request: conn.peer_ids.highest_opened(),
            reported: None,
            is_lost: session.named_lost == Some(cid.number),
            is_unsettled,
            since: None,
        });
    }

    /// Sends LOST for connections that have ended, when it can hurt no stream that is being resumed.
    pub(super) fn report_lost(&mut self) {
        if !self.can_resume() {
            return;
        }
        let usable = self.conns.iter().find(|conn| conn.is_joined()).map(|conn| conn.id);
        let (Some(on), Some(app), Some(session)) = (usable, self.app_id, &self.resumption) else {
            return;
        };
        let is_client = self.side == Side::Client;
        let may_need = |conn: ConnId| {
            let needs = |stream: &Stream| {
                let resumption = stream.resumption.as_ref();
                let was_there = stream.is_resuming()
                    && resumption.is_some_and(|it| it.left_conns.contains(&conn));
                let moves = stream.binding.open_migration();
                was_there || moves.is_some_and(|open| open.to.conn == conn)
            };
            is_client && self.streams.iter().any(|(_, stream)| needs(stream))
        };
        let unreported = session
            .ended_conns
            .0
            .iter()
            .filter(|conn| is_client || conn.is_unsettled && !conn.is_lost)
            .filter(|conn| conn.reported.is_none());
        let due: Vec<_> =
            unreported.filter(|conn| !may_need(conn.id)).map(|conn| conn.number).collect();
        let code_points = self.resume_code_points();
        for number in due {
            let Some(conn) = self.conns.find_live_mut(on) else { return };
            wire::write_lost(&mut conn.control_queue.frames, &code_points, Cid { app, number });
            let sent_at = conn.last_framed();
            let session = self.resumption.as_mut();
            if let Some(ended) = session.and_then(|session| session.ended_conns.find_mut(number)) {
                ended.reported = Some(sent_at);
            }
        }
    }

    /// Handles LOST.
    pub(crate) fn on_lost(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        lost: Cid,
    ) -> Result<(), InputError> {
        if self.app_id != Some(lost.app) {
            return self.count_empty_frame(conn_id);
        }
        let live = self.conn_by_cid(lost);
        let was_live = live.is_some();
        if let Some(ended) = live {
            if ended == conn_id {
                // It has arrived there.
                return Err(Cause::BadResume.into());
            }
            if let Some(session) = &mut self.resumption {
                session.named_lost = Some(lost.number);
            }
            self.abort_connection(now, ended);
            if let Some(session) = &mut self.resumption {
                session.named_lost = None;
            }
        }
        let session = self.resumption.as_mut();
        let found = session.and_then(|session| session.ended_conns.find_mut(lost.number));
        let Some(ended) = found else {
            if self.side == Side::Server {
                self.forbid_connection(lost.number);
            }
            return self.count_empty_frame(conn_id);
        };
        let is_news = !std::mem::replace(&mut ended.is_lost, true) || was_live;
        if self.side == Side::Client {
            return if is_news { Ok(()) } else { self.count_empty_frame(conn_id) };
        }
        ended.is_unsettled = false;
        let id = ended.id;
        if let Some(session) = &mut self.resumption {
            session.ended_streams.on_lost(id);
        }
        self.let_go_of_sent_on(id);
        let is_there = |stream: &Stream| {
            !stream.has_failed()
                && stream.binding.is_adrift()
                && stream.binding.recv_addr().conn == id
        };
        for key in self.keys_where(is_there) {
            let error = self.cancelled_by_peer(id);
            self.fail_unresumed(key, error);
        }
        if is_news { Ok(()) } else { self.count_empty_frame(conn_id) }
    }

    /// Server: the client resumes nothing any more because of this connection. Streams that are elsewhere lack nothing that was
    /// sent there: it would have resumed them first (SMIG-13.12/lost-last).
    pub(super) fn let_go_of_sent_on(&mut self, conn: ConnId) {
        let last = FrameNumber(u64::MAX);
        for (_, stream) in self.streams.iter_mut() {
            if let Some(kept) = stream.send.kept_mut() {
                kept.on_receipt(conn, last);
            }
        }
        if let Some(session) = &mut self.resumption {
            session.ended_streams.on_receipt(conn, last, Side::Server);
        }
    }

    /// Server: a connection that has not joined yet never will (SMIG-13.9/never-processed).
    pub(super) fn forbid_connection(&mut self, number: u32) {
        let Some(session) = &mut self.resumption else { return };
        let forbidden = &mut session.forbidden_conns;
        if self.conn_numbers.may_join(number) && !forbidden.contains(&number) {
            if forbidden.len() >= MAX_FORBIDDEN_CONNS {
                forbidden.remove(0);
            }
            forbidden.push(number);
        }
    }

    /// Server: returns whether a connection with this number must be closed when it joins.
    pub(crate) fn is_forbidden_connection(&self, number: u32) -> bool {
        self.resumption.as_ref().is_some_and(|session| session.forbidden_conns.contains(&number))
    }

    pub(crate) fn cancelled_by_peer(&self, connection: ConnId) -> StreamError {
        StreamError {
            code: ErrorCode::Cancel,
            initiator: Initiator::Peer,
            cause: None,
            connection,
            processed: Processed::Maybe,
        }
    }

    /// Server: returns whether the client has given up the connection that an accepting answer binds a stream to: LOST has
    /// overtaken the answer.
    pub(crate) fn is_lost(&self, conn_id: ConnId) -> bool {
        self.side == Side::Server
            && self.resumption.as_ref().is_some_and(|it| it.ended_conns.is_lost(conn_id))
    }

    /// Server: returns what is known of a stream's origin.
    pub(super) fn origin(&self, cid: Cid) -> Origin {
        let live = self.conns.iter().find(|conn| conn.cid == Some(cid) && conn.is_joined());
        if let Some(conn) = live {
            return Origin::Known { last_request: conn.peer_ids.highest_opened() };
        }
        let Some(session) = &self.resumption else { return Origin::Unknown };
        let ended = session.ended_conns.0.iter().find(|conn| conn.number == cid.number);
        ended
            .filter(|conn| !conn.is_lost)
            .map_or(Origin::Unknown, |conn| Origin::Known { last_request: conn.last_request })
    }

    /// Server: makes sure that a request on this ID will not be processed, if it still comes. Returns false if there are
    /// too many.
    pub(super) fn refuse_request(&mut self, name: StreamName) -> bool {
        // On a connection that has ended, nothing comes.
        let Some(conn) = self.conn_by_cid(name.cid) else { return true };
        let Some(session) = &mut self.resumption else { return false };
        let refused = &mut session.refused_requests;
        let at = StreamAddr { conn, id: name.id };
        let is_new = !refused.contains(&at);
        if is_new && refused.len() >= MAX_REFUSED_REQUESTS {
            return false;
        }
        if is_new {
            refused.push(at);
        }
        true
    }

    /// Server: returns whether the request was promised not to be processed.
    pub(crate) fn is_refused_request(&self, at: StreamAddr) -> bool {
        let session = self.resumption.as_ref();
        session.is_some_and(|session| session.refused_requests.contains(&at))
    }
}
