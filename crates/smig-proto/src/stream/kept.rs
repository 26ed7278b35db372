//! Frames that a direction has sent and may have to send again: after a decline those behind its barrier (SMIG-5.7/replay,
//! SMIG-6.8/resume), and, if streams can be resumed, all that no receipt covers (SMIG-13.5/no-gap).

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::SendState;
use crate::head::{ResponseHead, SharedHead};
use crate::ids::{ConnId, FrameNumber, SentAt, Side};
use crate::wire::EndStream;

/// Whether the mover sends before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendBeforeAnswer {
    /// A server does, to save a round trip (SMIG-5.5/server-at-once). It stores what it sends, and
    /// pauses at this number of bytes.
    UpToReplayLimit(usize),
    /// A client does not (SMIG-5.6/client-holds).
    No,
}

impl SendBeforeAnswer {
    pub(crate) const fn for_side(side: Side, replay_limit: usize) -> Self {
        match side {
            Side::Server => Self::UpToReplayLimit(replay_limit),
            Side::Client => Self::No,
        }
    }
}

/// How long sent frames are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Only while this side's MIGRATE is unanswered.
    Answer,
    /// Until a receipt covers them.
    Receipt,
}

/// The head of a response that may have to be sent again.
#[derive(Clone, Debug)]
pub(crate) enum KeptHead {
    Own(ResponseHead, Option<HeaderValue>, EndStream),
    Shared(SharedHead, Option<HeaderValue>, EndStream),
}

impl KeptHead {
    pub(crate) fn is_informational(&self) -> bool {
        match self {
            Self::Own(head, ..) => head.status.is_informational(),
            Self::Shared(head, ..) => head.status.is_informational(),
        }
    }

    /// Returns the number of fields that no other response shares.
    fn field_count(&self) -> usize {
        match self {
            Self::Own(head, ..) => head.headers.len(),
            Self::Shared(..) => 0,
        }
    }

    pub(crate) const fn end(&self) -> EndStream {
        match self {
            Self::Own(.., end) | Self::Shared(.., end) => *end,
        }
    }
}

/// Memory of a header field, in bytes, approximately.
const FIELD_MEMORY: usize = 128;

/// Memory of a frame beside its payload, in bytes.
pub(crate) const FRAME_MEMORY: usize = size_of::<Frame>();

#[derive(Debug)]
enum Item {
    Head(Box<KeptHead>),
    Data(Bytes, EndStream),
    Trailers(Box<HeaderMap>),
    /// The accepting answer to the peer's MIGRATE or RESUME: it binds the ID that carries what follows.
    Answer,
    /// RST_STREAM(NO_ERROR) after a whole response.
    Stop,
    /// This side's MIGRATE, which its answer covers.
    Barrier,
}

#[derive(Debug)]
struct Frame {
    item: Item,
    at: SentAt,
}

impl Item {
    /// Memory beside a frame's own, in bytes, approximately.
    fn memory(&self) -> usize {
        match self {
            Self::Data(data, _) => data.len(),
            Self::Head(head) => head.field_count() * FIELD_MEMORY,
            Self::Trailers(trailers) => trailers.len() * FIELD_MEMORY,
            Self::Answer | Self::Stop | Self::Barrier => 0,
        }
    }
}

/// Body that was taken to be sent again: nothing else bounds the queue in which it waits.
#[derive(Debug)]
struct Requeued {
    bytes: usize,
    /// What it took when it was kept.
    memory: usize,
}

impl Requeued {
    const fn add(&mut self, bytes: usize, memory: usize) {
        if bytes > 0 {
            self.bytes += bytes;
            self.memory += memory;
        }
    }

    fn take(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.memory -= self.memory / self.bytes * bytes;
            self.bytes -= bytes;
        }
        if self.bytes == 0 {
            self.memory = 0;
        }
    }
}

/// What one connection has carried of a stream.
#[derive(Debug)]
struct Coverage {
    conn: ConnId,
    /// The count of its last receipt.
    last_read: FrameNumber,
}

/// This side's unanswered barrier.
#[derive(Debug)]
struct OpenBarrier {
    before_answer: SendBeforeAnswer,
    /// The state of the direction at the barrier.
    state: SendState,
    /// Bytes that were sent behind it.
    bytes_behind: usize,
}

/// What one direction has sent and keeps, in the order in which it was sent.
#[derive(Debug)]
pub(crate) struct Kept {
    until: Until,
    frames: VecDeque<Frame>,
    /// By connection. A frame is read if its number is not above the connection's.
    coverage: Vec<Coverage>,
    barrier: Option<OpenBarrier>,
    /// The final response's head was let go of.
    is_head_gone: bool,
    /// The trailers were let go of.
    is_trailers_gone: bool,
    /// What was taken from here and waits in the queue to be sent again.
    requeued: Requeued,
    /// Bytes of body in `frames`.
    bytes: usize,
    /// Memory of their items, in bytes.
    item_memory: usize,
}

/// What has to be sent again.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    /// In the order in which they were sent.
    pub(crate) heads: Vec<KeptHead>,
    pub(crate) data: Vec<Bytes>,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whether the last of `data`, even if empty, ends the direction.
    pub(crate) end: bool,
}

impl Unsent {
    fn add(&mut self, item: Item) {
        match item {
            Item::Head(head) => self.heads.push(*head),
            Item::Data(data, end) => {
                self.end |= end.is_end();
                if !data.is_empty() {
                    self.data.push(data);
                }
            }
            Item::Trailers(trailers) => self.trailers = Some(*trailers),
            Item::Answer | Item::Stop | Item::Barrier => {}
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

impl Kept {
    /// Keeps what follows this side's barrier, and nothing else.
    pub(crate) const fn until_answer() -> Self {
        Self::new(Until::Answer)
    }

    /// Keeps everything until a receipt covers it.
    pub(crate) const fn until_receipt() -> Self {
        Self::new(Until::Receipt)
    }

    const fn new(until: Until) -> Self {
        Self {
            until,
            frames: VecDeque::new(),
            coverage: Vec::new(),
            barrier: None,
            is_head_gone: false,
            is_trailers_gone: false,
            requeued: Requeued { bytes: 0, memory: 0 },
            bytes: 0,
            item_memory: 0,
        }
    }

    /// Returns the bytes of body that are kept.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns about how much memory is in use, with what waits to be sent again: a body of single bytes takes much more than
    /// its length.
    pub(crate) fn memory(&self) -> usize {
        self.frame_memory() + self.requeued.memory
    }

    /// Returns about how much memory can be let go of.
    pub(crate) fn frame_memory(&self) -> usize {
        self.item_memory + self.frames.len() * FRAME_MEMORY
    }

    /// Bytes of body were sent again, or for the first time behind such.
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        self.requeued.take(bytes);
    }

    /// Returns whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns how much memory it takes.
    fn push(&mut self, item: Item, at: SentAt) -> usize {
        if !self.coverage.iter().any(|coverage| coverage.conn == at.conn) {
            self.coverage.push(Coverage { conn: at.conn, last_read: FrameNumber(0) });
        }
        let memory = item.memory();
        self.item_memory += memory;
        self.frames.push_back(Frame { item, at });
        memory + FRAME_MEMORY
    }

    /// Returns how much memory the head takes.
    pub(crate) fn push_head(&mut self, head: KeptHead, at: SentAt) -> usize {
        // An informational one is repeated only after a decline.
        if self.barrier.is_none() && head.is_informational() {
            return 0;
        }
        self.push(Item::Head(Box::new(head)), at)
    }

    pub(crate) fn push_data(&mut self, data: Bytes, end: EndStream, at: SentAt) {
        self.bytes += data.len();
        if let Some(barrier) = &mut self.barrier {
            barrier.bytes_behind += data.len();
        }
        self.push(Item::Data(data, end), at);
    }

    /// Returns how much memory the trailers take.
    pub(crate) fn push_trailers(&mut self, trailers: HeaderMap, at: SentAt) -> usize {
        self.push(Item::Trailers(Box::new(trailers)), at)
    }

    /// Records an accepting answer to the peer's MIGRATE or RESUME.
    pub(crate) fn push_answer(&mut self, at: SentAt) {
        self.push(Item::Answer, at);
    }

    /// Records the RST_STREAM(NO_ERROR) that followed a whole response.
    pub(crate) fn push_stop(&mut self, at: SentAt) {
        self.push(Item::Stop, at);
    }

    /// Records this side's barrier.
    pub(crate) fn begin_barrier(
        &mut self,
        state: SendState,
        before_answer: SendBeforeAnswer,
        at: SentAt,
    ) {
        self.push(Item::Barrier, at);
        self.barrier = Some(OpenBarrier { before_answer, state, bytes_behind: 0 });
    }

    /// Returns whether more may be sent before the answer to an open barrier, if there is one.
    pub(crate) fn may_send(&self) -> bool {
        self.barrier.as_ref().is_none_or(|barrier| match barrier.before_answer {
            SendBeforeAnswer::UpToReplayLimit(limit) => barrier.bytes_behind < limit,
            SendBeforeAnswer::No => false,
        })
    }

    /// Returns whether HEADERS or DATA were sent behind an open barrier.
    pub(crate) fn has_sent_behind_barrier(&self) -> bool {
        let is_barrier = |frame: &Frame| matches!(frame.item, Item::Barrier);
        self.barrier.is_some() && !self.frames.back().is_some_and(is_barrier)
    }

    /// Returns whether this side's MIGRATE is unanswered.
    pub(crate) const fn has_open_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    /// Returns whether receipts decide what is kept.
    pub(crate) fn is_until_receipt(&self) -> bool {
        self.until == Until::Receipt
    }

    /// The peer has accepted this side's MIGRATE: it has read all that was sent before. Returns whether
    /// nothing has to be kept any more.
    pub(crate) fn on_accepted(&mut self) -> bool {
        self.barrier = None;
        if let Some(index) = self.barrier_index() {
            (0..=index).for_each(|_| self.let_go_of_first());
            self.let_go_of_read();
        }
        self.until == Until::Answer
    }

    fn barrier_index(&self) -> Option<usize> {
        self.frames.iter().rposition(|frame| matches!(frame.item, Item::Barrier))
    }

    /// Takes what was sent behind this side's barrier, which is undone, and the state of the direction
    /// there.
    pub(crate) fn undo_barrier(&mut self) -> Option<(SendState, Unsent)> {
        let barrier = self.barrier.take()?;
        let index = self.barrier_index()?;
        let mut unsent = Unsent::default();
        for frame in self.frames.drain(index..) {
            self.item_memory -= frame.item.memory();
            unsent.add(frame.item);
        }
        self.bytes = self.bytes.saturating_sub(unsent.bytes());
        Some((barrier.state, unsent))
    }

    /// This side's MIGRATE is void, and will not be answered. What was sent behind it stays uncovered until the stream is
    /// resumed: the peer may have read it, and wait for a MIGRATE that was lost.
    pub(crate) fn void_barrier(&mut self) {
        self.barrier = None;
        if self.frames.back().is_some_and(|frame| matches!(frame.item, Item::Barrier)) {
            self.frames.pop_back();
        }
    }

    /// Handles a receipt of the frames of a connection up to a number. Lets go of what is covered with all
    /// that was sent before (SMIG-13.5/no-gap).
    pub(crate) fn on_receipt(&mut self, conn: ConnId, last: FrameNumber) {
        let found = self.coverage.iter_mut().find(|coverage| coverage.conn == conn);
        let Some(coverage) = found else { return };
        coverage.last_read = coverage.last_read.max(last);
        self.let_go_of_read();
    }

    fn is_read(&self, frame: &Frame) -> bool {
        let covers = |coverage: &Coverage| {
            coverage.conn == frame.at.conn && coverage.last_read >= frame.at.frame
        };
        // A barrier is covered by its answer (SMIG-5.7/replay).
        !matches!(frame.item, Item::Barrier) && self.coverage.iter().any(covers)
    }

    fn let_go_of_read(&mut self) {
        while self.frames.front().is_some_and(|frame| self.is_read(frame)) {
            self.let_go_of_first();
        }
        if self.frames.is_empty() {
            self.coverage.clear();
        }
    }

    fn let_go_of_first(&mut self) {
        let item = self.frames.pop_front().map(|frame| frame.item);
        self.item_memory -= item.as_ref().map_or(0, Item::memory);
        match item {
            Some(Item::Data(data, _)) => self.bytes -= data.len(),
            Some(Item::Head(head)) => self.is_head_gone |= !head.is_informational(),
            Some(Item::Trailers(_)) => self.is_trailers_gone = true,
            Some(Item::Answer | Item::Stop | Item::Barrier) | None => {}
        }
    }

    /// Lets go of the oldest frames until no more than this much memory is in use, but not of what a decline
    /// requires.
    pub(crate) fn shrink(&mut self, max_memory: usize) {
        while self.frame_memory() > max_memory
            && self.frames.front().is_some_and(|frame| !matches!(frame.item, Item::Barrier))
        {
            self.let_go_of_first();
        }
    }

    /// Returns whether an accepting answer that was sent on this connection may not have been read
    /// (SMIG-13.2/adrift).
    pub(crate) fn lacks_answer_on(&self, conn: ConnId) -> bool {
        let is_answer = |frame: &Frame| matches!(frame.item, Item::Answer);
        let is_there = |frame: &&Frame| frame.at.conn == conn && is_answer(frame);
        self.frames.iter().filter(is_there).any(|frame| !self.is_read(frame))
    }

    /// Returns whether something that was sent on this connection may not have been read.
    pub(crate) fn has_unread_on(&self, conn: ConnId) -> bool {
        self.frames.iter().any(|frame| frame.at.conn == conn && !self.is_read(frame))
    }

    /// Takes what the peer lacks: the body from an offset on, of which `sent_bytes` were sent, and the head if
    /// it has not come. Nothing is kept afterwards: no receipt for a first copy covers the second
    /// (SMIG-13.15/copies). `None`: some of it is kept no more.
    pub(crate) fn take_from(
        &mut self,
        received: u64,
        sent_bytes: u64,
        needs_head: bool,
    ) -> Option<Unsent> {
        let first_kept = sent_bytes.checked_sub(self.bytes as u64)?;
        // Its end has not come, so its trailers have not.
        if received < first_kept || needs_head && self.is_head_gone || self.is_trailers_gone {
            return None;
        }
        let memory = self.frame_memory();
        let mut unsent = Unsent::default();
        let mut offset = first_kept;
        for frame in self.frames.drain(..) {
            match frame.item {
                Item::Head(head) => {
                    if needs_head && !head.is_informational() {
                        unsent.heads.push(*head);
                    }
                }
                Item::Data(data, end) => {
                    let start = offset;
                    offset += data.len() as u64;
                    let skipped = usize::try_from(received.saturating_sub(start));
                    let skipped = skipped.unwrap_or(usize::MAX).min(data.len());
                    unsent.add(Item::Data(data.slice(skipped..), end));
                }
                item @ (Item::Trailers(_) | Item::Answer | Item::Stop | Item::Barrier) => {
                    unsent.add(item);
                }
            }
        }
        (self.barrier, self.bytes, self.item_memory) = (None, 0, 0);
        self.coverage.clear();
        self.requeued.add(unsent.bytes(), memory);
        Some(unsent)
    }
}

#[cfg(test)]
mod tests;
