//! Hexadecimal digits of command lines and probe scripts.

/// Parses two hexadecimal digits. `u8::from_str_radix` alone would accept `+f`.
pub(crate) fn hex_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}
