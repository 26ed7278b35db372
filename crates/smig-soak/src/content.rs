//! The transferred bytes: one pool without repetition, and parts of it.
//!
//! Every transfer is a part of the pool at a known offset, so that its receiver can report the position
//! of the first wrong byte, and its SHA-256 is computed once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Distance in bytes between the offsets at which transfers begin.
const STEP: u64 = 65_521;
/// Number of such offsets.
pub(crate) const PLACES: u64 = 16;

/// The pool.
#[derive(Debug)]
pub(crate) struct Content {
    pool: Bytes,
    hashes: Mutex<HashMap<Part, [u8; 32]>>,
}

/// A part of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) place: u64,
    pub(crate) len: u64,
}

impl Content {
    /// Builds a pool for transfers of at most `longest` bytes.
    pub(crate) fn new(longest: u64) -> Self {
        let len = (longest + STEP * PLACES) as usize;
        let mut dice = crate::dice::Rng::new(0x0073_6d69_675f_736f);
        let mut pool = Vec::with_capacity(len + 8);
        while pool.len() < len {
            pool.extend_from_slice(&dice.next().to_le_bytes());
        }
        pool.truncate(len);
        Self { pool: pool.into(), hashes: Mutex::default() }
    }

    /// Returns the bytes of a part.
    pub(crate) fn bytes(&self, part: Part) -> Bytes {
        let start = ((part.place % PLACES) * STEP) as usize;
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
    expected: Bytes,
    wanted: [u8; 32],
    hash: Sha256,
    taken: u64,
    first_wrong: Option<u64>,
}

impl Checker {
    pub(crate) fn new(content: &Content, part: Part) -> Self {
        Self {
            expected: content.bytes(part),
            wanted: content.hash(part),
            hash: Sha256::new(),
            taken: 0,
            first_wrong: None,
        }
    }

    /// Returns the number of bytes received.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn take(&mut self, data: &[u8]) {
        self.hash.update(data);
        let start = self.taken as usize;
        let expected = self.expected.get(start..).unwrap_or_default();
        let known = expected.get(..data.len().min(expected.len())).unwrap_or_default();
        if self.first_wrong.is_none() && known != data {
            let same = known.iter().zip(data).take_while(|(a, b)| a == b).count();
            self.first_wrong = Some(self.taken + same as u64);
        }
        self.taken += data.len() as u64;
    }

    /// Compares the bytes received so far with a prefix of the part.
    pub(crate) fn prefix(&self) -> Result<(), String> {
        match self.first_wrong {
            None => Ok(()),
            Some(at) => Err(format!("wrong from byte {at} on, {} received", self.taken)),
        }
    }

    /// Compares the bytes received with the complete part.
    pub(crate) fn whole(self) -> Result<(), String> {
        self.prefix()?;
        let wanted = self.expected.len() as u64;
        if self.taken != wanted {
            return Err(format!("ended without an error at byte {} of {wanted}", self.taken));
        }
        if <[u8; 32]>::from(self.hash.finalize()) != self.wanted {
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

    const PART: Part = Part { place: 3, len: 1000 };

    #[test]
    fn the_whole_is_right_in_any_pieces() {
        let content = Content::new(2000);
        let bytes = content.bytes(PART);
        let mut checker = Checker::new(&content, PART);
        for piece in bytes.chunks(7) {
            checker.take(piece);
        }
        assert_eq!(checker.whole(), Ok(()));
    }

    #[test]
    fn every_kind_of_wrong_is_found() {
        let content = Content::new(2000);
        let bytes = content.bytes(PART);
        let check = |bytes: &[u8]| {
            let mut checker = Checker::new(&content, PART);
            checker.take(&bytes[..bytes.len() / 2]);
            checker.take(&bytes[bytes.len() / 2..]);
            checker.whole().unwrap_err()
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
