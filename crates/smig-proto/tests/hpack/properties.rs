//! Encodes and decodes random header lists, and decodes random bytes.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use smig_proto::hpack::{Decoder, Encoder, Field, Pseudo};

#[derive(Clone, Debug)]
enum Step {
    /// The decoder's side lowers or raises SETTINGS_HEADER_TABLE_SIZE, which is acknowledged
    /// immediately.
    Limit(usize),
    Block(Vec<Field>),
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => b' '..=b'~', 1 => Just(b'\t'), 1 => 0x80..=0xff_u8];
    prop_oneof![
        // A few values that recur, many that do not, and some that fill the table.
        4 => prop::sample::select(vec![&b"0"[..], b"gzip", b"trailers", b"/", b"a=b; c=d; e=f; g=h; i=j"])
            .prop_map(<[u8]>::to_vec),
        4 => prop::collection::vec(byte.clone(), 0..40),
        1 => prop::collection::vec(byte, 0..5000),
    ]
    .prop_map(|value| value.trim_ascii().to_vec())
}

fn name() -> impl Strategy<Value = HeaderName> {
    prop_oneof![
        prop::sample::select(vec![
            http::header::ACCEPT_ENCODING,
            http::header::CONTENT_LENGTH,
            http::header::COOKIE,
            http::header::DATE,
            http::header::ETAG,
            http::header::SET_COOKIE,
            http::header::TE,
            HeaderName::from_static("grpc-status"),
            HeaderName::from_static("traceparent"),
        ]),
        "[a-z!#$%&'*+.^_`|~0-9-]{1,3}".prop_map(|name| HeaderName::try_from(name).unwrap()),
        "[a-z-]{1,90}".prop_map(|name| HeaderName::try_from(name).unwrap()),
    ]
}

fn field() -> impl Strategy<Value = Field> {
    use Pseudo::*;
    let pseudo = prop::sample::select(vec![Method, Scheme, Authority, Path, Status, Protocol]);
    prop_oneof![
        (pseudo, value()).prop_map(|(name, value)| Field::Pseudo(name, Bytes::from(value))),
        (name(), value(), 0..8).prop_map(|(name, value, sensitive)| {
            let mut value = HeaderValue::from_bytes(&value).unwrap();
            value.set_sensitive(sensitive == 0);
            Field::Regular(name, value)
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let limit = prop_oneof![Just(0), 0..200_usize, 0..5000_usize, Just(65536)];
    prop_oneof![
        1 => limit.prop_map(Step::Limit),
        3 => prop::collection::vec(field(), 0..8).prop_map(Step::Block),
    ]
}

fn encode(encoder: &mut Encoder, fields: &[Field]) -> BytesMut {
    let mut block = BytesMut::new();
    encoder.begin(&mut block);
    for field in fields {
        match field {
            Field::Pseudo(name, value) => encoder.pseudo(*name, value, &mut block),
            Field::Regular(name, value) => encoder.regular(name, value, &mut block),
            Field::Malformed(reason, _) => unreachable!("never generated: {reason}"),
        }
    }
    block
}

fn is_sensitive(field: &Field) -> bool {
    matches!(field, Field::Regular(_, value) if value.is_sensitive())
}

fn config() -> ProptestConfig {
    // Failing cases are stored beside this file, so that they can be replayed.
    let persistence = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn fields_round_trip(steps in prop::collection::vec(step(), 1..16)) {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        for step in steps {
            match step {
                Step::Limit(limit) => {
                    encoder.set_max_table_size(limit);
                    decoder.set_max_table_size(limit);
                }
                Step::Block(fields) => {
                    let block = encode(&mut encoder, &fields);
                    let mut decoded = Vec::new();
                    decoder.decode(&block, |field| decoded.push(field.into_owned())).unwrap();
                    prop_assert_eq!(&decoded, &fields);
                    for (decoded, field) in decoded.iter().zip(&fields) {
                        // Sensitive stays sensitive. The encoder may mark short credentials.
                        prop_assert!(is_sensitive(decoded) || !is_sensitive(field));
                    }
                }
            }
        }
    }

    /// Any bytes are decoded or rejected, and decoded fields can be encoded again.
    #[test]
    fn any_bytes_are_handled(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8)) {
        let mut decoder = Decoder::new(4096);
        for block in blocks {
            let mut fields = Vec::new();
            let result = decoder.decode(&block, |field| fields.push(field.into_owned()));
            // One byte represents at most one field. Its name and value are from the table, or from
            // the block, where Huffman coding makes at most 8/5 bytes of one.
            prop_assert!(fields.len() <= block.len());
            for field in &fields {
                prop_assert!((32..=4096 + 200 * 2).contains(&field.size()));
            }
            if result.is_err() {
                break;
            }
            fields.retain(|field| !matches!(field, Field::Malformed(..)));
            let reencoded = encode(&mut Encoder::new(), &fields);
            let mut decoded = Vec::new();
            Decoder::new(4096).decode(&reencoded, |field| decoded.push(field.into_owned())).unwrap();
            prop_assert_eq!(decoded, fields);
        }
    }
}
