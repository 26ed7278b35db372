//! The server answers RESUME (SMIG-13.3/attempts, SMIG-13.9/never-processed, SMIG-13.16/refused).

use super::client::resume_point;
use super::ended::Epitaph;
use super::lost::Origin;
use crate::conn::{IdState, Offence};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::{StreamAddr, StreamName};
use crate::session::{Event, Session};
use crate::stream::{Stream, StreamKey, StreamResumption};
use crate::time::Instant;
use crate::wire::{Resume, ResumePoint, ResumeRefusal};

/// Attempts of a stream that cost its session nothing; others count as migrations.
const FREE_ATTEMPTS: u32 = 4;

/// What the client says.
struct Request {
    name: StreamName,
    attempt: u32,
    point: ResumePoint,
    has_head: bool,
}

impl Session {
    pub(super) fn on_resume_request(
        &mut self,
        now: Instant,
        at: StreamAddr,
        name: StreamName,
        attempt: u32,
        point: ResumePoint,
        has_head: bool,
    ) -> Result<(), InputError> {
        if !self.is_peer_id(at.id) || self.key_at(at.conn, at.id).is_some() {
            return Err(Cause::BadResume.into());
        }
        self.count_reply(at.conn)?;
        match self.id_state(at.conn, at.id) {
            // As any request that GOAWAY excludes (RFC 9113 section 6.8).
            IdState::Ignored => return Ok(()),
            IdState::Closed => {
                self.reset_budget.charge(now, Offence::Refused).1?;
                self.queue_reset(at, ErrorCode::RefusedStream);
                return Ok(());
            }
            IdState::Idle | IdState::Skipped => {}
        }
        let Some(conn) = self.conns.find_known_mut(at.conn) else { return Ok(()) };
        if conn.unbound_carriers.find_mut(at.id).is_some() {
            return Err(Cause::CarrierMisuse.into());
        }
        conn.peer_ids.mark_used(at.id);
        let request = Request { name, attempt, point, has_head };
        match self.find_to_resume(now, at, &request)? {
            Ok(key) => self.accept_resume(now, key, at, &request),
            Err(refusal) => {
                self.reset_budget.charge(now, Offence::Refused).1?;
                self.refuse_resume(at, refusal);
                Ok(())
            }
        }
    }

    /// Returns the stream that is to be resumed, revived if it has ended, or why it is not.
    ///
    /// # Errors
    ///
    /// The client claims to have received what was never sent.
    fn find_to_resume(
        &mut self,
        now: Instant,
        at: StreamAddr,
        request: &Request,
    ) -> Result<Result<StreamKey, ResumeRefusal>, InputError> {
        let name = request.name;
        if self.app_id != Some(name.cid.app) {
            return Ok(Err(ResumeRefusal::Gone));
        }
        let named = |resumption: &StreamResumption| resumption.name == name;
        let running = self
            .streams
            .iter_mut()
            .find(|(_, stream)| stream.resumption.as_deref().is_some_and(named));
        let key = running.as_ref().map(|(key, _)| *key);
        let (send, last_attempt) = match running {
            Some((_, Stream { send, resumption: Some(resumption), .. })) => {
                (send, &mut resumption.attempt)
            }
            _ => {
                let session = self.resumption.as_mut();
                match session.and_then(|session| session.ended_streams.find_mut(name)) {
                    Some(ended) => ended,
                    None => return Ok(Err(self.refusal_of_unknown(name))),
                }
            }
        };
        if request.attempt <= *last_attempt {
            // The later one has come on a faster connection (SMIG-13.3/attempts).
            return Ok(Err(ResumeRefusal::OlderAttempt));
        }
        send.check_resume_point(request.point, request.has_head)?;
        *last_attempt = request.attempt;
        if request.attempt > FREE_ATTEMPTS && !self.migration_budget.take(now, 1) {
            // Each one may have megabytes sent again.
            self.events.push_back(Event::LimitHit { conn: at.conn, limit: "resumptions" });
            return Ok(Err(ResumeRefusal::Limit));
        }
        Ok(key.or_else(|| self.revive(name)).ok_or(ResumeRefusal::Gone))
    }

    /// SMIG-13.9/never-processed
    fn refusal_of_unknown(&mut self, name: StreamName) -> ResumeRefusal {
        let epitaph =
            self.resumption.as_ref().and_then(|session| session.ended_streams.epitaph(name));
        match epitaph {
            Some(Epitaph::Complete) => return ResumeRefusal::Complete,
            Some(Epitaph::Reset(code)) => return ResumeRefusal::WasReset(code),
            None => {}
        }
        let was_refused = self
            .conn_by_cid(name.cid)
            .is_some_and(|conn| self.is_refused_request(StreamAddr { conn, id: name.id }));
        match self.origin(name.cid) {
            Origin::Known { last_request } if was_refused || name.id > last_request => {
                if self.refuse_request(name) {
                    ResumeRefusal::NeverProcessed
                } else {
                    ResumeRefusal::Gone
                }
            }
            Origin::Known { .. } => ResumeRefusal::Gone,
            Origin::Unknown => {
                self.forbid_connection(name.cid.number);
                ResumeRefusal::Gone
            }
        }
    }

    fn refuse_resume(&mut self, at: StreamAddr, refusal: ResumeRefusal) {
        self.send_resume(at, Resume::Refused(refusal));
        self.ignore_late_frames(at);
    }

    fn accept_resume(
        &mut self,
        now: Instant,
        key: StreamKey,
        at: StreamAddr,
        request: &Request,
    ) -> Result<(), InputError> {
        self.close_own_carrier(key);
        self.leave_all(key);
        let Some(stream) = self.streams.find_known_mut(key) else { return Ok(()) };
        let Some(heads) = stream.restart_sending(now, request.point, request.has_head)? else {
            self.refuse_resume(at, ResumeRefusal::Gone);
            let error = self.not_resumed(key, Cause::NotKept);
            self.finish_failed_stream(key, error, None);
            return Ok(());
        };
        stream.binding.resume_at(at);
        let answer = resume_point(stream);
        if let Some(conn) = self.conns.find_known_mut(at.conn) {
            conn.streams.insert(at.id, key);
        }
        self.set_bound(key);
        self.send_resume(at, Resume::Accepted(answer));
        self.keep_answer(key, at.conn);
        for head in heads {
            self.frame_kept_head(key, &head);
        }
        self.events.push_back(Event::Resumed { stream: key, on: at.conn });
        self.schedule(key);
        self.finish_if_complete(key);
        self.stop_if_due(key);
        Ok(())
    }

    /// Closes the carrier of this side's open migration (SMIG-6.11/close-abandoned): RESUME has voided it.
    fn close_own_carrier(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known(key) else { return };
        let Some(open) = stream.binding.open_migration() else { return };
        if stream.has_used_carrier(open) {
            self.queue_reset(open.to, ErrorCode::Cancel);
        }
    }
}
