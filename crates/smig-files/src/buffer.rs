//! Memory that file content is read into.
//!
//! Owns the buffers of bulk reads. A buffer is returned when the last [`Bytes`] over it is dropped and
//! is reused without clearing: zeroing 64 KB for each read, or faulting in fresh pages, costs a
//! substantial part of a copy from the page cache. The most recently used buffer is reused first,
//! since it is still in the CPU's cache.

use std::cell::RefCell;

use bytes::Bytes;

/// Size of a bulk read in bytes: four TLS records. Larger chunks no longer fit the CPU's second-level
/// cache together with their ciphertext; smaller ones need more system calls.
pub(crate) const CHUNK: usize = 64 << 10;

/// Up to this size a buffer has the exact length: a small response must not hold a complete chunk.
const SMALL: usize = CHUNK / 4;

/// Number of free buffers per thread.
const KEPT: usize = 16;

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free { buffers: Vec::new(), used: false }) };
}

/// The free buffers of a thread.
struct Free {
    buffers: Vec<Vec<u8>>,
    /// Whether this thread takes buffers. A thread that does not has no reason to retain any.
    used: bool,
}

/// A buffer to read into.
#[derive(Debug)]
pub(crate) struct Buffer {
    space: Vec<u8>,
    want: usize,
}

impl Buffer {
    /// Returns space for `want` bytes, at most [`CHUNK`].
    pub(crate) fn take(want: usize) -> Self {
        let want = want.min(CHUNK);
        if want <= SMALL {
            return Self { space: vec![0; want], want };
        }
        let free = FREE.with_borrow_mut(|free| {
            free.used = true;
            free.buffers.pop()
        });
        Self { space: free.unwrap_or_else(|| vec![0; CHUNK]), want }
    }

    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.space[..self.want]
    }

    /// Returns the first `len` bytes of the space.
    pub(crate) fn filled(mut self, len: usize) -> Bytes {
        let mut space = std::mem::take(&mut self.space);
        if space.len() < CHUNK {
            space.truncate(len);
            return Bytes::from(space);
        }
        Bytes::from_owner(Lease { space, len })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.space));
    }
}

/// A full-size buffer in use by a [`Bytes`].
struct Lease {
    space: Vec<u8>,
    len: usize,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self.space.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.space));
    }
}

fn give_back(space: Vec<u8>) {
    if space.len() < CHUNK {
        return;
    }
    // An error means that the thread is ending and its list is dropped: the memory is then freed.
    let _ = FREE.try_with(|free| {
        if let Ok(mut free) = free.try_borrow_mut()
            && free.used
            && free.buffers.len() < KEPT
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
    fn a_chunk_comes_back_when_its_last_user_is_gone() {
        let mut buffer = Buffer::take(CHUNK);
        buffer.space()[..3].copy_from_slice(b"abc");
        let mut bytes = buffer.filled(3);
        let first = address(&bytes);
        let part = bytes.split_off(1);
        drop(bytes);
        let other = Buffer::take(CHUNK).filled(1);
        assert_ne!(address(&other), first);
        assert_eq!(part, &b"bc"[..]);
        drop(part);
        assert_eq!(address(&Buffer::take(CHUNK).filled(1)), first);
    }

    #[test]
    fn an_unused_chunk_comes_back() {
        let mut buffer = Buffer::take(CHUNK);
        let first = buffer.space().as_ptr();
        drop(buffer);
        assert_eq!(Buffer::take(CHUNK).space().as_ptr(), first);
    }

    #[test]
    fn small_buffers_are_made_to_measure() {
        let mut buffer = Buffer::take(10);
        assert_eq!(buffer.space().len(), 10);
        assert_eq!(buffer.filled(4).len(), 4);
        FREE.with_borrow(|free| assert!(free.buffers.is_empty()));
    }

    #[test]
    fn no_more_than_a_few_are_kept() {
        let out: Vec<Bytes> = (0..KEPT + 5).map(|_| Buffer::take(CHUNK).filled(1)).collect();
        drop(out);
        FREE.with_borrow(|free| assert_eq!(free.buffers.len(), KEPT));
    }

    #[test]
    fn a_thread_that_takes_none_keeps_none() {
        let bytes = Buffer::take(CHUNK).filled(1);
        let kept = std::thread::spawn(move || {
            drop(bytes);
            FREE.with_borrow(|free| free.buffers.len())
        });
        assert_eq!(kept.join().unwrap(), 0);
    }
}
