//! State of a stream shared by the application's handles and the session's task.
//!
//! Holds a bounded part of the incoming body, the response's head (client), and the application's requests.
//! Locked only briefly, never across a poll.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use smig_proto::{BulkHint, ConnId, Instant, Priority, ResponseHead};

use super::body_rest::BodyRest;
use super::info::Segment;
use super::request_body::UnsentRequest;
use crate::error::{Error, ErrorKind};
use crate::mailbox::{Notifier, Slot};

/// Limit of bytes per stream that are taken from the engine before the application reads them. Beyond it,
/// flow control stops the peer.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;
/// Minimum cost of a chunk: a queue entry and an allocation, however short it is.
const MIN_CHUNK_COST_BYTES: usize = 256;

const NO_SLOT: u32 = u32::MAX;

/// The shared part of a stream.
#[derive(Debug)]
pub(crate) struct SharedStream {
    notifier: Arc<Notifier>,
    slot: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When a client's request got its stream, or over HTTP/1.1 its connection. Before, nothing was sent.
    sent_at: Option<Instant>,
    head: Option<Head>,
    /// What a retry needs of a request whose body was not polled.
    unsent_request: Option<UnsentRequest>,
    chunks: VecDeque<Bytes>,
    buffered_cost: usize,
    trailers: Option<HeaderMap>,
    end: BodyState,
    /// Announced bytes that the application has not read yet.
    remaining: Option<u64>,
    reader_waker: Option<Waker>,
    /// The session's task stopped reading because the buffer is full.
    paused: bool,
    requests: HandleRequests,
    /// Offsets in the body from which a connection carries it.
    segment_starts: Vec<(u64, ConnId)>,
    /// Number of the client's session at the origin; 0 at a server.
    session: u32,
    received_bytes: u64,
    rest_stream: Option<RestStream>,
}

/// A response's head.
#[derive(Debug)]
pub(crate) enum Head {
    /// The body is read from the shared state.
    Stream(ResponseHead),
    /// Head and body over HTTP/1.1.
    Http1(Response<hyper::body::Incoming>),
}

#[derive(Debug, Default)]
enum BodyState {
    #[default]
    Open,
    Complete,
    Failed(Error),
    /// The error was returned to the application.
    Returned,
    /// Another stream carries the rest.
    Continued(Box<BodyRest>),
}

/// The stream that carries the rest of a body.
#[derive(Debug)]
struct RestStream {
    stream: Arc<SharedStream>,
    /// Offset of its first byte in the complete body.
    first_pos: u64,
}

/// The application's requests to the session's task.
#[derive(Debug, Default)]
pub(crate) struct HandleRequests {
    /// The application dropped the body.
    pub(crate) dropped: bool,
    /// It has waited for bytes of the body, the first or later ones.
    pub(crate) awaits_body: bool,
    /// It requests a migration to another connection.
    pub(crate) migrate: bool,
    /// How much of its request body is to be sent.
    pub(crate) upload: UploadExtent,
    /// It requests another priority.
    pub(crate) priority: Option<Priority>,
    /// It decides whether the incoming body is bulk.
    pub(crate) incoming_bulk_hint: Option<BulkHint>,
}

/// How much of a request's body is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UploadExtent {
    #[default]
    All,
    /// Only until the response is complete.
    UntilResponse,
}

impl SharedStream {
    /// Creates the state of a stream without a slot in a driver.
    pub(crate) fn without_slot(notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self { notifier, slot: AtomicU32::new(NO_SLOT), state: Mutex::default() })
    }

    /// Creates the state of the stream at `slot`, whose body announces `announced` bytes.
    pub(crate) fn with_slot(
        notifier: Arc<Notifier>,
        slot: Slot,
        announced: Option<u64>,
    ) -> Arc<Self> {
        let state = Mutex::new(State { remaining: announced, ..State::default() });
        Arc::new(Self { notifier, slot: AtomicU32::new(slot.0), state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the session's task.
    fn wake_session(&self) {
        match self.slot.load(Ordering::Acquire) {
            NO_SLOT => self.notifier.wake_for_command(),
            slot => self.notifier.wake_slot(Slot(slot)),
        }
    }

    // For the session's task:

    /// Sets the stream's slot.
    pub(crate) fn set_slot(&self, slot: Slot) {
        self.slot.store(slot.0, Ordering::Release);
    }

    /// Records that the request is being sent: it has a stream, or over HTTP/1.1 a connection.
    pub(crate) fn on_sent(&self, now: Instant) {
        self.lock().sent_at = Some(now);
    }

    /// Takes the application's requests since the last call. `dropped` remains set.
    pub(crate) fn take_requests(&self) -> HandleRequests {
        let mut state = self.lock();
        let requests = core::mem::take(&mut state.requests);
        state.requests.dropped = requests.dropped;
        requests
    }

    /// Returns whether the application has dropped the stream.
    pub(crate) fn is_released(&self) -> bool {
        self.lock().requests.dropped
    }

    /// Returns whether the application dropped the stream before it ended.
    pub(crate) fn is_abandoned(&self) -> bool {
        let state = self.lock();
        state.requests.dropped && matches!(state.end, BodyState::Open)
    }

    /// Returns whether the application waits for data of the body.
    pub(crate) fn has_waiting_reader(&self) -> bool {
        let state = self.lock();
        state.reader_waker.is_some() && state.chunks.is_empty() && !state.requests.dropped
    }

    /// Returns whether the buffer has room. If not, the task is woken when at most half of it is in use.
    pub(crate) fn check_room(&self) -> bool {
        let mut state = self.lock();
        state.paused = state.buffered_cost >= MAX_READ_AHEAD_BYTES;
        !state.paused
    }

    /// Fails the request and returns its parts for a retry: its body was not polled.
    pub(crate) fn return_unsent(&self, unsent: UnsentRequest, error: Error) {
        self.lock().unsent_request = Some(unsent);
        self.fail(error);
    }

    /// Takes the parts that [`Self::return_unsent`] stored.
    pub(crate) fn take_unsent(&self) -> Option<UnsentRequest> {
        self.lock().unsent_request.take()
    }

    /// Stores the response's head.
    pub(crate) fn put_head(&self, head: Head, announced: Option<u64>) {
        let mut state = self.lock();
        if state.requests.dropped {
            // The application will not read it, and over HTTP/1.1 it keeps its connection busy.
            drop(state);
            return drop(head);
        }
        state.head = Some(head);
        state.remaining = announced;
        wake_reader(state);
    }

    /// Appends a chunk of the body.
    pub(crate) fn put_data(&self, data: Bytes) {
        let mut state = self.lock();
        state.buffered_cost += cost(&data);
        state.received_bytes += data.len() as u64;
        state.chunks.push_back(data);
        wake_reader(state);
    }

    pub(crate) fn put_trailers(&self, trailers: HeaderMap) {
        self.lock().trailers = Some(trailers);
    }

    /// Marks the body as complete.
    pub(crate) fn put_end(&self) {
        let mut state = self.lock();
        if matches!(state.end, BodyState::Open) {
            state.end = BodyState::Complete;
        }
        wake_reader(state);
    }

    /// Fails the stream: received data remains readable, the error follows it.
    pub(crate) fn fail(&self, error: Error) {
        let mut state = self.lock();
        if matches!(state.end, BodyState::Open) {
            state.end = BodyState::Failed(error);
        }
        wake_reader(state);
    }

    /// Records which of the client's sessions carries the stream.
    pub(crate) fn set_session(&self, number: u32) {
        self.lock().session = number;
    }

    /// Returns the number of bytes of the body that have arrived here.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.lock().received_bytes
    }

    /// Ends the body here and continues it with `rest`, which `stream` carries from offset `first_pos` on.
    pub(crate) fn continue_with(&self, rest: Box<BodyRest>, stream: Arc<Self>, first_pos: u64) {
        let mut state = self.lock();
        if state.requests.dropped || !matches!(state.end, BodyState::Open) {
            drop(state);
            return drop(rest);
        }
        state.end = BodyState::Continued(rest);
        state.rest_stream = Some(RestStream { stream, first_pos });
        wake_reader(state);
    }

    /// Records that `connection` carries the body from offset `start` on.
    pub(crate) fn set_connection(&self, connection: ConnId, start: u64) {
        let mut state = self.lock();
        match state.segment_starts.last_mut() {
            Some((from, last)) if *from == start => *last = connection,
            _ => state.segment_starts.push((start, connection)),
        }
    }

    // For the application:

    /// Returns when the request was sent; `None` as long as it waits for a stream.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.lock().sent_at
    }

    /// Polls for the response's head.
    pub(crate) fn poll_head(&self, cx: &mut Context<'_>) -> Poll<Result<Head, Error>> {
        let mut state = self.lock();
        if let Some(head) = state.head.take() {
            return Poll::Ready(Ok(head));
        }
        match core::mem::replace(&mut state.end, BodyState::Open) {
            BodyState::Open => {
                state.set_reader(cx);
                Poll::Pending
            }
            BodyState::Failed(error) => {
                state.end = BodyState::Returned;
                Poll::Ready(Err(error))
            }
            BodyState::Complete | BodyState::Returned | BodyState::Continued(_) => {
                state.end = BodyState::Returned;
                Poll::Ready(Err(Error::new(ErrorKind::Canceled)))
            }
        }
    }

    /// Polls for the body's next frame. At its end, [`Self::take_rest`] may have the rest.
    pub(crate) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut state = self.lock();
        if let Some(data) = state.chunks.pop_front() {
            state.buffered_cost -= cost(&data);
            let resume = state.paused && state.buffered_cost <= MAX_READ_AHEAD_BYTES / 2;
            state.paused &= !resume;
            if let Some(remaining) = &mut state.remaining {
                *remaining = remaining.saturating_sub(data.len() as u64);
            }
            drop(state);
            if resume {
                self.wake_session();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = state.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match core::mem::replace(&mut state.end, BodyState::Returned) {
            BodyState::Complete | BodyState::Returned => Poll::Ready(None),
            BodyState::Failed(error) => Poll::Ready(Some(Err(error))),
            BodyState::Continued(rest) => {
                state.end = BodyState::Continued(rest);
                Poll::Ready(None)
            }
            BodyState::Open => {
                state.end = BodyState::Open;
                state.set_reader(cx);
                let first = state.received_bytes == 0 && !state.requests.awaits_body;
                state.requests.awaits_body = true;
                drop(state);
                if first {
                    self.wake_session();
                }
                Poll::Pending
            }
        }
    }

    /// Polls for the first data of the body, which is not taken. Returns whether there is any: if not, the stream has
    /// ended.
    pub(crate) fn poll_has_data(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.lock();
        if !state.chunks.is_empty() {
            return Poll::Ready(true);
        }
        if matches!(state.end, BodyState::Open) {
            state.set_reader(cx);
            return Poll::Pending;
        }
        Poll::Ready(false)
    }

    /// Takes the rest of the body, if another stream carries it.
    pub(super) fn take_rest(&self) -> Option<Box<BodyRest>> {
        let mut state = self.lock();
        match core::mem::replace(&mut state.end, BodyState::Returned) {
            BodyState::Continued(rest) => Some(rest),
            end => {
                state.end = end;
                None
            }
        }
    }

    /// Returns whether the body has ended.
    pub(crate) fn is_end(&self) -> bool {
        let state = self.lock();
        state.chunks.is_empty()
            && state.trailers.is_none()
            && matches!(state.end, BodyState::Complete | BodyState::Returned)
    }

    /// Returns the remaining number of bytes, if the length was announced.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.lock().remaining
    }

    /// Releases the stream: the application has dropped it.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        state.requests.dropped = true;
        state.chunks.clear();
        state.buffered_cost = 0;
        // It may contain a body over HTTP/1.1, which keeps its connection busy.
        let head = state.head.take();
        let has_ended = !matches!(state.end, BodyState::Open);
        let rest = match core::mem::replace(&mut state.end, BodyState::Returned) {
            BodyState::Continued(rest) => Some(rest),
            end => {
                state.end = end;
                None
            }
        };
        drop(state);
        drop((head, rest));
        if !has_ended {
            self.wake_session();
        }
    }

    /// Returns the stream that carries the rest of the body.
    fn rest_stream(&self) -> Option<Arc<Self>> {
        self.lock().rest_stream.as_ref().map(|rest| Arc::clone(&rest.stream))
    }

    pub(super) fn request_migration(&self) {
        if let Some(rest) = self.rest_stream() {
            return rest.request_migration();
        }
        self.lock().requests.migrate = true;
        self.wake_session();
    }

    pub(super) fn request_upload_stop(&self) {
        self.lock().requests.upload = UploadExtent::UntilResponse;
        self.wake_session();
    }

    pub(super) fn request_incoming_bulk_hint(&self, hint: BulkHint) {
        self.lock().requests.incoming_bulk_hint = Some(hint);
        self.wake_session();
    }

    pub(super) fn request_priority(&self, priority: Priority) {
        if let Some(rest) = self.rest_stream() {
            return rest.request_priority(priority);
        }
        self.lock().requests.priority = Some(priority);
        self.wake_session();
    }

    pub(super) fn segments(&self) -> Vec<Segment> {
        let state = self.lock();
        let received = state.received_bytes;
        let ends = state.segment_starts.iter().skip(1).map(|&(start, _)| start).chain([u64::MAX]);
        let segments =
            state.segment_starts.iter().zip(ends).map(|(&(start, connection), end)| Segment {
                session: state.session,
                connection,
                start: start.min(received),
                end: end.min(received),
                is_continuation: false,
            });
        let mut segments: Vec<_> = segments.collect();
        if let Some(RestStream { stream, first_pos }) = &state.rest_stream {
            segments.extend(stream.segments().into_iter().map(|rest| Segment {
                start: (first_pos + rest.start).max(received),
                end: (first_pos + rest.end).max(received),
                is_continuation: true,
                ..rest
            }));
        }
        segments
    }

    pub(super) fn connection(&self) -> Option<ConnId> {
        if let Some(rest) = self.rest_stream() {
            return rest.connection();
        }
        self.lock().segment_starts.last().map(|&(_, connection)| connection)
    }
}

impl State {
    fn set_reader(&mut self, cx: &Context<'_>) {
        match &mut self.reader_waker {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

/// Returns the cost of a chunk in terms of [`MAX_READ_AHEAD_BYTES`].
fn cost(chunk: &Bytes) -> usize {
    chunk.len().max(MIN_CHUNK_COST_BYTES)
}

/// Wakes the application after releasing the lock.
fn wake_reader(mut state: MutexGuard<'_, State>) {
    let reader = state.reader_waker.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_chunks_fill_the_buffer_too() {
        // A peer that sends one byte per frame must not cause 64 Ki queue entries and allocations.
        let shared = SharedStream::without_slot(Arc::default());
        let mut chunks = 0;
        while shared.check_room() {
            shared.put_data(Bytes::from_static(b"x"));
            chunks += 1;
        }
        assert_eq!(chunks, MAX_READ_AHEAD_BYTES / MIN_CHUNK_COST_BYTES);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..chunks {
            assert!(matches!(shared.poll_frame(&mut cx), Poll::Ready(Some(Ok(_)))));
        }
        assert!(shared.check_room());
        assert_eq!(shared.lock().buffered_cost, 0);
    }
}
