//! Names and values that HTTP/2 does not allow, and their effect on the table.

use http::HeaderValue;

use super::*;

/// Encodes a literal without indexing and without Huffman coding.
fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = BytesMut::from(&[0x00][..]);
    for string in [name, value] {
        integer::encode(string.len(), 7, 0, &mut block);
        block.extend_from_slice(string);
    }
    block.to_vec()
}

fn decode_single_field(block: &[u8]) -> Field {
    let mut fields = decode_fields(&mut Decoder::new(4096), block).unwrap();
    assert_eq!(fields.len(), 1);
    fields.remove(0)
}

#[test]
fn names_are_lowercase_tokens() {
    for byte in 0..=u8::MAX {
        let allowed =
            matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(&byte);
        // Alone, in the middle, and in a name longer than `http` validates at once.
        for (before, after) in [(0, 0), (1, 1), (3, 80), (80, 3)] {
            let mut name = vec![b'x'; before];
            name.push(byte);
            name.extend(vec![b'x'; after]);
            match decode_single_field(&literal(&name, b"v")) {
                Field::Regular(decoded, value) => {
                    assert!(allowed, "{byte:#x}");
                    assert_eq!(decoded.as_str().as_bytes(), name);
                    assert_eq!(value, "v");
                }
                Field::Malformed(_, size) => {
                    assert!(!allowed, "{byte:#x}");
                    assert_eq!(size as usize, name.len() + 1 + 32);
                }
                Field::Pseudo(..) => panic!("{byte:#x}"),
            }
        }
    }
}

#[test]
fn invalid_names_are_malformed() {
    for (name, reason) in [
        (&b""[..], "empty field name"),
        (b"Content-Type", "field name with an uppercase letter"),
        (b"a b", "field name with a forbidden character"),
        (b"a:b", "field name with a forbidden character"),
        (b":", "unknown pseudo-header field"),
        (b":Method", "unknown pseudo-header field"),
        (b":unknown", "unknown pseudo-header field"),
    ] {
        let size = name.len() as u32 + 5 + 32;
        assert_eq!(decode_single_field(&literal(name, b"value")), Field::Malformed(reason, size));
    }
}

#[test]
fn every_pseudo_header_field_is_known() {
    use Pseudo::*;
    for pseudo in [Method, Scheme, Authority, Path, Status, Protocol] {
        let field = decode_single_field(&literal(pseudo.as_str().as_bytes(), b"v"));
        assert_eq!(field, Field::Pseudo(pseudo, bytes::Bytes::from_static(b"v")));
        assert_eq!(field.size(), pseudo.as_str().len() + 1 + 32);
    }
}

#[test]
fn values_have_no_control_characters() {
    for name in [&b"x"[..], b":path"] {
        for byte in 0..=u8::MAX {
            let allowed = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
            match decode_single_field(&literal(name, &[b'a', byte, b'b'])) {
                Field::Regular(_, value) => {
                    assert!(allowed);
                    assert_eq!(value.as_bytes(), [b'a', byte, b'b']);
                }
                Field::Pseudo(_, value) => {
                    assert!(allowed);
                    assert_eq!(value, &[b'a', byte, b'b'][..]);
                }
                Field::Malformed(reason, _) => {
                    assert!(!allowed);
                    assert_eq!(reason, "field value with a control character");
                }
            }
        }
    }
}

#[test]
fn values_have_no_outer_whitespace() {
    for name in [&b"x"[..], b":path"] {
        for value in [&b" a"[..], b"a ", b"\ta", b"a\t", b" ", b"\t", b" a "] {
            assert_eq!(
                decode_single_field(&literal(name, value)),
                Field::Malformed(
                    "field value starts or ends with whitespace",
                    (name.len() + value.len() + 32) as u32
                )
            );
        }
        assert!(!matches!(decode_single_field(&literal(name, b"")), Field::Malformed(..)));
        assert!(!matches!(decode_single_field(&literal(name, b"a b\tc")), Field::Malformed(..)));
    }
}

#[test]
fn malformed_fields_keep_their_place_in_the_table() {
    let mut decoder = Decoder::new(4096);
    // "X: v" (invalid name) and "y: <NUL>" (invalid value), both with indexing, then "z: v".
    let first_fields =
        decode_fields(&mut decoder, &parse_hex("4001 5801 76 4001 7901 00 4001 7a01 76")).unwrap();
    let bad_name = Field::Malformed("field name with an uppercase letter", 34);
    let bad_value = Field::Malformed("field value with a control character", 34);
    assert_eq!(first_fields[..2], [bad_name.clone(), bad_value.clone()]);
    // All three have the expected indexes.
    let indexed_fields = decode_fields(&mut decoder, &parse_hex("be bf c0")).unwrap();
    assert_eq!(format_field(&indexed_fields[0]), "z: v");
    assert_eq!(indexed_fields[1..], [bad_value, bad_name]);
    // Literals can refer to their names: a valid name stays valid whatever its first value was.
    let literal_fields = decode_fields(&mut decoder, &parse_hex("0f30 0162 0f31 0276 76")).unwrap();
    assert_eq!(format_field(&literal_fields[0]), "y: b");
    assert_eq!(literal_fields[1], Field::Malformed("field name with an uppercase letter", 35));
}

#[test]
fn never_indexed_fields_are_sensitive_and_stay_sensitive() {
    let fields =
        decode_fields(&mut Decoder::new(4096), &parse_hex("1001 7801 76 1f09 0176 0f09 0176"))
            .unwrap();
    let sensitive: Vec<bool> = fields
        .iter()
        .map(|field| matches!(field, Field::Regular(_, value) if value.is_sensitive()))
        .collect();
    assert_eq!(sensitive, [true, true, false]);
    let mut encoder = Encoder::new();
    let again = encode_block(&mut encoder, &fields);
    assert_eq!(again[0] & 0xf0, 0x10);
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(64);
    assert_eq!(decode_fields(&mut decoder, &parse_hex("4001 6101 62")).unwrap().len(), 1);
    assert_eq!(decoder.table().len(), 1);
    let mut large_block = literal(b"a", &[b'x'; 100]);
    large_block[0] = 0x40;
    assert_eq!(decode_fields(&mut decoder, &large_block).unwrap()[0].size(), 133);
    assert!(decoder.table().is_empty());
}

#[test]
fn a_name_outlives_the_eviction_that_its_literal_causes() {
    let mut decoder = Decoder::new(64);
    let mut block = parse_hex("4004 6e61 6d65 0176 7e14");
    block.extend([b'w'; 20]);
    assert_eq!(decode_to_lines(&mut decoder, &block), ["name: v", "name: wwwwwwwwwwwwwwwwwwww"]);
    assert_eq!(decoder.table().len(), 1);
}

#[test]
fn a_fields_size_includes_32_bytes_of_overhead() {
    assert_eq!(Field::Pseudo(Pseudo::Path, bytes::Bytes::from_static(b"/")).size(), 5 + 1 + 32);
    let regular = Field::Regular(http::header::TE, HeaderValue::from_static("trailers"));
    assert_eq!(regular.size(), 2 + 8 + 32);
    assert_eq!(Field::Malformed("", 77).size(), 77);
}
