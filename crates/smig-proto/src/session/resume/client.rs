//! The client resumes: RESUME, and its answer (SMIG-13.1/who-resumes, SMIG-13.3/attempts).

use core::time::Duration;

use crate::conn::{Connection, IdState};
use crate::error::{Cause, ErrorCode, Initiator, InputError, Processed, StreamError};
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::migrate::MigrateError;
use crate::session::{Event, Session};
use crate::stream::{Phase, RecvState, Stream, StreamKey};
use crate::time::Instant;
use crate::wire::{Resume, ResumePoint, ResumeRefusal};

/// The first pause after a refusal for a limit; each further one is twice as long (SMIG-13.2/adrift).
const FIRST_RETRY: Duration = Duration::from_secs(1);

impl Session {
    /// Client: pulls a running stream to another connection, without the help of the one that carries it: what is in
    /// flight there comes twice (spec/resumption.md). Nothing is sent again by the application.
    ///
    /// # Errors
    ///
    /// Returns the reason why the stream was not pulled; nothing was sent.
    pub fn pull(&mut self, key: StreamKey, to: ConnId) -> Result<(), MigrateError> {
        let stream = self.streams.find(key).ok_or(MigrateError::Ended)?;
        if stream.has_failed() || stream.is_complete() {
            return Err(MigrateError::Ended);
        }
        if self.side == Side::Server || stream.resumption.is_none() || !self.can_resume() {
            return Err(MigrateError::Disabled);
        }
        let addr = stream.binding.recv_addr();
        if stream.is_resuming() {
            return Err(MigrateError::InProgress);
        }
        let is_joined = self.conns.find(addr.conn).is_some_and(Connection::is_joined);
        if addr.conn == to || !is_joined || !self.accepts_resume(to) {
            return Err(MigrateError::NoTarget);
        }
        self.set_adrift(key);
        if !self.streams.find(key).is_some_and(Stream::is_resuming) {
            // Both directions had ended, and the server lacks nothing: only its answer was missing.
            return Ok(());
        }
        if self.resume_on(key, to) { Ok(()) } else { Err(MigrateError::NoTarget) }
    }

    /// Returns whether RESUME may be sent on this connection.
    fn accepts_resume(&self, conn_id: ConnId) -> bool {
        let conn = self.conns.find(conn_id);
        conn.is_some_and(|conn| {
            conn.is_joined()
                && conn.accepts_streams()
                && conn.local_ids.highest_used() < StreamId::MAX
        })
    }

    /// Resumes all streams that are adrift, if there is a connection for them.
    pub(crate) fn resume_all(&mut self) {
        self.resume_all_at(None);
    }

    /// Like [`Self::resume_all`], with the time if it is known: streams whose resumption the server has refused for
    /// a limit wait for it.
    pub(super) fn resume_all_at(&mut self, now: Option<Instant>) {
        if self.side == Side::Server || !self.can_resume() {
            return;
        }
        let is_due = |stream: &Stream| {
            let resumption = stream.resumption.as_ref();
            !stream.has_failed()
                && resumption.is_some_and(|resumption| {
                    let waits = |at| now.is_none_or(|now| now < at);
                    resumption.phase() == Phase::Adrift && !resumption.retry_at.is_some_and(waits)
                })
        };
        for key in self.keys_where(is_due) {
            let Some(to) = self.connection_to_resume_on(key) else { continue };
            self.resume_on(key, to);
        }
    }

    /// Selects a connection: one of the role of the last, otherwise any.
    fn connection_to_resume_on(&self, key: StreamKey) -> Option<ConnId> {
        let stream = self.streams.find_known(key)?;
        let is_bulk = stream.send.bulk().is_some();
        let accepts = |conn: &&Connection| conn.is_joined() && conn.accepts_streams();
        let fits = |conn: &&Connection| {
            accepts(conn) && (conn.role == crate::role::ConnectionRole::Bulk) == is_bulk
        };
        let first = self.conns.iter().find(fits);
        first.or_else(|| self.conns.iter().find(accepts)).map(|conn| conn.id)
    }

    /// Sends RESUME for a stream that is adrift. Returns false if the connection has no ID left.
    fn resume_on(&mut self, key: StreamKey, conn_id: ConnId) -> bool {
        let conn = self.conns.find_known_mut(conn_id);
        let Some(conn) = conn else { return false };
        let Some(id) = conn.local_ids.allocate(Side::Client.first_stream_id()) else {
            return false;
        };
        conn.streams.insert(id, key);
        let at = StreamAddr { conn: conn_id, id };
        let Some(stream) = self.streams.find_known_mut(key) else { return false };
        stream.binding.resume_at(at);
        let point = resume_point(stream);
        let has_head = stream.recv.state() != RecvState::Head;
        let Some(resumption) = &mut stream.resumption else { return false };
        let name = resumption.name;
        let attempt = resumption.set_requested();
        resumption.left_conns.push(conn_id);
        self.send_resume(at, Resume::Request { name, attempt, point, has_head });
        true
    }

    pub(crate) fn on_resume(
        &mut self,
        now: Instant,
        at: StreamAddr,
        resume: Resume,
    ) -> Result<(), InputError> {
        match (resume, self.side) {
            (Resume::Request { name, attempt, point, has_head }, Side::Server) => {
                self.on_resume_request(now, at, name, attempt, point, has_head)
            }
            (Resume::Accepted(point), Side::Client) => {
                let Some(key) = self.requested_at(at)? else { return Ok(()) };
                self.on_resume_accepted(now, key, at, point)
            }
            (Resume::Refused(refusal), Side::Client) => {
                let Some(key) = self.requested_at(at)? else { return Ok(()) };
                self.on_resume_refused(now, key, at, refusal);
                Ok(())
            }
            (Resume::Request { .. }, Side::Client)
            | (Resume::Accepted(_) | Resume::Refused(_), Side::Server) => {
                Err(Cause::BadResume.into())
            }
        }
    }

    /// Returns the stream that this side resumes on this ID; `None` if it was reset since.
    fn requested_at(&self, at: StreamAddr) -> Result<Option<StreamKey>, InputError> {
        let Some(key) = self.key_at(at.conn, at.id) else {
            return match self.id_state(at.conn, at.id) {
                IdState::Ignored | IdState::Closed => Ok(None),
                IdState::Idle | IdState::Skipped => Err(Cause::BadResume.into()),
            };
        };
        let stream = self.streams.find_known(key);
        let resumption = stream.and_then(|stream| stream.resumption.as_ref());
        if resumption.is_some_and(|resumption| resumption.phase() == Phase::Requested) {
            Ok(Some(key))
        } else {
            Err(Cause::BadResume.into())
        }
    }

    fn on_resume_accepted(
        &mut self,
        now: Instant,
        key: StreamKey,
        at: StreamAddr,
        point: ResumePoint,
    ) -> Result<(), InputError> {
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        let restarted = stream.restart_sending(now, point, true)?;
        // The server has read the request.
        stream.frame_received = true;
        self.set_bound(key);
        if restarted.is_none() {
            // SMIG-13.10/kept-until-answer: the server asks for what is kept no more.
            self.fail_by_application(key, Cause::NotKept);
            return Ok(());
        }
        self.events.push_back(Event::Resumed { stream: key, on: at.conn });
        self.schedule(key);
        self.finish_if_complete(key);
        self.report_lost();
        Ok(())
    }

    /// SMIG-13.16/refused
    fn on_resume_refused(
        &mut self,
        now: Instant,
        key: StreamKey,
        at: StreamAddr,
        refusal: ResumeRefusal,
    ) {
        let (code, processed, cause) = match refusal {
            ResumeRefusal::Limit => return self.retry_later(now, key, at),
            ResumeRefusal::NeverProcessed => (ErrorCode::RefusedStream, Processed::No, None),
            ResumeRefusal::WasReset(code) => {
                let was_heard = self.streams.find_known(key).is_none_or(|s| s.frame_received);
                let is_unprocessed = code == ErrorCode::RefusedStream && !was_heard;
                (code, if is_unprocessed { Processed::No } else { Processed::Maybe }, None)
            }
            ResumeRefusal::Gone | ResumeRefusal::OlderAttempt | ResumeRefusal::Complete => {
                (ErrorCode::Cancel, Processed::Maybe, Some(Cause::NotKept))
            }
        };
        let error =
            StreamError { code, initiator: Initiator::Peer, cause, connection: at.conn, processed };
        self.unmap(at);
        self.ignore_late_frames(at);
        self.set_refused(key);
        self.fail_unresumed(key, error);
        self.report_lost();
    }

    /// The stream has no place any more, and needs none.
    fn set_refused(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let none = stream.binding.set_adrift();
        debug_assert!(none.is_none(), "a stream does not move before it is resumed");
        // Nothing that its peer lacks can be sent any more.
        stream.send.forget_kept();
    }

    /// The server may accept a later attempt (reason 4).
    fn retry_later(&mut self, now: Instant, key: StreamKey, at: StreamAddr) {
        self.unmap(at);
        self.ignore_late_frames(at);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let none = stream.binding.set_adrift();
        debug_assert!(none.is_none(), "a stream does not move before it is resumed");
        let Some(resumption) = &mut stream.resumption else { return };
        resumption.set_adrift();
        let pause = FIRST_RETRY.saturating_mul(1 << resumption.limited_count.min(16));
        resumption.retry_at = Some(now + pause);
        resumption.limited_count += 1;
        self.arm_tick(now);
    }

    /// A GOAWAY excludes the ID of an unanswered RESUME: it says nothing of the request (SMIG-13.2/adrift). Returns
    /// false if there is no such RESUME.
    pub(crate) fn on_resume_rejected(&mut self, key: StreamKey, at: StreamAddr) -> bool {
        if !self.is_requested_at(key, at) {
            return false;
        }
        self.set_adrift(key);
        self.resume_all();
        true
    }

    /// RST_STREAM(REFUSED_STREAM) answers an unanswered RESUME: it says nothing of the request (SMIG-13.2/adrift).
    /// Returns false if there is no such RESUME.
    pub(crate) fn on_resume_reset(&mut self, now: Instant, key: StreamKey, at: StreamAddr) -> bool {
        let is_requested = self.is_requested_at(key, at);
        if is_requested {
            self.retry_later(now, key, at);
        }
        is_requested
    }

    /// Rejects a frame on the ID of a RESUME that is not answered: the answer is the server's first frame there
    /// (SMIG-13.7/earlier-void).
    pub(crate) fn check_resumed(&self, key: StreamKey, id: StreamId) -> Result<(), InputError> {
        if self.streams.find_known(key).is_some_and(Stream::is_resuming) {
            return Err(InputError::Stream(id, Cause::BadResume));
        }
        Ok(())
    }

    fn is_requested_at(&self, key: StreamKey, at: StreamAddr) -> bool {
        self.streams.find_known(key).is_some_and(|stream| {
            let resumption = stream.resumption.as_ref();
            stream.binding.recv_addr() == at
                && resumption.is_some_and(|resumption| resumption.phase() == Phase::Requested)
        })
    }
}

/// Returns what this side has, and what the peer may send (SMIG-13.8/absolute).
pub(super) fn resume_point(stream: &mut Stream) -> ResumePoint {
    ResumePoint {
        received: stream.recv.received_bytes(),
        window: stream.recv.window.restart(),
        whole: stream.recv.state() == RecvState::Ended,
    }
}
