//! Integers with a prefix (RFC 7541 section 5.1). The largest value is 2^32 - 1, in at most five
//! bytes after the prefix.

use bytes::{BufMut, BytesMut};

use super::DecodeError;

/// Maximum number of continuation bytes for a value below 2^32.
const MAX_CONTINUATION_BYTES: u32 = 5;

/// Decodes the integer whose first byte, `first`, has already been taken from `rest`. It has
/// `prefix_bits` bits in that byte, 4 to 7.
#[inline]
pub(super) fn decode(first: u8, prefix_bits: u32, rest: &mut &[u8]) -> Result<usize, DecodeError> {
    let mask = (1_u8 << prefix_bits) - 1;
    let value = first & mask;
    if value < mask { Ok(usize::from(value)) } else { decode_continuation(mask, rest) }
}

#[inline(never)]
fn decode_continuation(mask: u8, rest: &mut &[u8]) -> Result<usize, DecodeError> {
    let mut value = u64::from(mask);
    for position in 0..MAX_CONTINUATION_BYTES {
        let (&byte, tail) = rest.split_first().ok_or(DecodeError::Truncated)?;
        *rest = tail;
        value += u64::from(byte & 0x7f) << (7 * position);
        if byte < 0x80 {
            let value = u32::try_from(value).map_err(|_| DecodeError::IntegerOverflow)?;
            return usize::try_from(value).map_err(|_| DecodeError::IntegerOverflow);
        }
    }
    Err(DecodeError::IntegerOverflow)
}

/// Encodes `value` after the bits of `pattern`. It has `prefix_bits` bits in the first byte, 4
/// to 7.
#[inline]
pub(super) fn encode(value: usize, prefix_bits: u32, pattern: u8, out: &mut BytesMut) {
    let mask = (1_u8 << prefix_bits) - 1;
    match u8::try_from(value) {
        Ok(small) if small < mask => out.put_u8(pattern | small),
        _ => {
            out.put_u8(pattern | mask);
            encode_continuation(value - usize::from(mask), out);
        }
    }
}

#[inline(never)]
fn encode_continuation(mut value: usize, out: &mut BytesMut) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}
