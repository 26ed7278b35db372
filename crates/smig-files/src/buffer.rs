//! Memory that file content is read into.
//!
//! Owns the buffers of large reads. A buffer is returned when the last [`Bytes`] over it is dropped and
//! is reused without clearing: zeroing 64 KB for each read, or faulting in fresh pages, costs a
//! substantial part of a copy from the page cache. The most recently used buffer is reused first,
//! since it is still in the CPU's cache.

use std::cell::RefCell;

use bytes::Bytes;

/// Size of the largest buffer in bytes: four TLS records. Larger chunks no longer fit the CPU's second-level
/// cache together with their ciphertext; smaller ones need more system calls.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Up to this size a buffer has the exact length: a small response must not hold a complete chunk.
const MAX_EXACT_BYTES: usize = CHUNK_BYTES / 4;

/// Maximum number of free buffers per thread.
const MAX_FREE_BUFFERS: usize = 16;

thread_local! {
    static FREE_LIST: RefCell<FreeList> = const { RefCell::new(FreeList { buffers: Vec::new(), takes_buffers: false }) };
}

/// The free buffers of a thread.
struct FreeList {
    buffers: Vec<Vec<u8>>,
    /// Whether this thread takes buffers. A thread that does not retains none.
    takes_buffers: bool,
}

/// A buffer to read into.
#[derive(Debug)]
pub(crate) struct Buffer {
    space: Vec<u8>,
    len: usize,
}

impl Buffer {
    /// Returns space for `len` bytes, at most [`CHUNK_BYTES`].
    pub(crate) fn take(len: usize) -> Self {
        let len = len.min(CHUNK_BYTES);
        if len <= MAX_EXACT_BYTES {
            return Self { space: vec![0; len], len };
        }
        let free = FREE_LIST.with_borrow_mut(|free| {
            free.takes_buffers = true;
            free.buffers.pop()
        });
        Self { space: free.unwrap_or_else(|| vec![0; CHUNK_BYTES]), len }
    }

    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.space[..self.len]
    }

    /// Returns the first `len` bytes of the space.
    pub(crate) fn into_bytes(mut self, len: usize) -> Bytes {
        let mut space = std::mem::take(&mut self.space);
        if space.len() < CHUNK_BYTES {
            space.truncate(len);
            return Bytes::from(space);
        }
        Bytes::from_owner(PooledBuffer { space, len })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.space));
    }
}

/// A full-size buffer in use by a [`Bytes`].
struct PooledBuffer {
    space: Vec<u8>,
    len: usize,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.space.get(..self.len).unwrap_or_default()
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.space));
    }
}

fn recycle(space: Vec<u8>) {
    if space.len() < CHUNK_BYTES {
        return;
    }
    // An error means that the thread is ending and its list is dropped: the memory is then freed.
    let _ = FREE_LIST.try_with(|free| {
        if let Ok(mut free) = free.try_borrow_mut()
            && free.takes_buffers
            && free.buffers.len() < MAX_FREE_BUFFERS
        {
            free.buffers.push(space);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(bytes: &Bytes) -> usize {
        bytes.as_ptr().addr()
    }

    #[test]
    fn a_chunk_is_reused_after_its_last_user_is_dropped() {
        let mut buffer = Buffer::take(CHUNK_BYTES);
        buffer.space()[..3].copy_from_slice(b"abc");
        let mut bytes = buffer.into_bytes(3);
        let first_address = address(&bytes);
        let part = bytes.split_off(1);
        drop(bytes);
        let other = Buffer::take(CHUNK_BYTES).into_bytes(1);
        assert_ne!(address(&other), first_address);
        assert_eq!(part, &b"bc"[..]);
        drop(part);
        assert_eq!(address(&Buffer::take(CHUNK_BYTES).into_bytes(1)), first_address);
    }

    #[test]
    fn an_unused_chunk_is_reused() {
        let mut buffer = Buffer::take(CHUNK_BYTES);
        let first_address = buffer.space().as_ptr();
        drop(buffer);
        assert_eq!(Buffer::take(CHUNK_BYTES).space().as_ptr(), first_address);
    }

    #[test]
    fn small_buffers_have_the_exact_length() {
        let mut buffer = Buffer::take(10);
        assert_eq!(buffer.space().len(), 10);
        assert_eq!(buffer.into_bytes(4).len(), 4);
        FREE_LIST.with_borrow(|free| assert!(free.buffers.is_empty()));
    }

    #[test]
    fn free_buffers_are_bounded() {
        let out: Vec<Bytes> =
            (0..MAX_FREE_BUFFERS + 5).map(|_| Buffer::take(CHUNK_BYTES).into_bytes(1)).collect();
        drop(out);
        FREE_LIST.with_borrow(|free| assert_eq!(free.buffers.len(), MAX_FREE_BUFFERS));
    }

    #[test]
    fn a_thread_that_only_drops_buffers_keeps_none() {
        let bytes = Buffer::take(CHUNK_BYTES).into_bytes(1);
        let thread = std::thread::spawn(move || {
            drop(bytes);
            FREE_LIST.with_borrow(|free| free.buffers.len())
        });
        assert_eq!(thread.join().unwrap(), 0);
    }
}
