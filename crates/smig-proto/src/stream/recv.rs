//! The receiving half: unread body, receive window, and the end of the direction.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::body::{Chunk, MAX_COALESCED_BYTES, MIN_UNCOALESCED_BYTES};
use crate::error::Cause;
use crate::flow::{Credit, RecvWindow};
use crate::ids::ConnId;
use crate::wire::EndStream;

/// Progress of the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvState {
    /// The head has not been received.
    Head,
    /// DATA and trailers may follow.
    Body,
    /// END_STREAM was received, or the stream was reset.
    Ended,
}

/// Result of a read by the application.
#[derive(Debug)]
pub(crate) enum RecvItem {
    Data { data: Bytes, conn: ConnId, conn_credit: Credit, stream_credit: Credit },
    Trailers(HeaderMap),
    End,
    Pending,
}

#[derive(Debug)]
pub(crate) struct RecvHalf {
    state: RecvState,
    queue: VecDeque<Chunk>,
    /// Short payloads that are being coalesced after `queue`.
    tail: Option<(BytesMut, ConnId, Credit)>,
    /// Credit of the stream's window for everything in the queue.
    unread_credit: Credit,
    trailers: Option<HeaderMap>,
    pub(crate) window: RecvWindow,
    content_length: Option<u64>,
    received_bytes: u64,
    /// Number of 1xx responses so far.
    pub(crate) informational_count: u32,
    /// The application was notified, and has not read up to [`RecvItem::Pending`] since.
    pub(crate) is_notified: bool,
}

impl RecvHalf {
    pub(crate) fn new(window: u32, state: RecvState) -> Self {
        Self {
            state,
            queue: VecDeque::new(),
            tail: None,
            unread_credit: Credit::NONE,
            trailers: None,
            window: RecvWindow::of_stream(window),
            content_length: None,
            received_bytes: 0,
            informational_count: 0,
            is_notified: false,
        }
    }

    /// Returns the half of a direction that has come whole, with this number of bytes.
    pub(crate) fn ended(received_bytes: u64) -> Self {
        Self { received_bytes, ..Self::new(0, RecvState::Ended) }
    }

    /// Returns the half of a request of which this number of bytes has come, and no more is wanted.
    pub(crate) fn stopped(received_bytes: u64) -> Self {
        Self { received_bytes, ..Self::new(0, RecvState::Body) }
    }

    pub(crate) const fn state(&self) -> RecvState {
        self.state
    }

    pub(crate) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub(crate) const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Records that the head was received.
    pub(crate) fn on_head(&mut self, end: EndStream, length: Option<u64>) -> Result<(), Cause> {
        self.content_length = length;
        self.state = RecvState::Body;
        if end.is_end() { self.on_end() } else { Ok(()) }
    }

    /// Adds DATA that is already charged to the connection's window. Returns the increment of the
    /// stream's window that is due, if any.
    pub(crate) fn on_data(&mut self, chunk: Chunk) -> Result<Option<u32>, (Cause, Credit)> {
        let Chunk { data, padding, conn, credit } = chunk;
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX).saturating_add(padding);
        self.received_bytes += data.len() as u64;
        if self.content_length.is_some_and(|expected| self.received_bytes > expected) {
            return Err((Cause::BadContentLength, credit));
        }
        let Some(mut stream_credit) = self.window.charge(bytes) else {
            return Err((Cause::StreamWindowExceeded, credit));
        };
        // Padding is consumed on arrival.
        let due_increment = self.window.give_back(stream_credit.split(padding));
        self.unread_credit.merge(stream_credit);
        if data.is_empty() {
            credit.forfeit();
            return Ok(due_increment);
        }
        if data.len() >= MIN_UNCOALESCED_BYTES {
            self.seal_tail();
            self.queue.push_back(Chunk { data, padding: 0, conn, credit });
            return Ok(due_increment);
        }
        if self
            .tail
            .as_ref()
            .is_some_and(|(buf, at, _)| *at != conn || buf.len() >= MAX_COALESCED_BYTES)
        {
            self.seal_tail();
        }
        match &mut self.tail {
            Some((buf, _, tail_credit)) => {
                buf.extend_from_slice(&data);
                tail_credit.merge(credit);
            }
            none => *none = Some((data.into_bytes_mut(), conn, credit)),
        }
        Ok(due_increment)
    }

    /// Records END_STREAM. Fails if the length of the body differs from content-length.
    pub(crate) fn on_end(&mut self) -> Result<(), Cause> {
        if self.content_length.is_some_and(|expected| self.received_bytes != expected) {
            return Err(Cause::BadContentLength);
        }
        self.state = RecvState::Ended;
        Ok(())
    }

    /// Stores the trailers, which end the direction.
    pub(crate) fn on_trailers(&mut self, trailers: HeaderMap) -> Result<(), Cause> {
        self.trailers = Some(trailers);
        self.on_end()
    }

    fn seal_tail(&mut self) {
        if let Some((buf, conn, credit)) = self.tail.take() {
            self.queue.push_back(Chunk { data: buf.into(), padding: 0, conn, credit });
        }
    }

    /// Takes the next body, trailers or end of stream for the application.
    pub(crate) fn take(&mut self) -> RecvItem {
        if self.queue.is_empty() {
            self.seal_tail();
        }
        if let Some(Chunk { data, conn, credit, .. }) = self.queue.pop_front() {
            let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let stream_credit = self.unread_credit.split(bytes);
            return RecvItem::Data {
                data: data.into_bytes(),
                conn,
                conn_credit: credit,
                stream_credit,
            };
        }
        if let Some(trailers) = self.trailers.take() {
            return RecvItem::Trailers(trailers);
        }
        if self.state == RecvState::Ended {
            return RecvItem::End;
        }
        self.is_notified = false;
        RecvItem::Pending
    }

    /// Returns the bytes of a connection's receive window that unread body occupies.
    pub(crate) fn window_bytes_on(&self, conn_id: ConnId) -> u64 {
        let queued = self.queue.iter().map(|chunk| (chunk.conn, &chunk.credit));
        let tail = self.tail.iter().map(|(_, conn, credit)| (*conn, credit));
        let here = queued.chain(tail).filter(|&(conn, _)| conn == conn_id);
        here.map(|(_, credit)| u64::from(credit.bytes())).sum()
    }

    /// Drops unread body; the direction continues. The application does not read any more, so the
    /// stream's window stays consumed. Each connection's credit must be returned.
    pub(crate) fn discard(&mut self) -> Vec<(ConnId, Credit)> {
        core::mem::replace(&mut self.unread_credit, Credit::NONE).forfeit();
        self.seal_tail();
        self.queue.drain(..).map(|chunk| (chunk.conn, chunk.credit)).collect()
    }

    /// Drops unread body and trailers, and ends the direction. Each connection's credit must be
    /// returned.
    pub(crate) fn abort(&mut self) -> Vec<(ConnId, Credit)> {
        self.state = RecvState::Ended;
        self.trailers = None;
        self.seal_tail();
        self.queue.drain(..).map(|chunk| (chunk.conn, chunk.credit)).collect()
    }
}
