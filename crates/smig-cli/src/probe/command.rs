//! Commands that send a frame: parses a script line into the frame.

use super::script::{parse_error_code, parse_frame_type};
use super::tokenizer::{Quoting, Token, parse_hex, parse_number};
use super::wire::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FRAME_TYPES, GOAWAY, HEADERS, JOIN,
    MIGRATE, PADDED, PING, PRIORITY, PRIORITY_FLAG, PRIORITY_UPDATE, PUSH_PROMISE, REFUSED,
    RST_STREAM, SETTINGS, SETTINGS_NAMES, SMIG_ACK, ScriptFrame, WINDOW_UPDATE,
};

/// Words of a line that are not parsed yet; words that remain at the end are an error.
struct RemainingTokens(Vec<Token>);

impl RemainingTokens {
    /// Removes `key=VALUE` and returns the value.
    fn take_value(&mut self, key: &str) -> Option<Vec<u8>> {
        let has_key =
            |word: &Token| word.key_value().is_some_and(|(name, _)| name == key.as_bytes());
        let at = self.0.iter().position(has_key)?;
        self.0.remove(at).key_value().map(|(_, value)| value.to_vec())
    }

    fn take_number(&mut self, key: &str) -> Result<Option<u32>, String> {
        self.take_value(key)
            .map(|value| parse_number(&value).map_err(|why| format!("{key}: {why}")))
            .transpose()
    }

    fn take_byte(&mut self, key: &str) -> Result<Option<u8>, String> {
        self.take_number(key)?
            .map(|value| u8::try_from(value).map_err(|_| format!("{key}: more than 255")))
            .transpose()
    }

    fn take_hex(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        self.take_value(key)
            .map(|value| parse_hex(&value).map_err(|why| format!("{key}: {why}")))
            .transpose()
    }

    /// Removes a bare word and returns its flag; 0 if the word is absent.
    fn take_flag(&mut self, word: &str, flag: u8) -> u8 {
        match self.0.iter().position(|found| found.is_word(word)) {
            Some(at) => {
                self.0.remove(at);
                flag
            }
            None => 0,
        }
    }

    /// Removes quoted text and returns it.
    fn take_text(&mut self) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|word| word.quoting == Quoting::Quoted)?;
        Some(self.0.remove(at).text)
    }

    /// Removes the header fields: every remaining `name=value`. A leading `+` marks a field whose
    /// name has another meaning here.
    fn take_fields(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let words = std::mem::take(&mut self.0);
        let (fields, others) = words.into_iter().partition(|word| word.key_value().is_some());
        self.0 = others;
        let fields: Vec<Token> = fields;
        let split = |word: &Token| {
            let (name, value) = word.key_value().unwrap_or_default();
            (name.strip_prefix(b"+").unwrap_or(name).to_vec(), value.to_vec())
        };
        fields.iter().map(split).collect()
    }

    /// Removes the remaining words and returns them as bytes.
    fn take_bytes(&mut self) -> Result<Vec<u8>, String> {
        parse_bytes(&std::mem::take(&mut self.0))
    }
}

/// Returns the bytes of hexadecimal words and quoted text.
pub(super) fn parse_bytes(tokens: &[Token]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in tokens {
        match word.quoting {
            Quoting::Quoted => bytes.extend(&word.text),
            Quoting::Bare => bytes.extend(parse_hex(&word.text)?),
        }
    }
    Ok(bytes)
}

/// Builds the frame that a line describes.
pub(super) fn parse_frame(name: &str, tokens: &[Token]) -> Result<ScriptFrame, String> {
    let mut rest = RemainingTokens(tokens.to_vec());
    let mut frame = ScriptFrame::default();
    let stream = rest.take_number("stream")?;
    // Explicit flags take precedence over those that the command would set.
    let flags = rest.take_byte("flags")?;
    frame.length = rest.take_number("length")?;
    frame.stream = stream.unwrap_or(0);
    let known_type = FRAME_TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    match known_type {
        Some(kind) => {
            frame.kind = kind;
            apply_arguments(&mut frame, &mut rest, stream)?;
        }
        None if name == "frame" => {
            let word = rest.take_value("type").ok_or("type=... is missing")?;
            frame.kind = parse_frame_type(&word)?;
            frame.payload = rest.take_bytes()?;
        }
        None => return Err(unknown_command(name)),
    }
    frame.flags = flags.unwrap_or(frame.flags);
    match rest.0.first() {
        Some(word) => Err(format!("{name}: unexpected {:?}", word.to_text())),
        None => Ok(frame),
    }
}

fn unknown_command(name: &str) -> String {
    let mut names: Vec<_> = FRAME_TYPES.iter().map(|(name, _)| *name).collect();
    names.extend(["frame", "raw", "preface", "sleep", "wait", "expect", "finish", "close"]);
    match smig_settings::suggest(name, names.iter().copied()) {
        Some(known) => format!("unknown command {name:?}; did you mean {known}?"),
        None => format!("unknown command {name:?}; known commands: {}", names.join(", ")),
    }
}

fn apply_arguments(
    frame: &mut ScriptFrame,
    rest: &mut RemainingTokens,
    stream: Option<u32>,
) -> Result<(), String> {
    if stream.is_none() && needs_stream(frame.kind) {
        return Err("stream=N is missing".to_owned());
    }
    match frame.kind {
        DATA => {
            frame.flags = rest.take_flag("end", END_STREAM);
            frame.payload = data_payload(rest)?;
            add_padding(frame, rest)?;
        }
        HEADERS | CONTINUATION | PUSH_PROMISE => apply_headers(frame, rest)?,
        PRIORITY => frame.payload = priority_payload(rest)?,
        RST_STREAM => {
            let value = rest.take_value("code").ok_or("code=... is missing")?;
            frame.payload = parse_error_code(&value)?.to_be_bytes().to_vec();
        }
        SETTINGS => {
            frame.flags = rest.take_flag("ack", ACK);
            frame.payload = settings_payload(rest)?;
        }
        PING => {
            frame.flags = rest.take_flag("ack", ACK);
            frame.payload = match rest.take_text() {
                Some(text) => text,
                None if rest.0.is_empty() => vec![0; 8],
                None => rest.take_bytes()?,
            };
        }
        GOAWAY => {
            let last = rest.take_number("last")?.unwrap_or(0);
            let code = rest
                .take_value("code")
                .map(|value| parse_error_code(&value))
                .transpose()?
                .unwrap_or(0);
            frame.payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
            frame.payload.extend(rest.take_text().unwrap_or_default());
        }
        WINDOW_UPDATE => {
            let by = rest.take_number("by")?.ok_or("by=N is missing")?;
            frame.payload = by.to_be_bytes().to_vec();
        }
        PRIORITY_UPDATE => {
            // The frame is sent on stream 0 (RFC 9218 section 7.1).
            frame.payload = frame.stream.to_be_bytes().to_vec();
            frame.stream = rest.take_number("on")?.unwrap_or(0);
            frame
                .payload
                .extend(rest.take_text().ok_or("the value is missing, such as \"u=1, i\"")?);
        }
        MIGRATE => apply_migrate(frame, rest)?,
        JOIN => apply_join(frame, rest)?,
        _ => {}
    }
    Ok(())
}

const fn needs_stream(kind: u8) -> bool {
    !matches!(kind, SETTINGS | PING | GOAWAY | JOIN | WINDOW_UPDATE)
}

fn data_payload(rest: &mut RemainingTokens) -> Result<Vec<u8>, String> {
    if let Some(size) = rest.take_number("size")? {
        return Ok(vec![b'.'; size as usize]);
    }
    if let Some(bytes) = rest.take_hex("hex")? {
        return Ok(bytes);
    }
    Ok(rest.take_text().unwrap_or_default())
}

fn add_padding(frame: &mut ScriptFrame, rest: &mut RemainingTokens) -> Result<(), String> {
    let Some(pad) = rest.take_byte("pad")? else { return Ok(()) };
    frame.flags |= PADDED;
    frame.payload.insert(0, pad);
    frame.payload.extend(vec![0; usize::from(pad)]);
    Ok(())
}

fn apply_headers(frame: &mut ScriptFrame, rest: &mut RemainingTokens) -> Result<(), String> {
    if frame.kind == HEADERS {
        frame.flags |= rest.take_flag("end", END_STREAM);
    }
    // `open`: CONTINUATION frames follow.
    if rest.take_flag("open", END_HEADERS) == 0 {
        frame.flags |= END_HEADERS;
    }
    let mut payload = Vec::new();
    if frame.kind == PUSH_PROMISE {
        payload.extend(rest.take_number("promised")?.ok_or("promised=N is missing")?.to_be_bytes());
    }
    if frame.kind == HEADERS && rest.take_flag("priority", PRIORITY_FLAG) != 0 {
        frame.flags |= PRIORITY_FLAG;
        payload.extend(priority_payload(rest)?);
    }
    let padding = rest.take_value("pad");
    match rest.take_hex("block")? {
        Some(block) => payload.extend(block),
        None => payload.extend(wire::encode_fields(&rest.take_fields())),
    }
    frame.payload = payload;
    if let Some(padding) = padding {
        let pad = u8::try_from(parse_number(&padding)?).map_err(|_| "pad: more than 255")?;
        frame.flags |= PADDED;
        frame.payload.insert(0, pad);
        frame.payload.extend(vec![0; usize::from(pad)]);
    }
    Ok(())
}

fn priority_payload(rest: &mut RemainingTokens) -> Result<Vec<u8>, String> {
    let dependency =
        rest.take_number("dep")?.unwrap_or(0) | (u32::from(rest.take_flag("exclusive", 1)) << 31);
    let weight = rest.take_byte("weight")?.unwrap_or(15);
    let mut payload = dependency.to_be_bytes().to_vec();
    payload.push(weight);
    Ok(payload)
}

fn settings_payload(rest: &mut RemainingTokens) -> Result<Vec<u8>, String> {
    let mut payload = Vec::new();
    for (name, value) in rest.take_fields() {
        let lower_case_name = String::from_utf8_lossy(&name).to_ascii_lowercase();
        let known_setting = SETTINGS_NAMES.iter().find(|(known, _)| *known == lower_case_name);
        let id = match known_setting {
            Some((_, id)) => *id,
            None => {
                parse_number(&name).ok().and_then(|id| u16::try_from(id).ok()).ok_or_else(|| {
                    let names: Vec<_> = SETTINGS_NAMES.iter().map(|(name, _)| *name).collect();
                    format!(
                        "unknown setting {lower_case_name:?}; use a number or {}",
                        names.join(", ")
                    )
                })?
            }
        };
        payload.extend(id.to_be_bytes());
        payload.extend(parse_number(&value)?.to_be_bytes());
    }
    Ok(payload)
}

fn apply_migrate(frame: &mut ScriptFrame, rest: &mut RemainingTokens) -> Result<(), String> {
    frame.flags = rest.take_flag("ack", SMIG_ACK) | rest.take_flag("end", END_STREAM);
    let cid = rest.take_hex("cid")?.unwrap_or_else(|| vec![0; 12]);
    if cid.len() != 12 {
        return Err(format!("cid: expected 12 bytes in hexadecimal, got {}", cid.len()));
    }
    frame.payload = cid;
    frame.payload.extend(rest.take_number("to")?.unwrap_or(0).to_be_bytes());
    Ok(())
}

fn apply_join(frame: &mut ScriptFrame, rest: &mut RemainingTokens) -> Result<(), String> {
    if let Some(reason) = rest.take_byte("refused")? {
        frame.flags = REFUSED;
        frame.payload = vec![reason];
        return Ok(());
    }
    frame.flags = rest.take_flag("ack", SMIG_ACK);
    frame.payload = rest.take_hex("nonce")?.unwrap_or_else(|| vec![0; 16]);
    frame.payload.extend(rest.take_hex("mac")?.unwrap_or_else(|| vec![0; 32]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::tokenize;
    use super::*;

    fn parse(line: &str) -> Result<ScriptFrame, String> {
        let tokens = tokenize(line).unwrap();
        parse_frame(&tokens[0].to_text(), &tokens[1..])
    }

    #[test]
    fn frames_of_every_type_are_encoded() {
        let bytes = |line: &str| parse(line).unwrap().encode();
        assert_eq!(bytes("settings"), b"\0\0\0\x04\0\0\0\0\0");
        assert_eq!(bytes("settings ack"), b"\0\0\0\x04\x01\0\0\0\0");
        assert_eq!(bytes("settings 0x3=100"), b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64");
        assert_eq!(bytes("settings smig=4"), b"\0\0\x06\x04\0\0\0\0\0\xf5\xe1\0\0\0\x04");
        assert_eq!(bytes("data stream=1 end \"hi\""), b"\0\0\x02\0\x01\0\0\0\x01hi");
        assert_eq!(bytes("data stream=1 pad=2 \"hi\""), b"\0\0\x05\0\x08\0\0\0\x01\x02hi\0\0");
        assert_eq!(
            bytes("priority stream=3 dep=1 weight=7 exclusive"),
            b"\0\0\x05\x02\0\0\0\0\x03\x80\0\0\x01\x07"
        );
        assert_eq!(
            bytes("push_promise stream=1 promised=2 a=b"),
            b"\0\0\x09\x05\x04\0\0\0\x01\0\0\0\x02\x10\x01a\x01b"
        );
        assert_eq!(bytes("continuation stream=1 a=b"), b"\0\0\x05\x09\x04\0\0\0\x01\x10\x01a\x01b");
        assert_eq!(bytes("rst stream=3 code=CANCEL"), b"\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08");
        assert_eq!(bytes("ping"), b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes("ping ack \"12345678\""), b"\0\0\x08\x06\x01\0\0\0\x0012345678");
        assert_eq!(bytes("window by=1"), b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01");
        assert_eq!(
            bytes("goaway last=5 code=0x1 \"x\""),
            b"\0\0\x09\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x01x"
        );
        assert_eq!(
            bytes("priority_update stream=1 \"u=1\""),
            b"\0\0\x07\x10\0\0\0\0\0\0\0\0\x01u=1"
        );
        assert_eq!(
            bytes("migrate stream=1"),
            b"\0\0\x10\xf5\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        );
        assert_eq!(bytes("join refused=4"), b"\0\0\x01\xf6\x04\0\0\0\0\x04");
        assert_eq!(
            bytes("frame type=0xee flags=0xff stream=7 01 \"a\""),
            b"\0\0\x02\xee\xff\0\0\0\x07\x01a"
        );
        assert_eq!(bytes("headers stream=1 end a=b"), b"\0\0\x05\x01\x05\0\0\0\x01\x10\x01a\x01b");
        assert_eq!(bytes("headers stream=1 open +stream=b")[4], 0);
        assert_eq!(bytes("headers stream=1 block=82 end"), b"\0\0\x01\x01\x05\0\0\0\x01\x82");
        assert_eq!(bytes("ping length=9")[..3], [0, 0, 9]);
        assert_eq!(bytes("headers stream=1 flags=0")[4], 0);
    }

    #[test]
    fn errors_name_the_invalid_argument() {
        let error = |line: &str| parse(line).unwrap_err();
        assert_eq!(error("data \"x\""), "stream=N is missing");
        assert_eq!(error("rst stream=1"), "code=... is missing");
        assert_eq!(error("ping stream=x"), "stream: \"x\" is not a number from 0 to 4294967295");
        assert_eq!(error("data stream=1 wat"), "data: unexpected \"wat\"");
        assert_eq!(error("header stream=1"), "unknown command \"header\"; did you mean headers?");
        assert!(error("settings bogus=1").starts_with("unknown setting \"bogus\""));
        assert!(error("rst stream=1 code=OOPS").starts_with("unknown error code \"OOPS\""));
        assert!(error("migrate stream=1 cid=00").starts_with("cid: expected 12 bytes"));
    }
}
