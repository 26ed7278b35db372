//! The sending half: queued body, send window, and the end of the direction.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use crate::flow::SendWindow;
use crate::wire::EndStream;

/// Progress of the direction on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The head has not been sent.
    Head,
    /// DATA and trailers may follow.
    Body,
    /// END_STREAM or RST_STREAM was sent.
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
    pub(crate) parts: Vec<Bytes>,
    pub(crate) first: Option<Bytes>,
    pub(crate) bytes: usize,
    pub(crate) end: EndStream,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    state: SendState,
    queue: VecDeque<Bytes>,
    queued: usize,
    end: SendEnd,
    pub(crate) window: SendWindow,
    /// Bytes that the application may still queue according to content-length.
    expected: Option<u64>,
    /// Bytes of body that were framed, without those that a declined migration returned to the
    /// queue.
    sent: u64,
    /// DATA or trailers were framed, also on a carrier that was declined.
    exceeds_head: bool,
    /// The application found the buffer full and must be notified when there is room.
    pub(crate) wants_room: bool,
}

impl SendHalf {
    pub(crate) fn new(window: u32, state: SendState) -> Self {
        Self {
            state,
            queue: VecDeque::new(),
            queued: 0,
            end: SendEnd::Open,
            window: SendWindow::new(window),
            expected: None,
            sent: 0,
            exceeds_head: false,
            wants_room: false,
        }
    }

    pub(crate) const fn state(&self) -> SendState {
        self.state
    }

    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns whether frames were sent after the head: DATA, even if empty, or trailers.
    pub(crate) const fn exceeds_head(&self) -> bool {
        self.exceeds_head
    }

    pub(crate) const fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Returns whether the application may still queue body.
    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self.state, SendState::Ended) && matches!(self.end, SendEnd::Open)
    }

    /// Returns the END_STREAM flag for a MIGRATE: set if the direction is closed
    /// (SMIG-5.4/end-stream).
    pub(crate) const fn closed_flag(&self) -> EndStream {
        match self.state {
            SendState::Ended => EndStream::Yes,
            SendState::Head | SendState::Body => EndStream::No,
        }
    }

    /// Records that the head was written.
    pub(crate) fn on_head(&mut self, end: EndStream, content_length: Option<u64>) {
        self.state = if end.is_end() { SendState::Ended } else { SendState::Body };
        self.expected = content_length;
    }

    /// Records that the head was written again after a declined migration. Does not reset the
    /// number of bytes that content-length still permits.
    pub(crate) fn on_head_again(&mut self, end: EndStream) {
        self.state = if end.is_end() { SendState::Ended } else { SendState::Body };
    }

    /// Queues body. Returns false if it exceeds the announced content-length.
    #[must_use]
    pub(crate) fn queue(&mut self, data: Bytes) -> bool {
        if let Some(left) = &mut self.expected {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return false,
            }
        }
        if !data.is_empty() {
            self.queued += data.len();
            self.queue.push_back(data);
        }
        true
    }

    /// Ends the direction after the queued body. Returns false if the body is shorter than
    /// announced.
    #[must_use]
    pub(crate) fn finish(&mut self, end: SendEnd) -> bool {
        self.end = end;
        self.expected.is_none_or(|left| left == 0)
    }

    /// Returns whether DATA, trailers or an empty DATA with END_STREAM can be framed, except for
    /// the connection's window.
    pub(crate) fn has_frames(&self) -> bool {
        if self.state != SendState::Body {
            return false;
        }
        if self.queued == 0 {
            !matches!(self.end, SendEnd::Open)
        } else {
            self.window.available() > 0
        }
    }

    /// Returns whether only trailers are left to send.
    pub(crate) fn trailers_due(&self) -> bool {
        self.state == SendState::Body
            && self.queued == 0
            && matches!(self.end, SendEnd::Trailers(_))
    }

    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        if !self.trailers_due() {
            return None;
        }
        self.state = SendState::Ended;
        self.exceeds_head = true;
        match core::mem::replace(&mut self.end, SendEnd::Data) {
            SendEnd::Trailers(trailers) => Some(trailers),
            SendEnd::Open | SendEnd::Data => None,
        }
    }

    /// Takes at most `limit` bytes for the next DATA frame, and counts them as sent.
    pub(crate) fn take(&mut self, limit: usize) -> Payload {
        let bytes = self.queued.min(limit).min(self.window.available());
        let mut payload = Payload { parts: Vec::new(), first: None, bytes, end: EndStream::No };
        let mut left = bytes;
        while left > 0 {
            let Some(front) = self.queue.front_mut() else { break };
            let part = if front.len() <= left {
                self.queue.pop_front().unwrap_or_default()
            } else {
                front.split_to(left)
            };
            left -= part.len();
            match payload.first {
                None => payload.first = Some(part),
                Some(_) => payload.parts.push(part),
            }
        }
        self.queued -= bytes;
        self.sent += bytes as u64;
        self.exceeds_head = true;
        self.window.consume(bytes);
        if self.queued == 0 && matches!(self.end, SendEnd::Data) {
            payload.end = EndStream::Yes;
            self.state = SendState::Ended;
        }
        payload
    }

    /// Returns what was sent on a declined carrier to the queue, so that the direction resumes at
    /// its barrier (SMIG-6.8/resume). `parts` is in the order of sending.
    pub(crate) fn rewind(&mut self, parts: VecDeque<Bytes>, phase: SendState, end: SendEnd) {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        for part in parts.into_iter().rev() {
            self.queue.push_front(part);
        }
        self.queued += bytes;
        self.sent -= bytes as u64;
        // Overflows only if the peer has granted too much credit meanwhile; the window is then left
        // as it is.
        let _fits = self.window.adjust(bytes as i64);
        self.state = phase;
        if !matches!(end, SendEnd::Open) {
            self.end = end;
        }
    }

    /// Drops everything, after a reset of the stream.
    pub(crate) fn abort(&mut self) {
        self.queue = VecDeque::new();
        self.queued = 0;
        self.end = SendEnd::Data;
        self.state = SendState::Ended;
    }
}
