//! The read buffer that all connections of a thread share, so that an idle connection holds none.

use std::cell::RefCell;

/// Bytes per read: four TLS records.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with the thread's buffer. Not re-entrant: `f` must only read and decrypt.
pub(super) fn with<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(BUFFER_BYTES, 0);
        }
        f(buffer)
    })
}
