//! The transferred bytes: one pool of pseudorandom bytes, and parts of it.
//!
//! Every transfer is a part of the pool at a known offset, so that its receiver can report the position
//! of the first wrong byte, and its SHA-256 is computed once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Distance in bytes between the offsets at which transfers begin.
const OFFSET_STEP_BYTES: u64 = 65_521;
/// Number of such offsets.
pub(crate) const OFFSET_COUNT: u64 = 16;

/// The pool.
#[derive(Debug)]
pub(crate) struct Content {
    pool: Bytes,
    hashes: Mutex<HashMap<Part, [u8; 32]>>,
}

/// A part of the pool, which begins at `offset_index` times [`OFFSET_STEP_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) offset_index: u64,
    pub(crate) len: u64,
}

impl Content {
    /// Builds a pool for transfers of at most `max_transfer_bytes`.
    pub(crate) fn new(max_transfer_bytes: u64) -> Self {
        let len = (max_transfer_bytes + OFFSET_STEP_BYTES * OFFSET_COUNT) as usize;
        let mut rng = crate::rng::Rng::new(0x0073_6d69_675f_736f);
        let mut pool = Vec::with_capacity(len + 8);
        while pool.len() < len {
            pool.extend_from_slice(&rng.next().to_le_bytes());
        }
        pool.truncate(len);
        Self { pool: pool.into(), hashes: Mutex::default() }
    }

    /// Returns the bytes of a part.
    pub(crate) fn bytes(&self, part: Part) -> Bytes {
        let start = ((part.offset_index % OFFSET_COUNT) * OFFSET_STEP_BYTES) as usize;
        self.pool.slice(start..start + part.len as usize)
    }

    /// Returns the SHA-256 of a part.
    pub(crate) fn hash(&self, part: Part) -> [u8; 32] {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        *hashes.entry(part).or_insert_with(|| Sha256::digest(self.bytes(part)).into())
    }
}

/// Receives a transfer chunk by chunk, and compares it with what was sent.
#[derive(Debug)]
pub(crate) struct Checker {
    expected_content: Bytes,
    expected_hash: [u8; 32],
    hasher: Sha256,
    received_bytes: u64,
    first_mismatch: Option<u64>,
}

impl Checker {
    pub(crate) fn new(content: &Content, part: Part) -> Self {
        Self {
            expected_content: content.bytes(part),
            expected_hash: content.hash(part),
            hasher: Sha256::new(),
            received_bytes: 0,
            first_mismatch: None,
        }
    }

    /// Returns the number of bytes received.
    pub(crate) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Compares the next chunk.
    pub(crate) fn update(&mut self, data: &[u8]) {
        self.hasher.update(data);
        let start = self.received_bytes as usize;
        let expected = self.expected_content.get(start..).unwrap_or_default();
        let known = expected.get(..data.len().min(expected.len())).unwrap_or_default();
        if self.first_mismatch.is_none() && known != data {
            let same = known.iter().zip(data).take_while(|(a, b)| a == b).count();
            self.first_mismatch = Some(self.received_bytes + same as u64);
        }
        self.received_bytes += data.len() as u64;
    }

    /// Compares the bytes received so far with a prefix of the part.
    pub(crate) fn check_prefix(&self) -> Result<(), String> {
        match self.first_mismatch {
            None => Ok(()),
            Some(at) => Err(format!("wrong from byte {at} on, {} received", self.received_bytes)),
        }
    }

    /// Compares the bytes received with the complete part.
    pub(crate) fn check_complete(self) -> Result<(), String> {
        self.check_prefix()?;
        let expected_len = self.expected_content.len() as u64;
        if self.received_bytes != expected_len {
            return Err(format!(
                "ended without an error at byte {} of {expected_len}",
                self.received_bytes
            ));
        }
        if <[u8; 32]>::from(self.hasher.finalize()) != self.expected_hash {
            return Err("the SHA-256 differs though every byte was compared".into());
        }
        Ok(())
    }
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { offset_index: 3, len: 1000 };

    #[test]
    fn complete_content_is_accepted_in_any_chunks() {
        let content = Content::new(2000);
        let bytes = content.bytes(PART);
        let mut checker = Checker::new(&content, PART);
        for chunk in bytes.chunks(7) {
            checker.update(chunk);
        }
        assert_eq!(checker.check_complete(), Ok(()));
    }

    #[test]
    fn truncated_corrupt_and_overlong_content_is_rejected() {
        let content = Content::new(2000);
        let bytes = content.bytes(PART);
        let check = |bytes: &[u8]| {
            let mut checker = Checker::new(&content, PART);
            checker.update(&bytes[..bytes.len() / 2]);
            checker.update(&bytes[bytes.len() / 2..]);
            checker.check_complete().unwrap_err()
        };
        assert!(check(&bytes[..999]).contains("byte 999 of 1000"));
        let mut flipped = bytes.to_vec();
        flipped[700] ^= 1;
        assert!(check(&flipped).contains("from byte 700"));
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(check(&longer).contains("from byte 1000"));
    }
}
