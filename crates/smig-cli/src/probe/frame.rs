//! A received frame: formats it as text and as JSON, and matches it against a pattern.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::script::FramePattern;
use super::tokenizer::parse_number;
use super::wire::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ERROR_CODES, FRAME_TYPES, GOAWAY,
    HEADERS, JOIN, MIGRATE, PADDED, PING, PRIORITY_UPDATE, PUSH_PROMISE, REFUSED, RST_STREAM,
    SETTINGS, SETTINGS_NAMES, SMIG_ACK, WINDOW_UPDATE, name_of,
};

/// Longest excerpt of a payload without fields of its own, such as DATA, in bytes; JSON has the whole payload as well.
const MAX_EXCERPT_BYTES: usize = 48;

/// A received frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
    /// The decoded field section or the decoding error, if the frame ends a field block.
    pub(super) fields: Option<Result<Fields, String>>,
}

/// Names and values of a field section.
pub(super) type Fields = Vec<(String, String)>;

impl Frame {
    fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// Returns the error code of RST_STREAM or GOAWAY.
    fn error_code(&self) -> Option<u32> {
        match self.kind {
            RST_STREAM => self.u32_at(0),
            GOAWAY => self.u32_at(4),
            _ => None,
        }
    }

    fn parse_settings(&self) -> Vec<(u16, u32)> {
        let entry = |entry: &[u8]| match *entry {
            [a, b, c, d, e, f] => {
                Some((u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
            }
            _ => None,
        };
        self.payload.chunks(6).filter_map(entry).collect()
    }

    fn flag_names(&self) -> Vec<&'static str> {
        let mut flags = Vec::new();
        let mut flag = |bit, name| {
            if self.has_flag(bit) {
                flags.push(name);
            }
        };
        match self.kind {
            DATA | HEADERS => flag(END_STREAM, "end"),
            SETTINGS | PING => flag(ACK, "ack"),
            MIGRATE => {
                flag(SMIG_ACK, "ack");
                flag(END_STREAM, "end");
            }
            JOIN => {
                flag(SMIG_ACK, "ack");
                flag(REFUSED, "refused");
            }
            _ => {}
        }
        if matches!(self.kind, DATA | HEADERS | PUSH_PROMISE) {
            flag(PADDED, "padded");
        }
        if matches!(self.kind, HEADERS | CONTINUATION | PUSH_PROMISE) && !self.has_flag(END_HEADERS)
        {
            flags.push("open");
        }
        flags
    }

    pub(super) fn name(&self) -> String {
        name_of(&FRAME_TYPES, self.kind)
            .map_or_else(|| format!("{:#04x}", self.kind), str::to_owned)
    }

    /// Formats the frame as one line.
    pub(super) fn to_line(&self) -> String {
        let mut line =
            format!("{} stream={} length={}", self.name(), self.stream, self.payload.len());
        for flag in self.flag_names() {
            let _ = write!(line, " {flag}");
        }
        for (name, value) in self.details() {
            let _ = match value {
                Value::String(text) => write!(line, " {name}={text}"),
                other => write!(line, " {name}={other}"),
            };
        }
        match &self.fields {
            None => {}
            Some(Ok(fields)) => {
                for (name, value) in fields {
                    let _ = write!(line, " {name}={}", quote_if_needed(value));
                }
            }
            Some(Err(why)) => {
                let _ = write!(line, " (cannot decode the field block: {why})");
            }
        }
        line
    }

    /// Formats the frame as a JSON object.
    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({
            "type": self.name(),
            "flags": self.flags,
            "stream": self.stream,
            "length": self.payload.len(),
            "payload": to_hex(&self.payload),
        });
        for flag in self.flag_names() {
            value[flag] = Value::Bool(true);
        }
        for (name, detail) in self.details() {
            value[name] = detail;
        }
        match &self.fields {
            None => {}
            Some(Ok(fields)) => value["fields"] = json!(fields),
            Some(Err(why)) => value["undecodable"] = json!(why),
        }
        value
    }

    fn details(&self) -> Vec<(String, Value)> {
        let mut details = Vec::new();
        let mut add = |name: &str, value: Value| details.push((name.to_owned(), value));
        let code_json = |code: u32| {
            name_of(&ERROR_CODES, code)
                .map_or_else(|| json!(format!("{code:#x}")), |name| json!(name))
        };
        match self.kind {
            SETTINGS => {
                for (id, value) in self.parse_settings() {
                    let name = name_of(&SETTINGS_NAMES, id)
                        .map_or_else(|| format!("{id:#x}"), str::to_owned);
                    add(&name, json!(value));
                }
            }
            RST_STREAM | GOAWAY => {
                if self.kind == GOAWAY {
                    add("last", json!(self.u32_at(0)));
                }
                if let Some(number) = self.error_code() {
                    add("code", code_json(number));
                }
                if let Some(text) = self.payload.get(8..).filter(|text| !text.is_empty()) {
                    add("debug", json!(quote_if_needed(&String::from_utf8_lossy(text))));
                }
            }
            WINDOW_UPDATE => add("by", json!(self.u32_at(0))),
            PING => add("opaque", json!(to_hex(&self.payload))),

            PUSH_PROMISE => add("promised", json!(self.u32_at(0))),
            PRIORITY_UPDATE => {
                add("of", json!(self.u32_at(0)));
                add(
                    "value",
                    json!(quote_if_needed(&String::from_utf8_lossy(
                        self.payload.get(4..).unwrap_or_default()
                    ))),
                );
            }
            MIGRATE => {
                add("cid", json!(to_hex(self.payload.get(..12).unwrap_or_default())));
                add("to", json!(self.u32_at(12)));
            }
            JOIN if self.has_flag(REFUSED) => add("reason", json!(self.payload.first())),
            HEADERS | CONTINUATION => {}
            _ => add("data", json!(excerpt(&self.payload))),
        }
        details
    }

    /// Returns whether the frame matches a script's pattern.
    pub(super) fn matches(&self, pattern: &FramePattern) -> bool {
        let fields = match &self.fields {
            Some(Ok(fields)) => fields.as_slice(),
            _ => &[],
        };
        let settings = self.parse_settings();
        let has_field = |(name, value): &(Vec<u8>, Vec<u8>)| match self.kind {
            SETTINGS => settings.iter().any(|(id, actual)| {
                let is_named = name_of(&SETTINGS_NAMES, *id)
                    .is_some_and(|known| known.as_bytes() == name)
                    || parse_number(name) == Ok(u32::from(*id));
                is_named && actual.to_string().as_bytes() == value
            }),
            WINDOW_UPDATE => {
                name == b"by" && self.u32_at(0).is_some_and(|by| by.to_string().as_bytes() == value)
            }
            GOAWAY => {
                name == b"last"
                    && self.u32_at(0).is_some_and(|last| last.to_string().as_bytes() == value)
            }
            _ => fields.iter().any(|(n, v)| n.as_bytes() == name && v.as_bytes() == value),
        };
        pattern.kind.is_none_or(|kind| kind == self.kind)
            && pattern.stream.is_none_or(|stream| stream == self.stream)
            && self.flags & pattern.flags == pattern.flags
            && pattern.code.is_none_or(|code| self.error_code() == Some(code))
            && pattern.fields.iter().all(has_field)
            && pattern.text.as_ref().is_none_or(|text| contains(&self.payload, text))
    }
}

fn contains(payload: &[u8], text: &[u8]) -> bool {
    text.is_empty() || payload.windows(text.len()).any(|window| window == text)
}

/// Formats bytes in hexadecimal.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn excerpt(bytes: &[u8]) -> String {
    let prefix = bytes.get(..MAX_EXCERPT_BYTES).unwrap_or(bytes);
    let ellipsis = if bytes.len() > MAX_EXCERPT_BYTES { "..." } else { "" };
    let is_text = std::str::from_utf8(prefix).is_ok_and(|text| !text.contains('\0'));
    if is_text {
        format!("{}{ellipsis}", quote_if_needed(&String::from_utf8_lossy(prefix)))
    } else {
        format!("{}{ellipsis}", to_hex(prefix))
    }
}

/// Returns the text on one line, quoted if it is empty or holds spaces, quotes or control characters.
fn quote_if_needed(text: &str) -> String {
    let is_plain =
        !text.is_empty() && text.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '"');
    if is_plain { text.to_owned() } else { format!("{text:?}") }
}

/// Returns the field block fragment of a payload.
pub(super) fn fragment(kind: u8, flags: u8, payload: &[u8]) -> &[u8] {
    let mut rest = payload;
    if flags & PADDED != 0 && kind != CONTINUATION {
        let pad = rest.first().copied().map_or(0, usize::from);
        rest = rest.get(1..).unwrap_or_default();
        rest = rest.get(..rest.len().saturating_sub(pad)).unwrap_or_default();
    }
    let skipped_bytes = match kind {
        PUSH_PROMISE => 4,
        HEADERS if flags & wire::PRIORITY_FLAG != 0 => 5,
        _ => 0,
    };
    rest.get(skipped_bytes..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Frame {
        Frame { kind, flags, stream, payload: payload.to_vec(), fields: None }
    }

    #[test]
    fn frames_are_formatted_as_one_line() {
        let line =
            |kind, flags, stream, payload: &[u8]| frame(kind, flags, stream, payload).to_line();
        assert_eq!(line(SETTINGS, 1, 0, b""), "settings stream=0 length=0 ack");
        assert_eq!(
            line(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64\xf5\xe1\0\0\0\x10\x0a\x0a\0\0\0\0"),
            "settings stream=0 length=18 max_concurrent_streams=100 smig=16 0xa0a=0"
        );
        assert_eq!(line(RST_STREAM, 0, 1, b"\0\0\0\x08"), "rst stream=1 length=4 code=CANCEL");
        assert_eq!(
            line(GOAWAY, 0, 0, b"\0\0\0\x05\0\0\0\x01why not"),
            "goaway stream=0 length=15 last=5 code=PROTOCOL_ERROR debug=\"why not\""
        );
        assert_eq!(line(DATA, 1, 1, b"hi there"), "data stream=1 length=8 end data=\"hi there\"");
        assert_eq!(line(DATA, 0, 1, &[0xff, 0]), "data stream=1 length=2 data=ff00");
        assert_eq!(line(0xee, 0, 1, b""), "0xee stream=1 length=0 data=\"\"");
    }

    #[test]
    fn settings_are_matched_by_name_and_by_identifier() {
        let settings = frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64\x0a\x0a\0\0\0\x07");
        for (name, value, is_match) in [
            ("max_concurrent_streams", "100", true),
            ("0x3", "100", true),
            ("3", "100", true),
            ("0x3", "101", false),
            ("0x4", "100", false),
            ("0xa0a", "7", true),
        ] {
            let fields = vec![(name.into(), value.into())];
            let pattern = FramePattern { fields, ..FramePattern::default() };
            assert_eq!(settings.matches(&pattern), is_match, "{name}={value}");
        }
    }

    #[test]
    fn truncated_payloads_do_not_panic() {
        for kind in 0..=u8::MAX {
            for length in 0..20 {
                let frame = frame(kind, 0xff, 1, &vec![0xff; length]);
                assert!(frame.to_line().contains("length="));
                assert!(frame.to_json().is_object());
                let _ = fragment(kind, 0xff, &frame.payload);
            }
        }
    }
}
