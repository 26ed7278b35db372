//! Decodes arbitrary bytes as field blocks. The input is a sequence of records: one byte `n`, and
//! `n` bytes of a block. If `n` is 0, two bytes follow, a new SETTINGS_HEADER_TABLE_SIZE.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smig_proto::hpack::{Decoder, Encoder, Field};

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new(4096);
    let mut rest = input;
    while let Some((&len, tail)) = rest.split_first() {
        if len == 0 {
            let Some((size, tail)) = tail.split_first_chunk() else { return };
            decoder.set_max_table_size(usize::from(u16::from_be_bytes(*size)));
            rest = tail;
            continue;
        }
        let (block, tail) = tail.split_at(usize::from(len).min(tail.len()));
        rest = tail;
        let mut fields = Vec::new();
        let result = decoder.decode(block, |field| fields.push(field.into_owned()));
        assert!(fields.len() <= block.len());
        for field in &fields {
            assert!((32..=65535 + 2 * 255).contains(&field.size()));
        }
        assert_round_trip(fields);
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
            return;
        }
    }
});

/// Checks that the encoder and the decoder of `smig-proto` agree on all fields that HTTP/2 permits.
fn assert_round_trip(mut fields: Vec<Field>) {
    fields.retain(|field| !matches!(field, Field::Malformed(..)));
    let mut block = BytesMut::new();
    let mut encoder = Encoder::new();
    encoder.begin(&mut block);
    for field in &fields {
        match field {
            Field::Pseudo(name, value) => encoder.pseudo(*name, value, &mut block),
            Field::Regular(name, value) => encoder.regular(name, value, &mut block),
            Field::Malformed(..) => {}
        }
    }
    let mut expected = fields.into_iter();
    Decoder::new(4096)
        .decode(&block, |field| assert_eq!(Some(field.into_owned()), expected.next()))
        .expect("our own block");
    assert_eq!(expected.next(), None);
}
