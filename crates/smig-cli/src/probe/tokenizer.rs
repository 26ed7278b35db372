//! Splits a script's line into tokens: quoted text, `key=value`, hexadecimal bytes.

use crate::hex::hex_byte;

/// One token of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: Vec<u8>,
    /// Index of the first `=` outside of quotes.
    equals_index: Option<usize>,
    /// Whether the token began with a quote.
    pub(super) quoting: Quoting,
}

/// Notation of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quoting {
    Bare,
    Quoted,
}

impl Token {
    /// Returns the key and value of `key=value`.
    pub(super) fn key_value(&self) -> Option<(&[u8], &[u8])> {
        let at = self.equals_index?;
        Some((self.text.get(..at)?, self.text.get(at + 1..)?))
    }

    /// Returns the text for messages.
    pub(super) fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    /// Returns whether this is the bare word `word`.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.quoting == Quoting::Bare && self.text == word.as_bytes()
    }
}

/// Splits a line into tokens; `#` at the beginning of a token starts a comment.
///
/// # Errors
/// An unclosed quote or an invalid escape.
pub(super) fn tokenize(line: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut bytes = line.bytes().peekable();
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        match bytes.peek() {
            None | Some(b'#') => return Ok(tokens),
            Some(_) => tokens.push(read_token(&mut bytes)?),
        }
    }
}

type ByteIter<'a> = std::iter::Peekable<std::str::Bytes<'a>>;

fn read_token(bytes: &mut ByteIter<'_>) -> Result<Token, String> {
    let quoting = if bytes.peek() == Some(&b'"') { Quoting::Quoted } else { Quoting::Bare };
    let mut token = Token { text: Vec::new(), equals_index: None, quoting };
    while let Some(byte) = bytes.next_if(|byte| !byte.is_ascii_whitespace()) {
        match byte {
            b'"' => read_quoted(bytes, &mut token.text)?,
            b'=' => {
                token.equals_index.get_or_insert(token.text.len());
                token.text.push(byte);
            }
            _ => token.text.push(byte),
        }
    }
    Ok(token)
}

fn read_quoted(bytes: &mut ByteIter<'_>, text: &mut Vec<u8>) -> Result<(), String> {
    loop {
        match bytes.next() {
            None => return Err("unterminated quote".to_owned()),
            Some(b'"') => return Ok(()),
            Some(b'\\') => text.push(read_escape(bytes)?),
            Some(byte) => text.push(byte),
        }
    }
}

fn read_escape(bytes: &mut ByteIter<'_>) -> Result<u8, String> {
    match bytes.next() {
        Some(b'n') => Ok(b'\n'),
        Some(b'r') => Ok(b'\r'),
        Some(b't') => Ok(b'\t'),
        Some(b'0') => Ok(0),
        Some(byte @ (b'\\' | b'"')) => Ok(byte),
        Some(b'x') => {
            let digits: Vec<u8> = bytes.by_ref().take(2).collect();
            hex_byte(&digits).ok_or_else(|| {
                let digits = String::from_utf8_lossy(&digits);
                format!("\\x{digits}: expected two hexadecimal digits")
            })
        }
        _ => Err("invalid escape; expected n, r, t, 0, \\, \" or xHH after \\".to_owned()),
    }
}

/// Parses bytes in hexadecimal, with or without spaces between them.
pub(super) fn parse_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bad =
        || format!("{:?} is not hexadecimal, two digits per byte", String::from_utf8_lossy(text));
    if !digits.len().is_multiple_of(2) {
        return Err(bad());
    }
    digits.chunks(2).map(|pair| hex_byte(pair).ok_or_else(bad)).collect()
}

/// Parses a number: decimal, or hexadecimal with 0x.
pub(super) fn parse_number(text: &[u8]) -> Result<u32, String> {
    let text = String::from_utf8_lossy(text);
    let (digits, radix) = text.strip_prefix("0x").map_or((&*text, 10), |digits| (digits, 16));
    // `from_str_radix` accepts a sign.
    let is_signed = digits.starts_with('+');
    match u32::from_str_radix(digits, radix) {
        Ok(number) if !is_signed => Ok(number),
        _ => Err(format!("{text:?} is not a number from 0 to 4294967295")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        let tokens = tokenize("data stream=1 \"a b\\x00\\\"\" x=\"y z\" # rest").unwrap();
        let texts: Vec<_> = tokens.iter().map(|token| token.text.as_slice()).collect();
        assert_eq!(texts, [&b"data"[..], b"stream=1", b"a b\0\"", b"x=y z"]);
        assert_eq!(tokens[3].key_value(), Some((&b"x"[..], &b"y z"[..])));
        assert_eq!(tokens[2].quoting, Quoting::Quoted);
        assert_eq!(tokenize("a=b=c").unwrap()[0].key_value(), Some((&b"a"[..], &b"b=c"[..])));
        assert!(tokenize("\"open").is_err());
        assert!(tokenize("\"\\q\"").is_err());
        assert!(tokenize("  # nothing").unwrap().is_empty());
    }

    #[test]
    fn numbers_and_bytes_are_parsed() {
        assert_eq!(parse_number(b"0xff"), Ok(255));
        assert_eq!(parse_number(b"17"), Ok(17));
        for bad in ["-1", "+1", "0x+f", "0x", ""] {
            assert!(parse_number(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(tokenize("\"\\x+f\"").is_err());
        assert_eq!(parse_hex(b"00 fF"), Ok(vec![0, 255]));
        for bad in ["0", "zz", "+f"] {
            assert!(parse_hex(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
