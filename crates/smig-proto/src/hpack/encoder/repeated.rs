//! Blocks of responses that repeat. A server sends the same head for each request for a file, and
//! the same trailers for most calls; while the table does not change, so are their blocks.
//!
//! Owns copies of the fields and of the block, made when a block occurs the second time in a row.
//! Never holds a sensitive value, and never a buffer of the application's.

use std::hash::Hasher;

use http::header::DATE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustc_hash::FxHasher;

/// Number of blocks that are kept: heads and trailers of two kinds of response.
const MAX_BLOCKS: usize = 4;

/// Limits for the fields of a block that is kept.
const MAX_FIELDS: usize = 24;
const MAX_VALUE_BYTES: usize = 1024;

static DATE_NAME: HeaderName = DATE;

/// The fields of a response's head or trailers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseSection<'a> {
    /// `None` in trailers.
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: &'a HeaderMap,
    /// A date field in addition to `headers`.
    pub(crate) date: Option<&'a HeaderValue>,
}

impl<'a> ResponseSection<'a> {
    /// Returns all fields except `:status`.
    #[inline]
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        self.date.map(|date| (&DATE_NAME, date)).into_iter().chain(self.headers)
    }
}

#[derive(Debug, Default)]
pub(super) struct RepeatedBlocks {
    blocks: Vec<RepeatedBlock>,
    /// Where the next block is stored when all places are taken.
    hand: usize,
    /// Hash of the last block that was encoded.
    last_hash: u64,
}

#[derive(Debug)]
struct RepeatedBlock {
    /// The table's version with which it was encoded.
    version: u64,
    status: Option<StatusCode>,
    /// Each field's name, and the length of its value.
    names: Vec<(HeaderName, usize)>,
    /// All values.
    values: Vec<u8>,
    block: Box<[u8]>,
}

impl RepeatedBlocks {
    /// Returns the block of these fields if it is known for this version of the table.
    #[inline]
    pub(super) fn find(&self, version: u64, section: ResponseSection<'_>) -> Option<&[u8]> {
        for known in &self.blocks {
            if known.version == version && known.matches(section) {
                return Some(&known.block);
            }
        }
        None
    }

    /// Records the block of these fields, and keeps it if it is the same as the last one.
    pub(super) fn note(&mut self, version: u64, section: ResponseSection<'_>, block: &[u8]) {
        let mut hasher = FxHasher::default();
        hasher.write_u64(version);
        hasher.write(block);
        let hash = hasher.finish();
        if core::mem::replace(&mut self.last_hash, hash) != hash {
            return;
        }
        let Some(repeated) = RepeatedBlock::new(version, section, block) else { return };
        if self.blocks.len() < MAX_BLOCKS {
            self.blocks.push(repeated);
        } else if let Some(oldest) = self.blocks.get_mut(self.hand) {
            *oldest = repeated;
            self.hand = (self.hand + 1) % MAX_BLOCKS;
        }
    }
}

impl RepeatedBlock {
    /// Returns `None` if the block is not to be kept.
    fn new(version: u64, section: ResponseSection<'_>, block: &[u8]) -> Option<Self> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (name, value) in section.fields() {
            if value.is_sensitive()
                || names.len() == MAX_FIELDS
                || values.len() + value.len() > MAX_VALUE_BYTES
            {
                return None;
            }
            names.push((name.clone(), value.len()));
            values.extend_from_slice(value.as_bytes());
        }
        values.shrink_to_fit();
        Some(Self { version, status: section.status, names, values, block: block.into() })
    }

    #[inline]
    fn matches(&self, section: ResponseSection<'_>) -> bool {
        if self.status != section.status {
            return false;
        }
        let (mut fields, mut values) = (section.fields(), &self.values[..]);
        for (known_name, value_len) in &self.names {
            let Some((name, value)) = fields.next() else { return false };
            let Some((known_value, rest)) = values.split_at_checked(*value_len) else {
                return false;
            };
            values = rest;
            if value.as_bytes() != known_value || name != known_name || value.is_sensitive() {
                return false;
            }
        }
        fields.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http::header::{CONTENT_TYPE, ETAG, SET_COOKIE};

    use super::super::Encoder;
    use super::*;
    use crate::hpack::Decoder;

    fn encode(encoder: &mut Encoder, section: ResponseSection<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        encoder.begin(&mut out);
        encoder.response(section, |name, _| name != "connection", &mut out);
        out
    }

    fn headers(kind: u32) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        match kind {
            0 => {}
            // Indexed when it occurs the second time.
            1 => drop(headers.insert(ETAG, HeaderValue::from_static("\"1\""))),
            2 => drop(headers.insert("connection", HeaderValue::from_static("close"))),
            3 | 4 => {
                let mut secret = HeaderValue::from_static("secret");
                secret.set_sensitive(kind == 3);
                headers.insert("x-value", secret);
            }
            // The concatenated values are the same as those of the next kind.
            5 | 6 => {
                let (first, second) = if kind == 5 { ("ab", "c") } else { ("a", "bc") };
                headers.insert("x-first", HeaderValue::from_static(first));
                headers.insert("x-second", HeaderValue::from_static(second));
            }
            // New for each response.
            _ => drop(headers.insert(SET_COOKIE, HeaderValue::from(kind))),
        }
        headers
    }

    #[test]
    fn a_repeated_block_is_what_the_encoder_would_write_again() {
        let mut encoder = Encoder::new();
        let mut reference = Encoder::new();
        let mut decoder = Decoder::new(4096);
        let (mut random, mut repeated_count) = (1_u32, 0);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = random >> 16;
            if choice % 997 == 0 {
                encoder.set_max_table_size(choice as usize % 4096);
                reference.set_max_table_size(choice as usize % 4096);
            }
            let headers = headers(if choice % 9 == 7 { step } else { choice % 7 });
            let date = HeaderValue::from(step / 500);
            let section = ResponseSection {
                status: (choice % 5 > 0).then_some(StatusCode::OK),
                headers: &headers,
                date: (choice % 2 == 0).then_some(&date),
            };
            reference.repeated = None;
            // A block is kept when it occurs twice in a row.
            for _ in 0..1 + choice % 3 {
                let version = encoder.table.version();
                let repeated = encoder.repeated.as_ref();
                let is_repeated = repeated.is_some_and(|all| all.find(version, section).is_some());
                repeated_count += usize::from(is_repeated);
                let block = encode(&mut encoder, section);
                assert_eq!(block, encode(&mut reference, section), "step {step}");
                reference.repeated = None;
                decoder.decode(&block, |_| {}).unwrap();
            }
        }
        assert!(repeated_count > 2_000, "{repeated_count}");
    }

    #[test]
    fn a_sensitive_value_is_never_kept() {
        let (mut encoder, headers) = (Encoder::new(), headers(3));
        let section = ResponseSection { status: None, headers: &headers, date: None };
        for _ in 0..4 {
            encode(&mut encoder, section);
        }
        assert!(encoder.repeated.unwrap().blocks.is_empty());
    }
}
