//! Unsent output: control frames of a connection, and the driver's transmit queue.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Payloads shorter than this are copied after the preceding frame, which is cheaper than another
/// slice in a vectored write.
const MIN_SLICE_BYTES: usize = 2048;

/// Framed control frames and field blocks that the driver has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    pub(crate) frames: BytesMut,
    /// Number of replies to the peer among them: acknowledgements and resets.
    pub(crate) replies: u32,
    /// Bytes of requests among them, which the application caused, not the peer.
    request_bytes: usize,
}

impl ControlQueue {
    /// Frames a request.
    pub(crate) fn push_request(&mut self, frame: impl FnOnce(&mut BytesMut)) {
        let before = self.frames.len();
        frame(&mut self.frames);
        self.request_bytes += self.frames.len().saturating_sub(before);
    }

    /// Returns the bytes that the peer caused; they accumulate if it sends but does not read.
    /// Requests do not count: if each end stopped reading because of its own requests, the
    /// connection could deadlock.
    pub(crate) fn peer_caused_bytes(&self) -> usize {
        self.frames.len().saturating_sub(self.request_bytes)
    }

    /// Resets the counters after the driver has taken everything.
    pub(crate) fn reset_counters(&mut self) {
        (self.replies, self.request_bytes) = (0, 0);
    }
}

/// Bytes to be written to a transport. Owned by the driver; [`crate::Session::poll_transmit`] fills
/// it, and writing drains it.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    sealed_chunks: VecDeque<Bytes>,
    open_chunk: BytesMut,
    length: usize,
    /// Largest length of `open_chunk` since [`Self::shrink`] last released memory.
    peak: usize,
    /// Value of `peak` at that time.
    released_peak: usize,
}

impl OutputBuffer {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of queued bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Fills `slices` with queued bytes, in order; returns the number of slices filled.
    pub fn chunks<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let waiting =
            self.sealed_chunks.iter().map(|chunk| &chunk[..]).chain([&self.open_chunk[..]]);
        let mut filled = 0;
        for (slot, chunk) in slices.iter_mut().zip(waiting.filter(|chunk| !chunk.is_empty())) {
            *slot = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Removes the first `bytes` bytes, which were written.
    pub fn advance(&mut self, mut bytes: usize) {
        self.length = self.length.saturating_sub(bytes);
        while bytes > 0 {
            let Some(front) = self.sealed_chunks.front_mut() else {
                self.open_chunk.advance(bytes.min(self.open_chunk.len()));
                return;
            };
            if front.len() > bytes {
                front.advance(bytes);
                return;
            }
            bytes -= front.len();
            self.sealed_chunks.pop_front();
        }
    }

    /// Releases the memory if the queue is empty and used more than `keep` bytes; for idle
    /// connections. The next DATA allocates the same capacity at once: growing by doubling copies
    /// the content each time.
    pub fn shrink(&mut self, keep: usize) {
        let used = self.peak.max(self.open_chunk.capacity());
        if self.is_empty() && used > keep {
            *self = Self { released_peak: self.peak, ..Self::default() };
        }
    }

    /// Reserves the capacity that was in use before memory was last released.
    pub(crate) fn restore_capacity(&mut self) {
        let expected = std::mem::take(&mut self.released_peak);
        if expected > self.open_chunk.capacity() {
            self.open_chunk.reserve(expected - self.open_chunk.len());
        }
    }

    pub(crate) fn append_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.open_chunk.len();
        write(&mut self.open_chunk);
        self.length += self.open_chunk.len() - before;
        self.peak = self.peak.max(self.open_chunk.len());
    }

    pub(crate) fn push(&mut self, payload: Bytes) {
        if payload.len() < MIN_SLICE_BYTES {
            return self.append_with(|open| open.extend_from_slice(&payload));
        }
        self.length += payload.len();
        if !self.open_chunk.is_empty() {
            self.sealed_chunks.push_back(self.open_chunk.split().freeze());
        }
        self.sealed_chunks.push_back(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_returned_in_order() {
        let mut out = OutputBuffer::new();
        let mut expected = Vec::new();
        for length in [9, 3000, 9, 10, 9, 5000, 2047] {
            let part = vec![(length % 251) as u8; length];
            expected.extend_from_slice(&part);
            if length == 9 {
                out.append_with(|b| b.extend_from_slice(&part))
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
