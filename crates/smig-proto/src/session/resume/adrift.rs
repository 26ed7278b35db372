//! Streams whose connection has ended, and how they end if nobody resumes them (SMIG-13.2/adrift, SMIG-13.13/linger).

use crate::conn::{Connection, Offence};
use crate::error::{Cause, ErrorCode, Initiator, Processed, StreamError};
use crate::ids::{ConnId, Side, StreamAddr};
use crate::session::{Event, Session};
use crate::stream::{Stream, StreamKey};
use crate::time::Instant;
use crate::wire::EndStream;

impl Session {
    /// Handles the end of a connection that carried the stream, or to which it moves. Returns false if it cannot be
    /// resumed.
    pub(crate) fn on_carrier_ended(&mut self, key: StreamKey, ended: ConnId) -> bool {
        let Some(stream) = self.streams.find_known(key) else { return true };
        if stream.resumption.is_none() || !self.can_resume() {
            return false;
        }
        // C2: the answer on C1 decides (SMIG-8.9/c2-ends-early).
        let is_c2 = stream.binding.open_migration().is_some_and(|open| open.to.conn == ended);
        if is_c2 && stream.binding.recv_addr().conn != ended {
            return false;
        }
        self.set_adrift(key);
        true
    }

    /// The answer to this side's MIGRATE has bound the stream to a connection that has ended meanwhile.
    pub(crate) fn on_bound_to_ended(&mut self, key: StreamKey, ended: ConnId) {
        let can_be_resumed =
            self.streams.find_known(key).is_some_and(|stream| stream.resumption.is_some());
        if !can_be_resumed || !self.can_resume() {
            self.fail_with_connection(key, ended);
        } else if self.is_lost(ended) {
            // LOST has overtaken the answer (SMIG-13.12/lost-last).
            self.set_adrift(key);
            let error = self.cancelled_by_peer(ended);
            self.fail_unresumed(key, error);
        } else {
            self.set_adrift(key);
            self.resume_all();
        }
    }

    /// The stream has no place any more, and waits for RESUME.
    pub(super) fn set_adrift(&mut self, key: StreamKey) {
        self.leave_all(key);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let is_first = !stream.is_resuming();
        if let Some(resumption) = &mut stream.resumption {
            resumption.set_adrift();
        }
        let is_kept = stream.send.kept().is_some_and(|kept| !kept.is_empty());
        if stream.has_ended_both_directions() && (self.side == Side::Server || !is_kept) {
            // The server waits for RESUME without the application; a client lacks nothing.
            self.set_bound(key);
            self.finish_if_complete(key);
        } else if is_first {
            self.events.push_back(Event::Adrift { stream: key });
        }
    }

    /// Leaves all IDs of the stream. Everything that concerns them is void (SMIG-13.7/earlier-void).
    pub(super) fn leave_all(&mut self, key: StreamKey) {
        self.unschedule(key);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if stream.binding.is_adrift() {
            return;
        }
        let addr = stream.binding.recv_addr();
        let open = stream.binding.set_adrift();
        let vacated = stream.binding.take_vacated_addrs();
        if let Some(resumption) = &mut stream.resumption {
            // An answer that was sent there may be lost.
            resumption.left_conns.extend(vacated.iter().map(|at| at.conn));
        }
        self.forget_vacated_addrs(&vacated);
        self.decline_deferred_migrate(addr);
        if let Some(open) = open {
            if let Some(kept) = self.streams.find_known_mut(key).and_then(|s| s.send.kept_mut()) {
                kept.void_barrier();
            }
            self.leave(key, open.to);
            self.drop_early_frames(*open);
        }
        self.leave(key, addr);
    }

    /// Leaves an ID on which the peer may have the stream: what comes there is dropped from now on.
    fn leave(&mut self, key: StreamKey, at: StreamAddr) {
        self.unmap(at);
        self.ignore_late_frames(at);
        let is_live = self.conns.find(at.conn).is_some_and(|conn| !conn.is_dead());
        let resumption = self.streams.find_known_mut(key).and_then(|s| s.resumption.as_mut());
        let Some(resumption) = resumption else { return };
        resumption.left_conns.push(at.conn);
        if is_live {
            resumption.earlier.push(at);
            if let Some(session) = &mut self.resumption {
                session.dropped_at.push(at);
            }
        }
    }

    /// Declines the peer's MIGRATE on this ID that waits for a JOIN, or forgets it if the connection on which it came has
    /// ended (SMIG-13.7/earlier-void, SMIG-13.2/adrift).
    fn decline_deferred_migrate(&mut self, from: StreamAddr) {
        let mut carrier = None;
        for conn in self.conns.iter_mut() {
            conn.deferred_migrates.retain(|waiting| {
                if waiting.from == from {
                    carrier = waiting.migrate.dst;
                }
                waiting.from != from
            });
        }
        if let Some(dst) = carrier {
            self.drop_carrier(dst);
            let charge = self.reset_budget.debit(Offence::Refused);
            self.decline(from, EndStream::No, charge);
        }
    }

    /// Returns what an answer says of this side's direction that declines a MIGRATE of a stream which is not there: it has
    /// ended, unless it goes on elsewhere (SMIG-13.7/earlier-void).
    pub(crate) fn end_of_stray(&self, at: StreamAddr) -> EndStream {
        let session = self.resumption.as_ref();
        match session.is_some_and(|session| session.dropped_at.contains(&at)) {
            true => EndStream::No,
            false => EndStream::Yes,
        }
    }

    /// The stream's place is certain again, or it has ended: its earlier IDs do not matter any more.
    pub(super) fn set_bound(&mut self, key: StreamKey) {
        let stream = self.streams.find_known_mut(key);
        let Some(resumption) = stream.and_then(|stream| stream.resumption.as_mut()) else { return };
        resumption.set_bound();
        self.count_dropped_again();
    }

    /// Counts in receipts what was dropped for streams that are not being resumed any more.
    pub(crate) fn count_dropped_again(&mut self) {
        let Some(session) = &mut self.resumption else { return };
        if session.dropped_at.is_empty() {
            return;
        }
        let resuming = self.streams.iter().filter_map(|(_, stream)| stream.resumption.as_ref());
        session.dropped_at = resuming.flat_map(|it| it.earlier.iter().copied()).collect();
        for conn in self.conns.iter_mut() {
            if !session.dropped_at.iter().any(|at| at.conn == conn.id)
                && let Some(receipts) = &mut conn.receipts
            {
                receipts.release();
            }
        }
    }

    /// Handles what else ends with a connection, after the streams that it carried.
    pub(crate) fn after_connection_end(&mut self, ended: ConnId) {
        if !self.can_resume() {
            return;
        }
        if self.side == Side::Client {
            // The answer by which this side followed was lost (SMIG-13.2/adrift).
            let lacks = |stream: &Stream| {
                stream.resumption.is_some()
                    && !stream.has_failed()
                    && !stream.is_resuming()
                    && stream.send.kept().is_some_and(|kept| kept.lacks_answer_on(ended))
            };
            for key in self.keys_where(lacks) {
                self.set_adrift(key);
            }
            self.revive_unread_on(ended);
            self.resume_all();
        }
        self.report_lost();
    }

    /// A connection has joined the session: streams may be resumed there.
    pub(crate) fn on_joined(&mut self, conn_id: ConnId) {
        self.set_receipts(conn_id, true);
        self.resume_all();
        self.report_lost();
    }

    pub(super) fn keys_where(&self, is_wanted: impl Fn(&Stream) -> bool) -> Vec<StreamKey> {
        let found = self.streams.iter().filter(|(_, stream)| is_wanted(stream));
        found.map(|(key, _)| key).collect()
    }

    /// Fails a stream that was not resumed.
    pub(super) fn fail_unresumed(&mut self, key: StreamKey, error: StreamError) {
        self.reset_earlier(key, ErrorCode::Cancel);
        if let Some(stream) = self.streams.find(key)
            && !stream.binding.is_adrift()
        {
            // The server may accept the RESUME that was sent there.
            self.queue_reset(stream.binding.recv_addr(), ErrorCode::Cancel);
        }
        self.set_bound(key);
        let Some(stream) = self.streams.find_known(key) else { return };
        if stream.is_complete() {
            // For a stream that has ended here no refusal is a failure (SMIG-13.14/kept-to-the-end).
            if let Some(stream) = self.streams.find_known_mut(key) {
                stream.send.forget_kept();
            }
            self.finish_if_complete(key);
            return;
        }
        self.finish_failed_stream(key, error, None);
    }

    /// Resets the stream on each earlier ID whose connection lives (SMIG-13.11/reset-earlier).
    pub(crate) fn reset_earlier(&mut self, key: StreamKey, code: ErrorCode) {
        let Some(stream) = self.streams.find_known(key) else { return };
        let Some(resumption) = &stream.resumption else { return };
        for at in resumption.earlier.clone() {
            self.queue_reset(at, code);
        }
    }

    /// Fails all streams that are adrift: the session in which they could be resumed is gone.
    pub(super) fn fail_adrift(&mut self) {
        for key in self.keys_where(|stream| !stream.has_failed() && stream.is_resuming()) {
            let error = self.not_resumed(key, Cause::SessionForgotten);
            self.fail_unresumed(key, error);
        }
    }

    pub(super) fn not_resumed(&self, key: StreamKey, cause: Cause) -> StreamError {
        let stream = self.streams.find_known(key);
        StreamError {
            code: cause.code(),
            initiator: Initiator::Transport,
            cause: Some(cause),
            connection: stream.map_or(ConnId(0), |stream| stream.binding.recv_addr().conn),
            processed: Processed::Maybe,
        }
    }

    /// Checks what waits to be resumed, once a second.
    pub(crate) fn check_resumption_timeouts(&mut self, now: Instant) {
        let Some(session) = &mut self.resumption else { return };
        let linger = session.linger;
        session.ended_streams.expire(now, linger);
        let forgotten = session.ended_conns.expire(now, linger);
        if self.side == Side::Server {
            forgotten.into_iter().for_each(|conn| self.let_go_of_sent_on(conn));
        }
        let answer_timeout = self.config.smig.as_ref().map(|smig| smig.answer_timeout);
        let (mut expired, mut unanswered) = (Vec::new(), Vec::new());
        for (key, stream) in self.streams.iter_mut() {
            if stream.has_failed() || !stream.is_resuming() {
                continue;
            }
            let conn = stream.binding.recv_addr().conn;
            let is_requested = !stream.binding.is_adrift();
            let Some(resumption) = &mut stream.resumption else { continue };
            let since = *resumption.adrift_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= linger {
                expired.push(key);
            } else if self.side == Side::Client && is_requested {
                let since = *resumption.requested_since.get_or_insert(now);
                let waited = now.saturating_duration_since(since);
                if answer_timeout.is_some_and(|timeout| waited >= timeout) {
                    unanswered.push(conn);
                }
            }
        }
        for key in expired {
            self.events.push_back(Event::LimitHit {
                conn: self
                    .streams
                    .find_known(key)
                    .map_or(ConnId(0), |s| s.binding.recv_addr().conn),
                limit: "time to resume a stream",
            });
            let error = self.not_resumed(key, Cause::Lingered);
            self.fail_unresumed(key, error);
        }
        for conn_id in unanswered {
            // It is taken as ended (SMIG-13.3/attempts).
            self.abort_connection(now, conn_id);
        }
        self.resume_all_at(Some(now));
        self.report_lost();
        if self.conns.is_empty() && !self.may_continue() {
            // SMIG-13.13/linger
            self.leave_session();
        }
        if self.side == Side::Client && self.is_closing && !self.lingers() {
            // Connections that joined for streams that were adrift.
            let is_new = |conn: &&Connection| !conn.is_dead() && !conn.is_going_away();
            let new: Vec<ConnId> = self.conns.iter().filter(is_new).map(|conn| conn.id).collect();
            new.into_iter().for_each(|conn| self.drain(now, conn));
        }
    }

    /// Ends a connection without a word, and has the driver close it.
    pub(super) fn abort_connection(&mut self, now: Instant, conn_id: ConnId) {
        if self.conns.find(conn_id).is_none_or(|conn| conn.is_dead()) {
            return;
        }
        self.end_connection(now, conn_id, None);
        self.events.push_back(Event::AbortTransport { conn: conn_id });
    }
}
