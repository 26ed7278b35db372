//! Blocks of heads of responses and of trailers that repeat. A server sends the same head for each
//! request for a file, and the same trailers for most calls; while the table does not change, so
//! are their blocks.
//!
//! Owns copies of the fields and of the block, made when a block occurs the second time in a row.
//! Fields that the application shares between responses are not copied: they are recognised by the
//! address of their map, which is kept. Never holds a sensitive value, and apart from these maps never
//! a buffer of the application's.

use std::hash::Hasher;
use std::sync::Arc;

use http::header::DATE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rustc_hash::FxHasher;

/// Number of blocks that are kept: heads and trailers of two kinds of response.
const MAX_BLOCKS: usize = 4;

/// Limits for the fields of a block that is kept.
const MAX_FIELDS: usize = 24;
const MAX_VALUE_BYTES: usize = 1024;

static DATE_NAME: HeaderName = DATE;

/// The fields of a response's head, or of a request's or response's trailers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingSection<'a> {
    /// `None` in trailers.
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: Headers<'a>,
    /// A date field in addition to `headers`.
    pub(crate) date: Option<&'a HeaderValue>,
}

/// The regular fields of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Headers<'a> {
    /// Those of one response.
    Own(&'a HeaderMap),
    /// Those that other responses have, too.
    Shared(&'a Arc<HeaderMap>),
}

impl<'a> OutgoingSection<'a> {
    /// Returns all fields except `:status`.
    #[inline]
    pub(super) fn fields(self) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        let headers = match self.headers {
            Headers::Own(headers) => headers,
            Headers::Shared(headers) => headers,
        };
        self.date.map(|date| (&DATE_NAME, date)).into_iter().chain(headers)
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
    fields: KnownFields,
    block: Box<[u8]>,
}

/// By what the fields of a block are recognised.
#[derive(Debug)]
enum KnownFields {
    Copied {
        /// Each field's name, and the length of its value.
        names: Vec<(HeaderName, usize)>,
        /// All values.
        values: Vec<u8>,
    },
    /// The map, which cannot change while it is kept, and the date.
    Shared(Arc<HeaderMap>, Option<Box<[u8]>>),
}

impl RepeatedBlocks {
    /// Returns the block of these fields if it is known for this version of the table.
    #[inline]
    pub(super) fn find(&self, version: u64, section: OutgoingSection<'_>) -> Option<&[u8]> {
        for known in &self.blocks {
            if known.version == version && known.matches(section) {
                return Some(&known.block);
            }
        }
        None
    }

    /// Records the block of these fields, and keeps it if it is the same as the last one.
    pub(super) fn note(&mut self, version: u64, section: OutgoingSection<'_>, block: &[u8]) {
        let mut hasher = FxHasher::default();
        hasher.write_u64(version);
        hasher.write(block);
        let hash = hasher.finish();
        if core::mem::replace(&mut self.last_hash, hash) != hash {
            return;
        }
        let Some(repeated) = RepeatedBlock::new(version, section, block) else { return };
        // Blocks of an earlier version cannot match again, and would keep the application's maps.
        self.blocks.retain(|known| known.version == version);
        if self.blocks.len() < MAX_BLOCKS {
            self.blocks.push(repeated);
        } else if let Some(replaced) = self.blocks.get_mut(self.hand) {
            *replaced = repeated;
            self.hand = (self.hand + 1) % MAX_BLOCKS;
        }
    }
}

impl RepeatedBlock {
    /// Returns `None` if the block is not to be kept.
    fn new(version: u64, section: OutgoingSection<'_>, block: &[u8]) -> Option<Self> {
        let fields = KnownFields::new(section)?;
        Some(Self { version, status: section.status, fields, block: block.into() })
    }

    #[inline]
    fn matches(&self, section: OutgoingSection<'_>) -> bool {
        self.status == section.status
            && match (&self.fields, section.headers) {
                (KnownFields::Shared(known, known_date), Headers::Shared(headers)) => {
                    Arc::ptr_eq(known, headers)
                        && known_date.as_deref() == section.date.map(HeaderValue::as_bytes)
                }
                (KnownFields::Copied { names, values }, Headers::Own(_)) => {
                    are_equal(names, values, section)
                }
                (KnownFields::Shared(..), Headers::Own(_))
                | (KnownFields::Copied { .. }, Headers::Shared(_)) => false,
            }
    }
}

impl KnownFields {
    /// Returns `None` if the fields are not to be kept.
    fn new(section: OutgoingSection<'_>) -> Option<Self> {
        let (mut field_count, mut value_bytes) = (0, 0);
        for (_, value) in section.fields() {
            field_count += 1;
            value_bytes += value.len();
            if value.is_sensitive() || field_count > MAX_FIELDS || value_bytes > MAX_VALUE_BYTES {
                return None;
            }
        }
        Some(match section.headers {
            Headers::Shared(headers) => {
                Self::Shared(Arc::clone(headers), section.date.map(|date| date.as_bytes().into()))
            }
            Headers::Own(_) => {
                let names = section.fields().map(|(name, value)| (name.clone(), value.len()));
                let mut values = Vec::with_capacity(value_bytes);
                section.fields().for_each(|(_, value)| values.extend_from_slice(value.as_bytes()));
                Self::Copied { names: names.collect(), values }
            }
        })
    }
}

#[inline]
fn are_equal(
    names: &[(HeaderName, usize)],
    mut values: &[u8],
    section: OutgoingSection<'_>,
) -> bool {
    let mut fields = section.fields();
    for (known_name, value_len) in names {
        let Some((name, value)) = fields.next() else { return false };
        let Some((known_value, rest)) = values.split_at_checked(*value_len) else { return false };
        values = rest;
        if value.as_bytes() != known_value || name != known_name || value.is_sensitive() {
            return false;
        }
    }
    fields.next().is_none()
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http::header::{CONTENT_TYPE, ETAG, SET_COOKIE};

    use super::super::Encoder;
    use super::*;
    use crate::hpack::Decoder;

    fn encode(encoder: &mut Encoder, section: OutgoingSection<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        encoder.begin(&mut out);
        encoder.section(section, |name, _| name != "connection", &mut out);
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
        let shared: Vec<_> = (0..7).map(|kind| Arc::new(headers(kind))).collect();
        let (mut random, mut repeated_counts) = (1_u32, [0; 2]);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = random >> 16;
            if choice % 997 == 0 {
                encoder.set_max_table_size(choice as usize % 4096);
                reference.set_max_table_size(choice as usize % 4096);
            }
            let headers = headers(if choice % 9 == 7 { step } else { choice % 7 });
            let date = HeaderValue::from(step / 500);
            let is_shared = choice % 11 < 5;
            let section = OutgoingSection {
                status: (choice % 5 > 0).then_some(StatusCode::OK),
                headers: match shared.get(choice as usize % 9) {
                    Some(headers) if is_shared => Headers::Shared(headers),
                    _ => Headers::Own(&headers),
                },
                date: (choice % 2 == 0).then_some(&date),
            };
            reference.repeated = None;
            // A block is kept when it occurs twice in a row.
            for _ in 0..1 + choice % 3 {
                let version = encoder.table.version();
                let repeated = encoder.repeated.as_ref();
                let is_repeated = repeated.is_some_and(|all| all.find(version, section).is_some());
                repeated_counts[usize::from(is_shared)] += usize::from(is_repeated);
                let block = encode(&mut encoder, section);
                assert_eq!(block, encode(&mut reference, section), "step {step}");
                reference.repeated = None;
                decoder.decode(&block, |_| {}).unwrap();
            }
        }
        assert!(repeated_counts.iter().all(|&count| count > 1_000), "{repeated_counts:?}");
    }

    #[test]
    fn a_sensitive_value_is_never_kept() {
        let headers = Arc::new(headers(3));
        for headers in [Headers::Own(&headers), Headers::Shared(&headers)] {
            let mut encoder = Encoder::new();
            for _ in 0..4 {
                encode(&mut encoder, OutgoingSection { status: None, headers, date: None });
            }
            assert!(encoder.repeated.unwrap().blocks.is_empty());
        }
    }
}
