//! multipart/byteranges (RFC 9110 section 14.6): several ranges of a file in one body.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;

use crate::body::Piece;
use crate::range::ByteRange;

/// A multipart body under construction.
#[derive(Debug)]
pub(crate) struct Multipart {
    /// Random, so that an attacker cannot predict it and place it in a file.
    boundary: String,
    part_type: Vec<u8>,
    representation_size: u64,
    queue: VecDeque<Piece>,
    body_len: u64,
}

impl Multipart {
    /// Starts a body for ranges of a representation of this type, which has `representation_size` bytes in total.
    pub(crate) fn new(part_type: &[u8], representation_size: u64) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        Self {
            boundary: format!("{:016x}{:016x}", random(), random()),
            part_type: part_type.to_vec(),
            representation_size,
            queue: VecDeque::new(),
            body_len: 0,
        }
    }

    /// Returns the content-type of the response.
    pub(crate) fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }

    pub(crate) fn push(&mut self, byte_range: ByteRange, piece: Piece) {
        let mut head = format!("\r\n--{}\r\ncontent-type: ", self.boundary).into_bytes();
        head.extend_from_slice(&self.part_type);
        let content_range = byte_range.content_range(self.representation_size);
        head.extend_from_slice(format!("\r\ncontent-range: {content_range}\r\n\r\n").as_bytes());
        self.add(head);
        self.body_len += byte_range.len();
        self.queue.push_back(piece);
    }

    /// Returns the body's pieces and its length in bytes.
    pub(crate) fn finish(mut self) -> (VecDeque<Piece>, u64) {
        self.add(format!("\r\n--{}--\r\n", self.boundary).into_bytes());
        (self.queue, self.body_len)
    }

    fn add(&mut self, text: Vec<u8>) {
        self.body_len += text.len() as u64;
        self.queue.push_back(Piece::Memory(Bytes::from(text)));
    }
}
