//! The octets that are transferred: one pool that never repeats itself, and pieces of it.
//!
//! Every transfer is a part of the pool at a known place, so that its receiver can say where the
//! first wrong octet is, and its SHA-256 is computed once.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Places where transfers begin lie so far apart.
const STEP: u64 = 65_521;
/// How many such places there are.
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
    /// A pool for transfers of at most `longest` octets.
    pub(crate) fn new(longest: u64) -> Self {
        let len = (longest + STEP * PLACES) as usize;
        let mut dice = crate::dice::Dice::new(0x0073_6d69_675f_736f);
        let mut pool = Vec::with_capacity(len + 8);
        while pool.len() < len {
            pool.extend_from_slice(&dice.next().to_le_bytes());
        }
        pool.truncate(len);
        Self { pool: pool.into(), hashes: Mutex::default() }
    }

    /// The octets of a part.
    pub(crate) fn octets(&self, part: Part) -> Bytes {
        let start = ((part.place % PLACES) * STEP) as usize;
        self.pool.slice(start..start + part.len as usize)
    }

    /// The SHA-256 of a part.
    pub(crate) fn hash(&self, part: Part) -> [u8; 32] {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        *hashes.entry(part).or_insert_with(|| Sha256::digest(self.octets(part)).into())
    }
}

/// Takes a transfer in, piece by piece, and finds out whether it is what was sent.
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
            expected: content.octets(part),
            wanted: content.hash(part),
            hash: Sha256::new(),
            taken: 0,
            first_wrong: None,
        }
    }

    /// How many octets have come.
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

    /// What the octets so far amount to, against a prefix of the part.
    pub(crate) fn prefix(&self) -> Result<(), String> {
        match self.first_wrong {
            None => Ok(()),
            Some(at) => Err(format!("wrong from octet {at} on, {} received", self.taken)),
        }
    }

    /// What they amount to, given that there will be no more.
    pub(crate) fn whole(self) -> Result<(), String> {
        self.prefix()?;
        let wanted = self.expected.len() as u64;
        if self.taken != wanted {
            return Err(format!("ended without an error at octet {} of {wanted}", self.taken));
        }
        if <[u8; 32]>::from(self.hash.finalize()) != self.wanted {
            return Err("the SHA-256 differs though every octet was compared".into());
        }
        Ok(())
    }
}

/// Hexadecimal digits.
pub(crate) fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing to a string does not fail.
        let _ = write!(text, "{octet:02x}");
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
        let octets = content.octets(PART);
        let mut checker = Checker::new(&content, PART);
        for piece in octets.chunks(7) {
            checker.take(piece);
        }
        assert_eq!(checker.whole(), Ok(()));
    }

    #[test]
    fn every_kind_of_wrong_is_found() {
        let content = Content::new(2000);
        let octets = content.octets(PART);
        let check = |octets: &[u8]| {
            let mut checker = Checker::new(&content, PART);
            checker.take(&octets[..octets.len() / 2]);
            checker.take(&octets[octets.len() / 2..]);
            checker.whole().unwrap_err()
        };
        assert!(check(&octets[..999]).contains("octet 999 of 1000"));
        let mut flipped = octets.to_vec();
        flipped[700] ^= 1;
        assert!(check(&flipped).contains("from octet 700"));
        let mut longer = octets.to_vec();
        longer.push(0);
        assert!(check(&longer).contains("from octet 1000"));
    }
}
