//! Unsent output: control frames of a connection, and the driver's transmit queue.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use crate::wire::{FRAME_HEADER_BYTES, FrameHeader, PREFACE};

/// Payloads shorter than this are copied after the frame's header, which is cheaper than another slice in a vectored write.
const MIN_SLICE_BYTES: usize = 512;
/// Payloads shorter than this are copied while the queue is short: one slice for all of it is cheapest.
const MIN_FIRST_SLICE_BYTES: usize = 2048;
/// Number of payloads from which shorter ones are copied again: more slices than a vectored write takes would split it.
const MAX_SHORT_PAYLOADS: usize = 31;
/// Length up to which a queue is short.
const MAX_SHORT_QUEUE_BYTES: usize = 4096;

/// Framed control frames and field blocks that the driver has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    pub(crate) frames: BytesMut,
    /// Number of replies to the peer among them: acknowledgements, answers to JOIN and MIGRATE, and resets (at a server only those of unbound carriers).
    pub(crate) replies: u32,
    /// Bytes of requests among them, which the application caused, not the peer.
    request_bytes: usize,
    /// How much of `frames` was counted, and how many frames that is.
    counted: Counted,
}

/// Frames that leave a control queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    bytes: u32,
    pub(crate) frames: u32,
    /// Number of the last frame that is not a receipt; 0: all are receipts.
    pub(crate) last_needed: u32,
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

    /// Writes the client's connection preface, which is no frame.
    pub(crate) fn push_preface(&mut self) {
        debug_assert!(self.frames.is_empty(), "it is first");
        self.frames.extend_from_slice(PREFACE);
        self.counted.bytes = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
    }

    /// Counts the frames. Looks at each of them once.
    pub(crate) fn count_frames(&mut self) -> Counted {
        while let Some(header) =
            self.frames.get(self.counted.bytes as usize..).and_then(FrameHeader::parse)
        {
            self.counted.bytes += FRAME_HEADER_BYTES as u32 + header.length;
            self.counted.frames += 1;
            self.counted.last_needed = self.counted.frames;
        }
        self.counted
    }

    /// Appends a receipt, which needs no receipt itself.
    pub(crate) fn push_receipt(&mut self, frame: impl FnOnce(&mut BytesMut)) {
        self.count_frames();
        frame(&mut self.frames);
        self.counted.bytes = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.counted.frames += 1;
    }

    /// Resets the counters after the driver has taken everything.
    pub(crate) fn reset_counters(&mut self) {
        (self.replies, self.request_bytes) = (0, 0);
        self.counted = Counted::default();
    }
}

/// Bytes to be written to a transport. Owned by the driver; [`crate::Session::poll_transmit`] fills
/// it, and writing drains it.
#[derive(Debug, Default)]
pub struct OutputBuffer {
    /// Frame headers, control frames and short payloads.
    framed: BytesMut,
    /// Payloads that are not copied.
    payloads: VecDeque<Payload>,
    /// Bytes of `framed` after the last of `payloads`.
    framed_after: usize,
    length: usize,
    /// Largest memory in use since [`Self::shrink`] last released it.
    peak: Usage,
    /// Value of `peak` at that time.
    released_peak: Usage,
}

/// A payload, and how many bytes of `framed` are between it and the one before.
#[derive(Debug)]
struct Payload {
    framed_before: usize,
    data: Bytes,
}

/// Memory that an [`OutputBuffer`] uses: bytes that are framed, and number of payloads.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    framed: usize,
    payloads: usize,
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

    /// Returns how many slices [`Self::chunks`] fills at most.
    #[must_use]
    pub fn max_chunk_count(&self) -> usize {
        2 * self.payloads.len() + usize::from(self.framed_after > 0)
    }

    /// Fills `slices` with queued bytes, in order; returns the number of slices filled.
    pub fn chunks<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut filled, mut rest) = (0, &self.framed[..]);
        let mut add = |chunk: &'a [u8]| {
            if !chunk.is_empty()
                && let Some(slot) = slices.get_mut(filled)
            {
                *slot = IoSlice::new(chunk);
                filled += 1;
            }
            filled < slices.len()
        };
        for Payload { framed_before, data } in &self.payloads {
            let (framed, after) = rest.split_at_checked(*framed_before).unwrap_or_default();
            rest = after;
            if !add(framed) || !add(data) {
                return slices.len();
            }
        }
        add(rest);
        filled
    }

    /// Removes the first `bytes` bytes, which were written.
    pub fn advance(&mut self, mut bytes: usize) {
        self.length = self.length.saturating_sub(bytes);
        let mut framed = 0;
        while let Some(Payload { framed_before, data }) = self.payloads.front_mut() {
            let step = bytes.min(*framed_before);
            (bytes, framed, *framed_before) = (bytes - step, framed + step, *framed_before - step);
            if bytes < data.len() {
                data.advance(bytes);
                bytes = 0;
                break;
            }
            bytes -= data.len();
            self.payloads.pop_front();
        }
        if self.payloads.is_empty() {
            bytes = bytes.min(self.framed_after);
            (framed, self.framed_after) = (framed + bytes, self.framed_after - bytes);
        }
        self.framed.advance(framed.min(self.framed.len()));
    }

    /// Releases the memory if the queue is empty and used more than `keep` bytes; for idle
    /// connections. The next DATA allocates the same capacity at once: growing by doubling copies
    /// the content each time.
    pub fn shrink(&mut self, keep: usize) {
        let framed_bytes = self.peak.framed.max(self.framed.capacity());
        let used = framed_bytes + self.payloads.capacity() * size_of::<Payload>();
        if self.is_empty() && used > keep {
            *self = Self { released_peak: self.peak, ..Self::default() };
        }
    }

    /// Reserves the capacity that was in use before memory was last released.
    pub(crate) fn restore_capacity(&mut self) {
        let expected = std::mem::take(&mut self.released_peak);
        if expected.framed > self.framed.capacity() {
            self.framed.reserve(expected.framed - self.framed.len());
        }
        self.payloads.reserve(expected.payloads.saturating_sub(self.payloads.len()));
    }

    pub(crate) fn append_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.framed.len();
        write(&mut self.framed);
        let added = self.framed.len() - before;
        self.length += added;
        self.framed_after += added;
        self.peak.framed = self.peak.framed.max(self.framed.len());
    }

    pub(crate) fn push(&mut self, payload: Bytes) {
        let is_short = self.length + payload.len() <= MAX_SHORT_QUEUE_BYTES
            || self.payloads.len() >= MAX_SHORT_PAYLOADS;
        let min_slice_bytes = if is_short { MIN_FIRST_SLICE_BYTES } else { MIN_SLICE_BYTES };
        if payload.len() < min_slice_bytes {
            return self.append_with(|framed| framed.extend_from_slice(&payload));
        }
        self.length += payload.len();
        let framed_before = std::mem::take(&mut self.framed_after);
        self.payloads.push_back(Payload { framed_before, data: payload });
        self.peak.payloads = self.peak.payloads.max(self.payloads.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_payloads_need_no_more_slices_than_a_write_takes() {
        let mut out = OutputBuffer::new();
        for _ in 0..200 {
            out.append_with(|framed| framed.extend_from_slice(&[0; 9]));
            out.push(Bytes::from(vec![1; 600]));
        }
        let mut slices = [IoSlice::new(&[]); 64];
        let used = out.chunks(&mut slices);
        assert_eq!(slices[..used].iter().map(|slice| slice.len()).sum::<usize>(), 200 * 609);
    }

    #[test]
    fn bytes_are_returned_in_order() {
        let mut out = OutputBuffer::new();
        let mut expected = Vec::new();
        for length in [9, 1000, 9, 3000, 9, 10, 9, 5000, 2047, 9, 600, 9, 511, 9, 512, 513] {
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

    #[test]
    fn small_payloads_are_copied_only_while_the_queue_is_short() {
        let mut out = OutputBuffer::new();
        for (count, expected) in [(3, 1), (2, 4)] {
            for _ in 0..count {
                out.append_with(|framed| framed.extend_from_slice(&[0; 9]));
                out.push(vec![1; 1024].into());
            }
            let mut slices = [IoSlice::new(&[]); 16];
            assert_eq!(out.chunks(&mut slices), expected, "{} bytes", out.len());
            assert_eq!(out.max_chunk_count(), expected, "{} bytes", out.len());
        }
    }
}
