//! The sending half: queued body, send window, and the end of the direction.

use bytes::Bytes;
use http::HeaderMap;

use super::chunk_queue::ChunkQueue;
use super::kept::{Kept, KeptHead, SendBeforeAnswer, Unsent};
use crate::bulk::{BulkHint, BulkInput, BulkPolicy, BulkReason};
use crate::error::Cause;
use crate::flow::SendWindow;
use crate::ids::SentAt;
use crate::invariant::DebugExpect;
use crate::priority::Priority;
use crate::time::Instant;
use crate::wire::{EndStream, ResumePoint};

/// At most this many bytes at the end of a body are not held back as bulk: the receiver waits for
/// the end, and they are less than a packet.
const MAX_UNHELD_END_BYTES: usize = 1024;

/// Progress of the direction on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The head has not been sent.
    Head,
    /// DATA and trailers may follow.
    Body,
    /// Nothing more is sent: END_STREAM was, or the stream has failed or was stopped.
    Ended,
}

/// How the direction ends, as the application requested.
#[derive(Clone, Debug)]
pub(crate) enum SendEnd {
    /// The application has not ended it.
    Open,
    /// With END_STREAM on the last DATA.
    Data,
    /// With trailers.
    Trailers(HeaderMap),
}

/// Part of a body that will be sent as one DATA frame.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) further_parts: Vec<Bytes>,
    pub(crate) first_part: Option<Bytes>,
    pub(crate) bytes: usize,
    pub(crate) end: EndStream,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    state: SendState,
    queue: ChunkQueue,
    queued_bytes: usize,
    end: SendEnd,
    pub(crate) window: SendWindow,
    /// Bytes that the application may still queue according to content-length.
    unqueued_bytes: Option<u64>,
    /// Bytes that the application will certainly queue, if there is no content-length.
    min_unqueued_bytes: u32,
    /// Bytes of body that were framed, without those that a declined migration returned to the
    /// queue.
    sent_bytes: u64,
    /// DATA or trailers were framed, possibly on a carrier that was declined.
    has_sent_body: bool,
    /// The application knows that the direction has ended. It may be sent again.
    is_end_reported: bool,
    /// The application found the buffer full and must be notified when there is room.
    pub(crate) awaits_capacity: bool,
    /// What was sent and may have to be sent again.
    kept: Option<Box<Kept>>,
    /// Why the direction is bulk, if it is. It belongs to this half, not to the binding: it follows
    /// from the body, and a direction that returns from a declined carrier is as long as before.
    bulk: Option<BulkReason>,
    bulk_hint: BulkHint,
    /// Bytes that were framed since the queue was last empty.
    bytes_since_pause: u32,
    /// When framing last emptied the queue.
    paused_at: Instant,
}

impl SendHalf {
    pub(crate) fn new(window: u32, state: SendState) -> Self {
        Self {
            state,
            queue: ChunkQueue::default(),
            queued_bytes: 0,
            end: SendEnd::Open,
            window: SendWindow::new(window),
            unqueued_bytes: None,
            min_unqueued_bytes: 0,
            sent_bytes: 0,
            has_sent_body: false,
            is_end_reported: false,
            awaits_capacity: false,
            kept: None,
            bulk: None,
            bulk_hint: BulkHint::None,
            bytes_since_pause: 0,
            paused_at: Instant::from_nanos(0),
        }
    }

    pub(crate) const fn state(&self) -> SendState {
        self.state
    }

    pub(crate) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns whether the application must be notified that the direction has ended: once.
    pub(crate) const fn report_end(&mut self) -> bool {
        !core::mem::replace(&mut self.is_end_reported, true)
    }

    /// Returns whether DATA, even if empty, or trailers were sent.
    pub(crate) const fn has_sent_body(&self) -> bool {
        self.has_sent_body
    }

    pub(crate) const fn unqueued_bytes(&self) -> Option<u64> {
        self.unqueued_bytes
    }

    /// Returns whether the application may still queue body.
    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self.state, SendState::Ended) && matches!(self.end, SendEnd::Open)
    }

    /// Returns the END_STREAM flag for a MIGRATE: set if the direction is closed
    /// (SMIG-5.4/end-stream).
    pub(crate) const fn end_stream_flag(&self) -> EndStream {
        match self.state {
            SendState::Ended => EndStream::Yes,
            SendState::Head | SendState::Body => EndStream::No,
        }
    }

    /// Records that the head was written.
    pub(crate) fn on_head(&mut self, end: EndStream, content_length: Option<u64>) {
        self.state = if end.is_end() { SendState::Ended } else { SendState::Body };
        self.unqueued_bytes = content_length;
    }

    /// Queues body. Returns false if it exceeds the announced content-length.
    #[must_use]
    pub(crate) fn queue(&mut self, data: Bytes) -> bool {
        if let Some(left) = &mut self.unqueued_bytes {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return false,
            }
        }
        let queued = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.min_unqueued_bytes = self.min_unqueued_bytes.saturating_sub(queued);
        if !data.is_empty() {
            self.queued_bytes += data.len();
            self.queue.push_back(data);
        }
        true
    }

    /// Ends the direction after the queued body. Returns false if the body is shorter than
    /// announced.
    #[must_use]
    pub(crate) fn finish(&mut self, end: SendEnd) -> bool {
        self.end = end;
        self.unqueued_bytes.is_none_or(|left| left == 0)
    }

    /// Returns whether DATA, trailers or an empty DATA with END_STREAM can be framed, except for
    /// the connection's window.
    pub(crate) fn has_frames(&self) -> bool {
        if self.state != SendState::Body || self.kept.as_ref().is_some_and(|k| !k.may_send()) {
            return false;
        }
        if self.queued_bytes == 0 {
            !matches!(self.end, SendEnd::Open)
        } else {
            self.window.available() > 0
        }
    }

    /// Returns why the direction is bulk, if it is.
    pub(crate) const fn bulk(&self) -> Option<BulkReason> {
        self.bulk
    }

    pub(crate) const fn bulk_hint(&self) -> BulkHint {
        self.bulk_hint
    }

    pub(crate) const fn set_bulk_hint(&mut self, hint: BulkHint) {
        self.bulk_hint = hint;
        self.bulk = None;
    }

    /// Records how many bytes the application will certainly queue.
    pub(crate) fn announce_min(&mut self, bytes: u64) {
        self.min_unqueued_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Decides whether the direction is bulk.
    pub(crate) fn classify(
        &mut self,
        policy: &BulkPolicy,
        priority: Priority,
        is_tunnel: bool,
        has_migrated: bool,
    ) {
        let queued = self.queued_bytes as u64;
        self.bulk = policy.decide(&BulkInput {
            length: self.unqueued_bytes.map(|left| self.sent_bytes + queued + left),
            min_left: u64::from(self.min_unqueued_bytes) + queued,
            bytes_without_pause: u64::from(self.bytes_since_pause) + queued,
            current: self.bulk,
            is_tunnel,
            has_migrated,
            priority,
            hint: self.bulk_hint,
        });
    }

    /// Returns whether the next frame must wait until bulk may be sent. Trailers and an empty end
    /// do not wait, nor does the last fraction of a packet.
    pub(crate) fn is_held_as_bulk(&self) -> bool {
        let is_last =
            !matches!(self.end, SendEnd::Open) && self.queued_bytes <= MAX_UNHELD_END_BYTES;
        self.bulk.is_some() && self.queued_bytes > 0 && !is_last
    }

    /// Records how many bytes were framed, and whether more are queued: a direction of unknown
    /// length that pauses is not bulk, or not any more after a long pause, unless more was announced.
    pub(crate) fn track_pauses(&mut self, now: Instant, policy: &BulkPolicy, bytes: usize) {
        if self.bytes_since_pause == 0 {
            let is_quiet = self.min_unqueued_bytes == 0
                && now.saturating_duration_since(self.paused_at) >= policy.quiet_time;
            self.bulk = self.bulk.filter(|_| !is_quiet);
        }
        self.bytes_since_pause =
            self.bytes_since_pause.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.queued_bytes == 0 {
            self.bytes_since_pause = 0;
            self.paused_at = now;
        }
    }

    /// Returns the trailers, if only they are left to send.
    pub(crate) fn due_trailers(&self) -> Option<&HeaderMap> {
        match &self.end {
            SendEnd::Trailers(trailers)
                if self.state == SendState::Body && self.queued_bytes == 0 =>
            {
                Some(trailers)
            }
            SendEnd::Trailers(_) | SendEnd::Open | SendEnd::Data => None,
        }
    }

    /// Records that the trailers were framed. Returns how much memory they take until they are known to have come.
    pub(crate) fn on_trailers_sent(&mut self, at: SentAt) -> usize {
        self.state = SendState::Ended;
        self.has_sent_body = true;
        let sent_end = core::mem::replace(&mut self.end, SendEnd::Data);
        match (sent_end, &mut self.kept) {
            (SendEnd::Trailers(trailers), Some(kept)) => kept.push_trailers(trailers, at),
            _ => 0,
        }
    }

    /// Takes at most `limit` bytes for the next DATA frame, and counts them as sent there.
    pub(crate) fn take(&mut self, limit: usize, at: SentAt) -> Payload {
        let bytes = self.queued_bytes.min(limit).min(self.window.available());
        let mut payload =
            Payload { further_parts: Vec::new(), first_part: None, bytes, end: EndStream::No };
        let mut remaining_bytes = bytes;
        while remaining_bytes > 0 {
            let part = self.queue.take(remaining_bytes);
            let Some(part) = part.debug_expect("the queue has `queued_bytes`") else { break };
            remaining_bytes -= part.len();
            match payload.first_part {
                None => payload.first_part = Some(part),
                Some(_) => payload.further_parts.push(part),
            }
        }
        self.queued_bytes -= bytes;
        self.sent_bytes += bytes as u64;
        self.has_sent_body = true;
        self.window.consume(bytes);
        if self.queued_bytes == 0 && matches!(self.end, SendEnd::Data) {
            payload.end = EndStream::Yes;
            self.state = SendState::Ended;
        }
        if let Some(kept) = &mut self.kept {
            kept.on_sent(bytes);
            let parts = payload.first_part.iter().chain(&payload.further_parts);
            parts.for_each(|part| kept.push_data(part.clone(), EndStream::No, at));
            if payload.end.is_end() {
                kept.push_data(Bytes::new(), EndStream::Yes, at);
            }
        }
        payload
    }

    /// Keeps everything from now on that no receipt covers (SMIG-13.5/no-gap).
    pub(crate) fn keep_until_receipt(&mut self) {
        self.kept = Some(Box::new(Kept::until_receipt()));
    }

    /// Keeps nothing for a resumption, because the peer does not support it. What a decline requires stays.
    pub(crate) fn forget_kept(&mut self) {
        self.kept = self.kept.take_if(|kept| kept.has_open_barrier());
    }

    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_deref()
    }

    pub(crate) fn kept_mut(&mut self) -> Option<&mut Kept> {
        self.kept.as_deref_mut()
    }

    /// Returns about how much memory is in use by what is kept.
    pub(crate) fn kept_memory(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.memory())
    }

    /// Records that the barrier was sent: the frames after it are kept until the answer.
    pub(crate) fn begin_barrier(&mut self, before_answer: SendBeforeAnswer, at: SentAt) {
        let kept = self.kept.get_or_insert_with(|| Box::new(Kept::until_answer()));
        kept.begin_barrier(self.state, before_answer, at);
    }

    /// Keeps a head that was framed, if it may have to be sent again. Returns how much memory that takes.
    pub(crate) fn record_head(&mut self, at: SentAt, head: impl FnOnce() -> KeptHead) -> usize {
        self.kept.as_mut().map_or(0, |kept| kept.push_head(head(), at))
    }

    /// Returns whether HEADERS or DATA were sent behind an unanswered barrier.
    pub(crate) fn has_sent_behind_barrier(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.has_sent_behind_barrier())
    }

    /// The peer has accepted the barrier, or will never decline it.
    pub(crate) fn on_barrier_accepted(&mut self) {
        if let Some(kept) = &mut self.kept
            && kept.on_accepted()
        {
            self.kept = None;
        }
    }

    /// Requeues what was sent after the barrier, so that the direction resumes at the barrier
    /// (SMIG-6.8/resume). Returns the heads, which the caller must write again. The number of bytes
    /// that content-length still permits does not change: the application has queued them.
    pub(crate) fn undo_barrier(&mut self) -> Vec<KeptHead> {
        let Some(kept) = &mut self.kept else { return Vec::new() };
        let Some((state, unsent)) = kept.undo_barrier() else { return Vec::new() };
        if !kept.is_until_receipt() {
            self.kept = None;
        }
        let bytes = unsent.bytes();
        // Overflows only if the peer has granted too much credit meanwhile; the window is then left
        // as it is (SMIG-6.9/lost-bytes).
        let _ignored_overflow = self.window.adjust(bytes as i64);
        self.state = state;
        self.requeue(unsent)
    }

    /// Continues where the peer's copy of this direction ends (SMIG-13.8/absolute). `has_head`: the peer has the
    /// final response's head, or none is due. Returns the head, if the caller must write it again; `None` if what
    /// the peer lacks is kept no more.
    ///
    /// # Errors
    ///
    /// The peer claims to have received what was never sent.
    pub(crate) fn restart(
        &mut self,
        point: ResumePoint,
        has_head: bool,
    ) -> Result<Option<Vec<KeptHead>>, Cause> {
        self.check_resume_point(point, has_head)?;
        let is_before_head = self.state == SendState::Head;
        let Some(kept) = &mut self.kept else { return Ok(None) };
        if point.whole {
            // Nothing is sent any more.
            **kept = Kept::until_receipt();
            return Ok(Some(Vec::new()));
        }
        let needs_head = !has_head && !is_before_head;
        let Some(unsent) = kept.take_from(point.received, self.sent_bytes, needs_head) else {
            return Ok(None);
        };
        let has_ended = self.state == SendState::Ended;
        if !is_before_head {
            self.state = SendState::Body;
        }
        self.window = SendWindow::new(point.window);
        let heads = self.requeue(unsent);
        if has_ended && matches!(self.end, SendEnd::Open) {
            // The head that ended it has come, and the peer says that the end has not.
            self.end = SendEnd::Data;
        }
        Ok(Some(heads))
    }

    /// Checks that the peer claims nothing that was never sent.
    pub(crate) fn check_resume_point(
        &self,
        point: ResumePoint,
        has_head: bool,
    ) -> Result<(), Cause> {
        let is_at_end = self.state == SendState::Ended && point.received == self.sent_bytes;
        let is_before_head = self.state == SendState::Head;
        let claims_too_much = point.received > self.sent_bytes
            || point.whole && !is_at_end
            || is_before_head && (has_head || point.received > 0);
        if claims_too_much { Err(Cause::BadResume) } else { Ok(()) }
    }

    /// Queues what is to be sent again. Returns the heads.
    fn requeue(&mut self, unsent: Unsent) -> Vec<KeptHead> {
        let bytes = unsent.bytes();
        let Unsent { heads, data, trailers, end } = unsent;
        for part in data.into_iter().rev() {
            self.queue.push_front(part);
        }
        self.queued_bytes += bytes;
        self.sent_bytes -= bytes as u64;
        if let Some(trailers) = trailers {
            self.end = SendEnd::Trailers(trailers);
        } else if end {
            self.end = SendEnd::Data;
        }
        if let Some(head) = heads.iter().rfind(|head| !head.is_informational()) {
            self.state = if head.end().is_end() { SendState::Ended } else { SendState::Body };
        }
        heads
    }

    /// Takes the half of a stream that has ended, if anything of it is kept.
    pub(crate) fn take_ended(&mut self) -> Option<Self> {
        let kept = self.kept.take_if(|kept| !kept.is_empty())?;
        let ended = Self::new(0, SendState::Ended);
        Some(Self { kept: Some(kept), sent_bytes: self.sent_bytes, end: SendEnd::Data, ..ended })
    }

    /// Drops everything, after a reset of the stream.
    pub(crate) fn abort(&mut self) {
        self.queue = ChunkQueue::default();
        self.queued_bytes = 0;
        self.end = SendEnd::Data;
        self.state = SendState::Ended;
        self.kept = None;
    }
}
