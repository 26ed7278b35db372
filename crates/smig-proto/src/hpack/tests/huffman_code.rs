//! Compares the Huffman decoder with one that reads bit by bit.

use super::*;

fn encode_to_vec(text: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    let len = huffman::encoded_len(text);
    huffman::encode(text, len, &mut out);
    assert_eq!(out.len(), len);
    out.to_vec()
}

/// Strings of up to two bytes, and each byte at each position of a longer string.
#[test]
fn all_bytes_round_trip() {
    let mut scratch = Vec::new();
    let mut check = |text: &[u8]| {
        assert_eq!(huffman::decode(&encode_to_vec(text), &mut scratch), Ok(text));
    };
    check(b"");
    for first in 0..=u8::MAX {
        check(&[first]);
        for second in 0..=u8::MAX {
            check(&[first, second]);
        }
        for len in 1..40 {
            for position in 0..len {
                let mut text = vec![b'e'; len];
                text[position] = first;
                check(&text);
            }
            check(&vec![first; len]);
        }
    }
}

/// RFC 7541 Appendix B, at least one code of each length.
#[test]
fn codes_are_those_of_appendix_b() {
    for (text, expected) in [
        (&b"0"[..], "07"),
        (b"a", "1f"),
        (b" ", "53"),
        (b"%", "57"),
        (b"z", "f7"),
        (b"X", "fc"),
        (b"!", "fe3f"),
        (b"\"", "fe7f"),
        (b"'", "ff5f"),
        (b"#", "ffaf"),
        (b"\0", "ffc7"),
        (b"^", "fff3"),
        (b"<", "fff9"),
        (b"\\", "fffe1f"),
        (b"\x80", "fffe6f"),
        (b"\x99", "fffe e7"),
        (b"\x81", "ffff 4b"),
        (b"\x01", "ffff b1"),
        (b"\t", "ffff ea"),
        (b"\xc7", "ffff f67f"),
        (b"\xff", "ffff fbbf"),
        (b"\xcb", "ffff fbdf"),
        (b"\x02", "ffff fe2f"),
        (b"\n", "ffff fff3"),
        (b"\x16", "ffff fffb"),
    ] {
        assert_eq!(encode_to_vec(text), parse_hex(expected), "{text:?}");
    }
}

/// Compares the decoder with the definition, for sequences of three bytes: take the shortest code
/// that matches, until at most 7 bits are left, all of them 1.
#[test]
fn the_decoder_agrees_with_the_definition() {
    let codes: Vec<(u32, u32)> = (0..=u8::MAX)
        .map(|byte| {
            // Each code is derived from the encoder, of which the test above has checked a sample: the code of
            // eight equal bytes has as many bytes as the code of one has bits.
            let one_encoded = encode_to_vec(&[byte]);
            let eight_encoded = encode_to_vec(&[byte; 8]);
            let length = eight_encoded.len() as u32;
            let bits = one_encoded
                .iter()
                .chain([0; 4].iter())
                .take(4)
                .fold(0, |bits, next| bits << 8 | u32::from(*next));
            (bits >> (32 - length), length)
        })
        .collect();
    let decode_by_definition = |source: &[u8]| -> Option<Vec<u8>> {
        let mut decoded = Vec::new();
        let (mut code, mut length) = (0_u32, 0);
        for bit in source.iter().flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1)) {
            code = code << 1 | u32::from(bit);
            length += 1;
            if length >= 5
                && let Some(byte) = codes.iter().position(|known| *known == (code, length))
            {
                decoded.push(byte as u8);
                (code, length) = (0, 0);
            }
        }
        (length <= 7 && code == (1 << length) - 1).then_some(decoded)
    };
    let mut scratch = Vec::new();
    // A stride coprime to 2^24 covers all bytes in all positions.
    for source in (0..1_u32 << 24).step_by(4099) {
        let source = &source.to_be_bytes()[1..];
        let decoded = huffman::decode(source, &mut scratch).ok().map(<[u8]>::to_vec);
        assert_eq!(decoded, decode_by_definition(source), "{source:02x?}");
    }
}
