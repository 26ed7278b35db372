//! Output of the encoder: representations, size updates, and synchronization with the decoder's
//! table.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};

use super::*;

fn regular(name: &str, value: &str) -> Field {
    Field::Regular(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())
}

fn pseudo(name: Pseudo, value: &'static str) -> Field {
    Field::Pseudo(name, Bytes::from_static(value.as_bytes()))
}

/// Encodes the field alone, `times` times; returns the first byte of each block.
fn representations(field: &Field, times: usize) -> Vec<u8> {
    let mut encoder = Encoder::new();
    (0..times).map(|_| encode_block(&mut encoder, std::slice::from_ref(field))[0]).collect()
}

#[test]
fn static_entries_are_encoded_by_index() {
    for index in 1..=61_u8 {
        let field = decode_fields(&mut Decoder::new(4096), &[0x80 | index]).unwrap().remove(0);
        let encoded = encode_block(&mut Encoder::new(), &[field]);
        if (2..=14).contains(&index) || index == 1 || index == 16 {
            assert_eq!(encoded, [0x80 | index]);
        } else {
            // An empty value: at least the static entry's name is used.
            let mut rest = &encoded[1..];
            let prefix_bits = if encoded[0] & 0x40 != 0 { 6 } else { 4 };
            assert_eq!(integer::decode(encoded[0], prefix_bits, &mut rest), Ok(usize::from(index)));
            assert_eq!(rest, [0]);
        }
    }
}

#[test]
fn status_is_encoded_like_the_pseudo_header_field() {
    for status in 100..=999_u16 {
        let mut out = BytesMut::new();
        Encoder::new().status(status, &mut out);
        let digits = Bytes::from(status.to_string());
        assert_eq!(
            out,
            encode_block(&mut Encoder::new(), &[Field::Pseudo(Pseudo::Status, digits)])
        );
    }
}

#[test]
fn recurring_fields_are_indexed() {
    for field in [
        pseudo(Pseudo::Authority, "example.com"),
        pseudo(Pseudo::Status, "418"),
        pseudo(Pseudo::Protocol, "websocket"),
        regular("content-type", "text/html"),
        regular("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        regular("grpc-status", "0"),
        regular("te", "trailers"),
    ] {
        let [first, second, third] = representations(&field, 3)[..] else { unreachable!() };
        assert_eq!((first & 0xc0, second, third), (0x40, 0xbe, 0xbe), "{field:?}");
    }
}

#[test]
fn fields_that_may_recur_are_indexed_on_second_use() {
    for field in [
        pseudo(Pseudo::Path, "/grpc.health.v1.Health/Check"),
        regular("etag", "\"33a64df551425fcc\""),
        regular("last-modified", "Mon, 21 Oct 2013 20:13:21 GMT"),
        regular("grpc-timeout", "1S"),
    ] {
        let [first, second, third] = representations(&field, 3)[..] else { unreachable!() };
        assert_eq!((first & 0xf0, second & 0xc0, third), (0x00, 0x40, 0xbe), "{field:?}");
    }
}

#[test]
fn fields_that_do_not_recur_are_not_indexed() {
    for field in [
        regular("content-length", "1234"),
        regular("content-range", "bytes 0-1/2"),
        regular("set-cookie", "a=b"),
        regular("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        assert!(representations(&field, 3).iter().all(|first| first & 0xf0 == 0), "{field:?}");
    }
}

#[test]
fn guessable_secrets_are_never_indexed() {
    let mut sensitive = HeaderValue::from_static("a long value that would be indexed otherwise");
    sensitive.set_sensitive(true);
    for field in [
        Field::Regular(HeaderName::from_static("x-key"), sensitive.clone()),
        Field::Regular(header::ACCEPT_ENCODING, {
            let mut value = HeaderValue::from_static("gzip, deflate");
            value.set_sensitive(true);
            value
        }),
        regular("cookie", "short=1"),
        regular("authorization", "Basic YTpi"),
        regular("proxy-authorization", "Basic YTpi"),
    ] {
        assert!(representations(&field, 3).iter().all(|first| first & 0xf0 == 0x10), "{field:?}");
    }
    // Too long to be guessed.
    assert_eq!(representations(&regular("cookie", "session=0123456789abcdef"), 2)[1], 0xbe);
}

#[test]
fn a_field_that_would_fill_most_of_the_table_is_not_indexed() {
    let large = |len| regular("x", &"v".repeat(len));
    assert_eq!(representations(&large(3072 - 33), 2)[1], 0xbe);
    assert!(representations(&large(3073 - 33), 2).iter().all(|first| first & 0xf0 == 0));
}

#[test]
fn literals_refer_to_names_in_the_dynamic_table() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    let first = encode_block(&mut encoder, &[regular("x-name", "one"), regular("x-other", "1")]);
    assert_eq!(decode_to_lines(&mut decoder, &first), ["x-name: one", "x-other: 1"]);
    let second = encode_block(&mut encoder, &[regular("x-name", "two")]);
    assert_eq!(second[0], 0x40 | 63);
    assert_eq!(decode_to_lines(&mut decoder, &second), ["x-name: two"]);
    // The newer of the two entries.
    let third = encode_block(&mut encoder, &[regular("x-name", "three")]);
    assert_eq!(third[0], 0x40 | 62);
    assert_eq!(decode_to_lines(&mut decoder, &third), ["x-name: three"]);
}

#[test]
fn strings_are_huffman_coded_only_when_shorter() {
    // 5 bits each: saves one byte of three. 27 bits each: raw.
    assert_eq!(
        encode_block(&mut Encoder::new(), &[regular("etag", "aaa")]),
        parse_hex("0f13 8218c7")
    );
    assert_eq!(encode_block(&mut Encoder::new(), &[regular("etag", "a")]), parse_hex("0f13 0161"));
    let obs_text = Field::Regular(header::ETAG, HeaderValue::from_bytes(b"\xfe\xfe").unwrap());
    assert_eq!(encode_block(&mut Encoder::new(), &[obs_text]), parse_hex("0f13 02fefe"));
}

fn take_size_updates(encoder: &mut Encoder) -> Vec<u8> {
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    out.to_vec()
}

#[test]
fn size_updates_signal_the_smallest_and_the_final_size() {
    let mut encoder = Encoder::new();
    assert!(take_size_updates(&mut encoder).is_empty());
    // A limit above the size that we use changes nothing.
    encoder.set_max_table_size(65536);
    assert!(take_size_updates(&mut encoder).is_empty());
    encoder.set_max_table_size(100);
    assert_eq!(take_size_updates(&mut encoder), parse_hex("3f45"));
    assert!(take_size_updates(&mut encoder).is_empty());
    // Decrease and increase: two updates, the smallest size first.
    encoder.set_max_table_size(4096);
    encoder.set_max_table_size(0);
    encoder.set_max_table_size(50);
    encoder.set_max_table_size(200);
    assert_eq!(take_size_updates(&mut encoder), parse_hex("20 3fa9 01"));
    // Decrease and return to the previous size.
    encoder.set_max_table_size(0);
    encoder.set_max_table_size(200);
    assert_eq!(take_size_updates(&mut encoder), parse_hex("20 3fa9 01"));
    // Increase in two steps: one update.
    encoder.set_max_table_size(300);
    encoder.set_max_table_size(4096);
    assert_eq!(take_size_updates(&mut encoder), parse_hex("3fe1 1f"));
}

#[test]
fn a_size_update_empties_both_tables() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    let field = [regular("x", "y")];
    assert_eq!(decode_to_lines(&mut decoder, &encode_block(&mut encoder, &field)), ["x: y"]);
    for limit in [0, 4096] {
        encoder.set_max_table_size(limit);
        decoder.set_max_table_size(limit);
    }
    let encoded = encode_block(&mut encoder, &field);
    assert_eq!(encoded[4] & 0xc0, 0x40);
    assert_eq!(decode_to_lines(&mut decoder, &encoded), ["x: y"]);
    assert_eq!(decode_to_lines(&mut decoder, &encode_block(&mut encoder, &field)), ["x: y"]);
}

/// Encodes many more fields than the table, the index and 16-bit serial numbers can hold.
#[test]
fn tables_stay_in_sync_over_many_blocks() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    for round in 0..70_000_u32 {
        // Some values recur soon, some late, some never.
        let round_fields = [
            regular("x-seldom", &(round / 100).to_string()),
            regular(&format!("x-{}", round % 7), &(round % 13).to_string()),
            regular("x-always", &"v".repeat(round as usize % 50)),
        ];
        let mut expected = round_fields.iter();
        decoder
            .decode(&encode_block(&mut encoder, &round_fields), |field| {
                assert_eq!(Some(&*field), expected.next())
            })
            .unwrap();
        assert!(expected.next().is_none());
    }
}
