//! Content of bodies: an incompressible, non-repeating byte stream. Every body is a prefix of it,
//! so a receiver can verify it without storing it.

use bytes::Bytes;

/// Generator of the byte stream from its start.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    state: u64,
    word: [u8; 8],
    used_bytes: usize,
}

impl Content {
    pub(crate) const fn new() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15, word: [0; 8], used_bytes: 8 }
    }

    /// Fills `out` with the next bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        let mut out = out;
        while !out.is_empty() {
            if self.used_bytes == 8 {
                self.word = self.next_word();
                self.used_bytes = 0;
            }
            let rest = &self.word[self.used_bytes..];
            let count = rest.len().min(out.len());
            out[..count].copy_from_slice(&rest[..count]);
            self.used_bytes += count;
            out = &mut out[count..];
        }
    }

    /// Returns whether these are the next bytes.
    pub(crate) fn verify_next(&mut self, bytes: &[u8]) -> bool {
        let mut expected = [0; 4096];
        bytes.chunks(expected.len()).all(|part| {
            self.fill(&mut expected[..part.len()]);
            part == &expected[..part.len()]
        })
    }

    /// Returns the next `length` bytes.
    pub(crate) fn next_bytes(&mut self, length: usize) -> Bytes {
        let mut piece = vec![0; length];
        self.fill(&mut piece);
        piece.into()
    }

    /// xorshift64: noise of sufficient quality.
    const fn next_word(&mut self) -> [u8; 8] {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunking_does_not_change_the_bytes_and_damage_is_detected() {
        let content = Content::new().next_bytes(100_000);
        let (mut source, mut parts) = (Content::new(), Vec::new());
        for length in [1, 7, 8, 9, 4095, 4096, 4097, 50_000] {
            parts.extend_from_slice(&source.next_bytes(length));
        }
        assert_eq!(parts, content[..parts.len()]);

        let mut verifier = Content::new();
        assert!(content.chunks(1_234).all(|part| verifier.verify_next(part)));
        let mut damaged = content.to_vec();
        damaged[70_001] ^= 1;
        let mut verifier = Content::new();
        let first_wrong = damaged.chunks(1_000).position(|part| !verifier.verify_next(part));
        assert_eq!(first_wrong, Some(70));
        assert!(!Content::new().verify_next(&content[1..]), "shifted");
    }
}
