//! What waits to be written: control frames of a connection, and the driver's queue of octets.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Payloads shorter than this are copied behind the frame before them: cheaper than a slice more in
/// a vectored write.
const COPY: usize = 2048;

/// Control frames and header blocks that are framed and not yet taken by the driver.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) frames: BytesMut,
    /// Answers among them that the peer caused: acknowledgements, resets.
    pub(crate) answers: u32,
    /// Bytes of requests among them: the application wants those, whatever the peer does.
    unprovoked: usize,
}

impl Outbox {
    /// Frames a request.
    pub(crate) fn open_stream(&mut self, frame: impl FnOnce(&mut BytesMut)) {
        let before = self.frames.len();
        frame(&mut self.frames);
        self.unprovoked += self.frames.len().saturating_sub(before);
    }

    /// Bytes that a peer piles up here that sends and does not read. If an end stopped to read because of its
    /// own requests, two ends with many of them could stand still.
    pub(crate) fn provoked(&self) -> usize {
        self.frames.len().saturating_sub(self.unprovoked)
    }

    /// The driver has taken everything.
    pub(crate) fn on_taken(&mut self) {
        (self.answers, self.unprovoked) = (0, 0);
    }
}

/// Octets on their way to a transport, owned by the driver: filled by
/// [`crate::Session::poll_transmit`], emptied by writing.
#[derive(Debug, Default)]
pub struct Transmit {
    sealed: VecDeque<Bytes>,
    open: BytesMut,
    length: usize,
    /// What `open` held at most since the last rest.
    peak: usize,
    /// The same before that rest.
    expected: usize,
}

impl Transmit {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Octets that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Fills `slices` with what waits, in order; returns how many were filled.
    pub fn chunks<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let waiting = self.sealed.iter().map(|chunk| &chunk[..]).chain([&self.open[..]]);
        let mut filled = 0;
        for (slot, chunk) in slices.iter_mut().zip(waiting.filter(|chunk| !chunk.is_empty())) {
            *slot = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Drops the first `octets`, which were written.
    pub fn advance(&mut self, mut octets: usize) {
        self.length = self.length.saturating_sub(octets);
        while octets > 0 {
            let Some(front) = self.sealed.front_mut() else {
                self.open.advance(octets.min(self.open.len()));
                return;
            };
            if front.len() > octets {
                front.advance(octets);
                return;
            }
            octets -= front.len();
            self.sealed.pop_front();
        }
    }

    /// Gives memory back, if it is more than `keep` octets and nothing waits; for connections at rest.
    /// The next time as much is taken at once: a buffer that doubles copies its octets each time.
    pub fn rest(&mut self, keep: usize) {
        let most = self.peak.max(self.open.capacity());
        if self.is_empty() && most > keep {
            *self = Self { expected: self.peak, ..Self::default() };
        }
    }

    /// Makes room for as much as there was before the last rest.
    pub(crate) fn expect_data(&mut self) {
        let expected = std::mem::take(&mut self.expected);
        if expected > self.open.capacity() {
            self.open.reserve(expected - self.open.len());
        }
    }

    pub(crate) fn open_buffer(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.open.len();
        write(&mut self.open);
        self.length += self.open.len() - before;
        self.peak = self.peak.max(self.open.len());
    }

    pub(crate) fn push(&mut self, payload: Bytes) {
        if payload.len() < COPY {
            return self.open_buffer(|open| open.extend_from_slice(&payload));
        }
        self.length += payload.len();
        if !self.open.is_empty() {
            self.sealed.push_back(self.open.split().freeze());
        }
        self.sealed.push_back(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_come_out_in_the_order_they_went_in() {
        let mut out = Transmit::new();
        let mut expected = Vec::new();
        for length in [9, 3000, 9, 10, 9, 5000, 2047] {
            let part = vec![(length % 251) as u8; length];
            expected.extend_from_slice(&part);
            if length == 9 {
                out.open_buffer(|b| b.extend_from_slice(&part))
            } else {
                out.push(part.into())
            }
        }
        assert_eq!(out.len(), expected.len());
        let mut got = Vec::new();
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let filled = out.chunks(&mut slices);
            let first: Vec<u8> =
                slices[..filled].iter().flat_map(|s| s.to_vec()).take(777).collect();
            got.extend_from_slice(&first);
            out.advance(first.len());
        }
        assert_eq!(got, expected);
    }
}
