//! A request that repeats: a client that polls a resource, or calls one method, sends the same field block each time.
//!
//! Owns a copy of the block and the head that it was decoded to, made when a block arrives the second time in a row. Used
//! only while the decoder would decode the block to the same fields without a change of its table. Never holds a sensitive
//! value.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::head::RequestHead;
use crate::hpack::{self, TableVersion};
use crate::message::{FieldPresence, FieldSection};

/// Limits for a block that is kept: its own bytes, its fields, and their bytes as in SETTINGS_MAX_HEADER_LIST_SIZE. A map of
/// fields needs more than 100 bytes for each.
const MAX_BLOCK_BYTES: usize = 512;
const MAX_FIELD_BYTES: usize = 4096;
const MAX_FIELDS: u32 = 32;

/// The last request of a connection, if it repeats. Boxed to keep connections small; `None` until a block could be kept.
#[derive(Debug, Default)]
pub(crate) struct RepeatedRequest(Option<Box<LastBlock>>);

#[derive(Debug, Default)]
struct LastBlock {
    hash: u64,
    known: Option<Box<KnownRequest>>,
}

/// A request's head, and the block that it was decoded from.
#[derive(Debug)]
pub(crate) struct KnownRequest {
    /// The version of the decoder's table.
    version: TableVersion,
    block: Box<[u8]>,
    /// Boxed, as in events: a clone of the box is written where it stays.
    pub(crate) head: Box<RequestHead>,
    pub(crate) presence: FieldPresence,
}

/// A block that was decoded without a change of the decoder's table, and may be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepeatableBlock<'a> {
    version: TableVersion,
    block: &'a [u8],
}

impl<'a> RepeatableBlock<'a> {
    /// Returns `None` if the block is not to be kept; `version` is that of the decoder's table before it was decoded to
    /// `section`.
    pub(crate) fn new(
        decoder: &hpack::Decoder,
        version: TableVersion,
        section: &FieldSection,
        block: &'a [u8],
    ) -> Option<Self> {
        let is_small = block.len() <= MAX_BLOCK_BYTES
            && section.bytes() <= MAX_FIELD_BYTES
            && section.field_count() <= MAX_FIELDS;
        let may_keep = is_small && decoder.is_at_version(version) && !decoder.had_never_indexed();
        may_keep.then_some(Self { version, block })
    }
}

impl RepeatedRequest {
    /// Returns the request that this block is decoded to, if it is known.
    #[inline]
    pub(crate) fn find(&self, decoder: &hpack::Decoder, block: &[u8]) -> Option<&KnownRequest> {
        let known = self.known()?;
        (decoder.is_at_version(known.version) && *known.block == *block).then_some(known)
    }

    /// Returns the known request: the newest whose block arrived twice in a row. The last block may be another one.
    pub(crate) fn known(&self) -> Option<&KnownRequest> {
        self.0.as_deref()?.known.as_deref()
    }

    /// Records a request, and keeps it if its block is the same as the last one.
    pub(crate) fn note(
        &mut self,
        repeatable: RepeatableBlock<'_>,
        head: &RequestHead,
        presence: FieldPresence,
    ) {
        let RepeatableBlock { version, block } = repeatable;
        let mut hasher = FxHasher::default();
        hasher.write_u32(version.as_u32());
        hasher.write(block);
        let hash = hasher.finish();
        let last = self.0.get_or_insert_default();
        // The table never returns to an earlier version.
        last.known = last.known.take().filter(|known| known.version == version);
        if core::mem::replace(&mut last.hash, hash) == hash {
            let (block, head) = (block.into(), Box::new(head.clone()));
            last.known = Some(Box::new(KnownRequest { version, block, head, presence }));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use crate::conn::{ConnectionSpec, Identity, Security};
    use crate::{Config, Event, Instant, RequestHead, Session};

    /// A server's session with one connection, whose preface and SETTINGS have arrived.
    struct Server {
        session: Session,
        conn: crate::ConnId,
        next_id: u32,
    }

    impl Server {
        fn new() -> Self {
            let now = Instant::from_nanos(0);
            let mut session = Session::server(Config::server(), now);
            let spec =
                ConnectionSpec { security: Security::Ineligible, identity: Identity([0; 32]) };
            let conn = session.add_connection(now, spec);
            let mut server = Self { session, conn, next_id: 1 };
            server.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            server
        }

        fn receive(&mut self, bytes: &[u8]) {
            let mut input = BytesMut::from(bytes);
            self.session.handle_input(Instant::from_nanos(1), self.conn, &mut input);
            assert!(input.is_empty());
        }

        /// Receives a complete request, and returns its head.
        fn request(&mut self, block: &[u8]) -> RequestHead {
            let [i0, i1, i2, i3] = self.next_id.to_be_bytes();
            self.next_id += 2;
            let length = u8::try_from(block.len()).unwrap();
            self.receive(&[&[0, 0, length, 1, 5, i0, i1, i2, i3], block].concat());
            while let Some(event) = self.session.poll_event() {
                if let Event::Request { head, stream, .. } = event {
                    self.session.release(stream);
                    return *head;
                }
            }
            panic!("no request")
        }

        fn is_known(&self, block: &[u8]) -> bool {
            let conn = self.session.conns.find(self.conn).unwrap();
            conn.repeated_request.find(&conn.decoder, block).is_some()
        }
    }

    /// `:method GET`, `:scheme https`, `:path` with this value as a literal, and the entries of the dynamic table at `indices`.
    fn block(path: &str, indices: &[u8]) -> Vec<u8> {
        let mut block = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
        block.extend_from_slice(path.as_bytes());
        block.extend(indices.iter().map(|index| 0x80 | (61 + index)));
        block
    }

    /// A literal with these first bits, and the name `x`.
    fn literal(first: u8, value: u8) -> [u8; 5] {
        [first, 1, b'x', 1, value]
    }

    #[test]
    fn a_repeated_request_has_the_same_head_each_time() {
        let mut server = Server::new();
        // It adds `x: 1` to the table, so it is not kept.
        let first = [block("/a", &[]), literal(0x40, b'1').to_vec()].concat();
        server.request(&first);
        assert!(!server.is_known(&first));
        let repeated = block("/a", &[1]);
        for round in 0..4 {
            assert_eq!(server.is_known(&repeated), round >= 2);
            let head = server.request(&repeated);
            assert_eq!((head.uri.path(), &head.headers["x"]), ("/a", &"1".parse().unwrap()));
        }
        assert_eq!(server.request(&block("/b", &[1])).uri.path(), "/b");
        assert!(server.is_known(&repeated), "another request does not replace it");
    }

    #[test]
    fn a_change_of_the_table_changes_what_a_block_means() {
        let mut server = Server::new();
        let repeated = block("/", &[1]);
        for value in [b'1', b'2'] {
            server.request(&[block("/", &[]), literal(0x40, value).to_vec()].concat());
            for _ in 0..3 {
                assert_eq!(server.request(&repeated).headers["x"].as_bytes(), [value]);
            }
            assert!(server.is_known(&repeated));
        }
        let conn = server.session.conns.find_mut(server.conn).unwrap();
        conn.decoder.set_max_table_size(0);
        assert!(!server.is_known(&repeated), "a size update must come first");
    }

    #[test]
    fn an_entry_that_was_evicted_and_a_table_that_was_emptied_are_changes() {
        let mut server = Server::new();
        let repeated = block("/", &[1]);
        server.request(&[block("/", &[]), literal(0x40, b'1').to_vec()].concat());
        (0..3).for_each(|_| drop(server.request(&repeated)));
        assert!(server.is_known(&repeated));
        // To 0, and back to 4096.
        server.request(&[&[0x20, 0x3f, 0xe1, 0x1f], &block("/", &[])[..]].concat());
        assert!(!server.is_known(&repeated));
    }

    #[test]
    fn a_request_with_many_fields_is_not_kept() {
        let mut server = Server::new();
        let fields = (0..40).flat_map(|_| literal(0x00, b'1'));
        let many: Vec<u8> = block("/", &[]).into_iter().chain(fields).collect();
        (0..4).for_each(|_| drop(server.request(&many)));
        assert!(!server.is_known(&many));
    }

    #[test]
    fn trailers_are_no_request() {
        let mut server = Server::new();
        let repeated = block("/", &[]);
        (0..3).for_each(|_| drop(server.request(&repeated)));
        assert!(server.is_known(&repeated));
        // HEADERS without END_STREAM, then the same block on the same stream: pseudo-header fields are malformed in trailers.
        for flags in [4, 5] {
            let header = [0, 0, u8::try_from(repeated.len()).unwrap(), 1, flags, 0, 0, 0, 99];
            server.receive(&[&header, &repeated[..]].concat());
        }
        let is_reset = |event| matches!(event, Event::Failed { .. });
        assert!(std::iter::from_fn(|| server.session.poll_event()).any(is_reset));
    }

    #[test]
    fn a_sensitive_value_is_never_kept() {
        let mut server = Server::new();
        let sensitive = [block("/", &[]), literal(0x10, b'1').to_vec()].concat();
        (0..4).for_each(|_| drop(server.request(&sensitive)));
        assert!(!server.is_known(&sensitive));
        let sensitive_path = [0x82, 0x87, 0x14, 2, b'/', b's'];
        (0..4).for_each(|_| drop(server.request(&sensitive_path)));
        assert!(!server.is_known(&sensitive_path));
    }
}
