//! The sending half: body that waits, its window, and how the direction ends.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use crate::flow::SendWindow;
use crate::wire::EndStream;

/// How far the direction has come on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendPhase {
    /// The head has not been sent.
    Head,
    /// DATA and trailers may follow.
    Body,
    /// END_STREAM was sent, or RST_STREAM.
    Ended,
}

/// How the direction ends, once the application said so.
#[derive(Clone, Debug)]
pub(crate) enum SendEnd {
    /// The application has not ended it.
    Open,
    /// END_STREAM on the last DATA.
    Data,
    /// Trailers.
    Trailers(HeaderMap),
}

/// Part of a body that is to become one DATA frame.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) first: Option<Bytes>,
    pub(crate) octets: usize,
    pub(crate) end: EndStream,
}

#[derive(Debug)]
pub(crate) struct SendHalf {
    phase: SendPhase,
    queue: VecDeque<Bytes>,
    queued: usize,
    end: SendEnd,
    pub(crate) window: SendWindow,
    /// What content-length still lets the application queue.
    expected: Option<u64>,
    /// Octets of body handed to a connection, without those that a declined migration took back.
    sent: u64,
    /// Set when the application found the buffer full and is to be told when it is not.
    pub(crate) wants_room: bool,
}

impl SendHalf {
    pub(crate) fn new(window: u32, phase: SendPhase) -> Self {
        Self {
            phase,
            queue: VecDeque::new(),
            queued: 0,
            end: SendEnd::Open,
            window: SendWindow::new(window),
            expected: None,
            sent: 0,
            wants_room: false,
        }
    }

    pub(crate) const fn phase(&self) -> SendPhase {
        self.phase
    }

    pub(crate) const fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) const fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Whether the application may still queue body.
    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self.phase, SendPhase::Ended) && matches!(self.end, SendEnd::Open)
    }

    /// END_STREAM for a MIGRATE, if the direction is closed (SMIG-5.4/end-stream).
    pub(crate) const fn closed_flag(&self) -> EndStream {
        match self.phase {
            SendPhase::Ended => EndStream::Yes,
            SendPhase::Head | SendPhase::Body => EndStream::No,
        }
    }

    /// The head was written.
    pub(crate) fn on_head(&mut self, end: EndStream, content_length: Option<u64>) {
        self.phase = if end.is_end() { SendPhase::Ended } else { SendPhase::Body };
        self.expected = content_length;
    }

    /// The head is written a second time, after a declined migration: what content-length still lets
    /// the application queue stays as it is.
    pub(crate) fn on_head_again(&mut self, end: EndStream) {
        self.phase = if end.is_end() { SendPhase::Ended } else { SendPhase::Body };
    }

    /// Queues body. False if it goes beyond the announced content-length.
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

    /// Ends the direction behind what is queued. False if the body is shorter than announced.
    #[must_use]
    pub(crate) fn finish(&mut self, end: SendEnd) -> bool {
        self.end = end;
        self.expected.is_none_or(|left| left == 0)
    }

    /// Whether DATA, trailers or the bare end could be framed, connection window aside.
    pub(crate) fn has_frames(&self) -> bool {
        if self.phase != SendPhase::Body {
            return false;
        }
        if self.queued == 0 {
            !matches!(self.end, SendEnd::Open)
        } else {
            self.window.available() > 0
        }
    }

    /// Whether only trailers are left to send.
    pub(crate) fn trailers_due(&self) -> bool {
        self.phase == SendPhase::Body
            && self.queued == 0
            && matches!(self.end, SendEnd::Trailers(_))
    }

    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        if !self.trailers_due() {
            return None;
        }
        self.phase = SendPhase::Ended;
        match core::mem::replace(&mut self.end, SendEnd::Data) {
            SendEnd::Trailers(trailers) => Some(trailers),
            SendEnd::Open | SendEnd::Data => None,
        }
    }

    /// Takes what makes the next DATA frame, at most `limit` octets; counts it as sent.
    pub(crate) fn take(&mut self, limit: usize) -> Payload {
        let octets = self.queued.min(limit).min(self.window.available());
        let mut payload = Payload { parts: Vec::new(), first: None, octets, end: EndStream::No };
        let mut left = octets;
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
        self.queued -= octets;
        self.sent += octets as u64;
        self.window.consume(octets);
        if self.queued == 0 && matches!(self.end, SendEnd::Data) {
            payload.end = EndStream::Yes;
            self.phase = SendPhase::Ended;
        }
        payload
    }

    /// Puts back what was sent on a carrier that the follower declined: the direction stands at its
    /// barrier again (SMIG-6.8/resume). `parts` is in order of sending.
    pub(crate) fn rewind(&mut self, parts: VecDeque<Bytes>, phase: SendPhase, end: SendEnd) {
        let octets: usize = parts.iter().map(Bytes::len).sum();
        for part in parts.into_iter().rev() {
            self.queue.push_front(part);
        }
        self.queued += octets;
        self.sent -= octets as u64;
        // The octets came out of this window, so it cannot overflow by their return.
        let _fits = self.window.adjust(octets as i64);
        self.phase = phase;
        if !matches!(end, SendEnd::Open) {
            self.end = end;
        }
    }

    /// Drops everything: the stream was reset.
    pub(crate) fn abort(&mut self) {
        self.queue = VecDeque::new();
        self.queued = 0;
        self.end = SendEnd::Data;
        self.phase = SendPhase::Ended;
    }
}
