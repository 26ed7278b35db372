//! Tests of both directions: the RFC's examples, every error, and the encoder's choices.

use bytes::BytesMut;

use super::*;

mod encoding;
mod errors;
mod fields;
mod huffman_code;
mod rfc7541;

/// Parses a block in hexadecimal, ignoring white space.
fn parse_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Decodes all fields of a block.
fn decode_fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(block, |field| fields.push(field.into_owned()))?;
    Ok(fields)
}

/// Formats a well-formed field as `name: value`.
fn format_field(field: &Field) -> String {
    let (name, value) = match field {
        Field::Pseudo(name, value) => (name.as_str(), &value[..]),
        Field::Regular(name, value) => (name.as_str(), value.as_bytes()),
        Field::Malformed(reason, size) => panic!("malformed, {size} bytes: {reason}"),
    };
    format!("{name}: {}", String::from_utf8_lossy(value))
}

fn decode_to_lines(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
    decode_fields(decoder, block).unwrap().iter().map(format_field).collect()
}

/// Encodes `fields` as one block.
fn encode_block(encoder: &mut Encoder, fields: &[Field]) -> Vec<u8> {
    let mut out = BytesMut::new();
    encoder.begin(&mut out);
    for field in fields {
        match field {
            Field::Pseudo(name, value) => encoder.pseudo(*name, value, &mut out),
            Field::Regular(name, value) => encoder.regular(name, value, &mut out),
            Field::Malformed(reason, _) => panic!("not to be encoded: {reason}"),
        }
    }
    out.to_vec()
}
