//! Encodes and decodes arbitrary field lists, with changes of the table size.

#![no_main]

use arbitrary::Arbitrary;
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use smig_proto::hpack::{Decoder, Encoder, Field, Pseudo};

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Limit(u16),
    Block(Vec<(Name<'a>, &'a [u8], Indexing)>),
}

#[derive(Arbitrary, Debug)]
enum Name<'a> {
    /// One of a few names that recur; the encoder treats some of them specially.
    Known(u8),
    Other(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Indexing {
    Free,
    Never,
}

const KNOWN: [&str; 16] = [
    ":method",
    ":scheme",
    ":authority",
    ":path",
    ":status",
    ":protocol",
    "accept-encoding",
    "authorization",
    "content-length",
    "cookie",
    "date",
    "etag",
    "grpc-status",
    "grpc-timeout",
    "set-cookie",
    "traceparent",
];

/// Returns the field if HTTP/2 permits it.
fn field(name: &Name<'_>, value: &[u8], indexing: &Indexing) -> Option<Field> {
    use Pseudo::*;
    let name = match name {
        Name::Known(which) => KNOWN[usize::from(*which) % KNOWN.len()].as_bytes(),
        Name::Other(name) => name,
    };
    let mut checked = HeaderValue::from_bytes(value.trim_ascii()).ok()?;
    let pseudo = [Method, Scheme, Authority, Path, Status, Protocol];
    if let Some(pseudo) = pseudo.into_iter().find(|known| known.as_str().as_bytes() == name) {
        return Some(Field::Pseudo(pseudo, Bytes::copy_from_slice(checked.as_bytes())));
    }
    checked.set_sensitive(matches!(indexing, Indexing::Never));
    let name = HeaderName::from_lowercase(name).ok().filter(|name| !name.as_str().contains('"'))?;
    Some(Field::Regular(name, checked))
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    for step in &steps {
        let list = match step {
            Step::Limit(limit) => {
                encoder.set_max_table_size(usize::from(*limit));
                decoder.set_max_table_size(usize::from(*limit));
                continue;
            }
            Step::Block(list) => list,
        };
        let mut block = BytesMut::new();
        encoder.begin(&mut block);
        let fields: Vec<Field> = list
            .iter()
            .filter_map(|(name, value, indexing)| field(name, value, indexing))
            .inspect(|field| match field {
                Field::Pseudo(name, value) => encoder.pseudo(*name, value, &mut block),
                Field::Regular(name, value) => encoder.regular(name, value, &mut block),
                Field::Malformed(..) => {}
            })
            .collect();
        let mut expected = fields.iter();
        decoder
            .decode(&block, |field| {
                let was = expected.next().expect("no more fields than were encoded");
                assert_eq!(&*field, was);
                if let (Field::Regular(_, is), Field::Regular(_, was)) = (&*field, was) {
                    assert!(is.is_sensitive() || !was.is_sensitive());
                }
            })
            .expect("our own block");
        assert_eq!(expected.next(), None);
    }
});
