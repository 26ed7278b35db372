//! Buffered body whose memory consumption is bounded by its length.
//!
//! DATA arrives as a slice of the buffer that the driver read into, and a slice keeps the entire
//! buffer alive. A flow-control window alone would not bound memory: slices of 1 KiB in buffers of
//! 64 KiB retain 64 times the window. Queues therefore hold [`Body`]. Input becomes [`Body`] only
//! through [`BufferTracker::make_body`], which copies a slice that is much smaller than its buffer.

use core::ops::Deref;

use bytes::{Bytes, BytesMut};

use crate::flow::Credit;
use crate::ids::ConnId;

/// Maximum ratio of a buffer's size to the length of a slice that retains it. Frames of 16 KiB
/// are not copied out of the 64 to 80 KiB that a driver reads into; nor are those of 8 KiB, as some servers prefer, out of
/// 64 KiB.
const MAX_RETENTION_RATIO: usize = 8;

/// Payloads shorter than this are coalesced, so that a peer that sends one byte per frame neither
/// pins a receive buffer nor adds a queue entry with each frame (CVE-2019-9511).
pub(crate) const MIN_UNCOALESCED_BYTES: usize = 1024;
/// Short payloads are coalesced up to this size.
pub(crate) const MAX_COALESCED_BYTES: usize = 8 * 1024;

/// Body that retains at most [`MAX_RETENTION_RATIO`] times its length.
#[derive(Debug, Default)]
pub(crate) struct Body(Bytes);

impl Body {
    /// Converts to a buffer to which more can be appended. Does not copy if the body is already a
    /// copy.
    pub(crate) fn into_bytes_mut(self) -> BytesMut {
        BytesMut::from(self.0)
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<BytesMut> for Body {
    /// No other data shares the buffer of coalesced bytes, and it grows at most by doubling.
    fn from(coalesced: BytesMut) -> Self {
        Self(coalesced.freeze())
    }
}

/// Body on its way to the application, with its credit of the connection's window.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) data: Body,
    /// Bytes of the frame other than `data`. Already returned to the connection's window, but not
    /// yet charged to the stream's window (RFC 9113 section 6.9.1).
    pub(crate) padding: u32,
    pub(crate) conn: ConnId,
    pub(crate) credit: Credit,
}

/// Tracks the size of the buffer that contains a connection's input.
#[derive(Debug, Default)]
pub(crate) struct BufferTracker {
    /// End address of the buffer. It stays the same while frames are split off the front.
    end: usize,
    size: usize,
}

impl BufferTracker {
    /// Records the driver's buffer, before frames are split off.
    pub(crate) fn record(&mut self, input: &BytesMut) {
        let end = input.as_ptr().addr() + input.capacity();
        if end != self.end {
            *self = Self { end, size: 0 };
        }
        // A smaller buffer that ends at the same address is treated as the larger one.
        self.size = self.size.max(input.capacity());
    }

    /// Converts a slice of the input to a body. Copies it if the slice would retain more than
    /// [`MAX_RETENTION_RATIO`] times its length.
    pub(crate) fn make_body(&self, slice: Bytes) -> Body {
        if slice.len().saturating_mul(MAX_RETENTION_RATIO) >= self.size {
            return Body(slice);
        }
        Body(Bytes::copy_from_slice(&slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tracker of a buffer of `size` bytes, and slices of `lengths` from its front.
    fn slices_of_buffer<const N: usize>(
        size: usize,
        lengths: [usize; N],
    ) -> (BufferTracker, [Bytes; N]) {
        let mut input = BytesMut::zeroed(size);
        let mut tracker = BufferTracker::default();
        tracker.record(&input);
        let slices = lengths.map(|length| {
            let slice = input.split_to(length).freeze();
            tracker.record(&input);
            slice
        });
        (tracker, slices)
    }

    fn is_copied(tracker: &BufferTracker, slice: &Bytes) -> bool {
        !core::ptr::eq(tracker.make_body(slice.clone()).as_ptr(), slice.as_ptr())
    }

    #[test]
    fn a_slice_that_is_much_smaller_than_its_buffer_is_copied() {
        let (tracker, slices) = slices_of_buffer(64 << 10, [1, 1024, 8191, 8192, 16_384]);
        let copied = slices.map(|slice| is_copied(&tracker, &slice));
        assert_eq!(copied, [true, true, true, false, false]);
    }

    #[test]
    fn full_frames_are_not_copied_in_the_largest_buffer_of_a_driver() {
        // A read of 64 KiB after a frame that lacks one byte.
        let (tracker, slices) = slices_of_buffer((64 << 10) + 16_384 + 8, [16_384, 16_384, 16_384]);
        assert!(slices.iter().all(|slice| !is_copied(&tracker, slice)));
    }

    #[test]
    fn the_full_size_is_tracked_until_the_buffer_is_replaced() {
        // All but the last 100 bytes were split off before.
        let (mut tracker, _slices) =
            slices_of_buffer(64 << 10, [16_384, 16_384, 16_384, 16_384 - 100]);
        assert_eq!(tracker.size, 64 << 10);
        let replacement = BytesMut::zeroed(2000);
        tracker.record(&replacement);
        assert_eq!(tracker.size, replacement.capacity());
    }

    #[test]
    fn a_copied_body_is_not_copied_again_to_append_to_it() {
        let (tracker, [slice]) = slices_of_buffer(64 << 10, [100]);
        let body = tracker.make_body(slice);
        let address = body.as_ptr();
        assert_eq!(body.into_bytes_mut().as_ptr(), address);
    }
}
