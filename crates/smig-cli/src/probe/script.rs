//! Parses a script into steps. Faults are reported with their line number before anything is sent.

use std::time::Duration;

use super::command;
use super::tokenizer::{self, Token, parse_number};
use super::wire::{self, ERROR_CODES, FRAME_TYPES};
use smig_settings::value::parse_time;

/// A line with a command.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Action {
    Send(Vec<u8>),
    Sleep(Duration),
    /// Reads until a matching frame arrives.
    Wait(Expectation),
    /// The next frame must match.
    Expect(Expectation),
    /// Closes the sending side; the peer may go on.
    Finish,
    /// Closes the connection: nothing can be received either.
    Close,
}

/// Event that a script waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The peer closes the connection.
    End,
    /// Nothing arrives for this long.
    Silence(Duration),
    Frame(FramePattern),
}

/// Properties of a frame; unset ones match anything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FramePattern {
    pub(super) kind: Option<u8>,
    pub(super) stream: Option<u32>,
    /// Flags that must be set.
    pub(super) flags: u8,
    pub(super) code: Option<u32>,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes that the payload must contain.
    pub(super) text: Option<Vec<u8>>,
}

/// Parses a script.
///
/// # Errors
/// Every line that cannot be parsed, or that needs what an earlier line has closed: `NAME:LINE: why`.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let action_result = tokenizer::tokenize(line).and_then(|words| match words.split_first() {
            None => Ok(None),
            Some((command, rest)) => {
                let action = parse_action(command, rest)?;
                check_open(&steps, &action)?;
                Ok(Some(action))
            }
        });
        match action_result {
            Ok(None) => {}
            Ok(Some(action)) => {
                let text = line.trim().to_owned();
                steps.push(Step { line: line_number, text, action });
            }
            Err(why) => faults.push(format!("{name}:{line_number}: {why}")),
        }
    }
    if faults.is_empty() { Ok(steps) } else { Err(faults.join("\n")) }
}

/// Checks that no earlier step has closed what `action` needs.
fn check_open(earlier: &[Step], action: &Action) -> Result<(), String> {
    let (sends, receives) = match action {
        Action::Send(_) | Action::Finish => (true, false),
        Action::Wait(_) | Action::Expect(_) => (false, true),
        Action::Sleep(_) | Action::Close => (false, false),
    };
    for step in earlier {
        let line = step.line;
        match step.action {
            Action::Close if sends || receives => {
                return Err(format!("this script has closed the connection, in line {line}"));
            }
            Action::Finish if sends => {
                return Err(format!("this script has closed the sending side, in line {line}"));
            }
            Action::Close
            | Action::Finish
            | Action::Send(_)
            | Action::Sleep(_)
            | Action::Wait(_)
            | Action::Expect(_) => {}
        }
    }
    Ok(())
}

fn parse_action(command: &Token, rest: &[Token]) -> Result<Action, String> {
    let name = command.to_text();
    match name.as_str() {
        "sleep" => Ok(Action::Sleep(parse_time_argument(rest)?)),
        "wait" => parse_expectation(rest).map(Action::Wait),
        "expect" => parse_expectation(rest).map(Action::Expect),
        "finish" => Ok(Action::Finish),
        "close" => Ok(Action::Close),
        "preface" => Ok(Action::Send(wire::PREFACE.to_vec())),
        "raw" => command::parse_bytes(rest).map(Action::Send),
        _ => command::parse_frame(&name, rest).map(|frame| Action::Send(frame.encode())),
    }
}

fn parse_time_argument(rest: &[Token]) -> Result<Duration, String> {
    let [word] = rest else { return Err("expected a time, such as 100ms".to_owned()) };
    parse_time(&word.to_text())
}

fn parse_expectation(rest: &[Token]) -> Result<Expectation, String> {
    let Some((subject, rest)) = rest.split_first() else {
        return Err("expected a frame type, any, end, or silence TIME".to_owned());
    };
    if subject.is_word("end") || subject.is_word("close") {
        return Ok(Expectation::End);
    }
    if subject.is_word("silence") {
        return parse_time_argument(rest).map(Expectation::Silence);
    }
    let mut pattern = FramePattern::default();
    if !subject.is_word("any") {
        pattern.kind = Some(parse_frame_type(&subject.text)?);
    }
    for word in rest {
        match word.key_value() {
            Some((b"stream", value)) => pattern.stream = Some(parse_number(value)?),
            Some((b"code", value)) => pattern.code = Some(parse_error_code(value)?),
            Some((b"flags", value)) => {
                pattern.flags |=
                    u8::try_from(parse_number(value)?).map_err(|_| "flags: more than 255")?;
            }
            Some((name, value)) => pattern.fields.push((name.to_vec(), value.to_vec())),
            None if word.is_word("end") => pattern.flags |= wire::END_STREAM,
            None if word.is_word("ack") => {
                pattern.flags |= match pattern.kind {
                    Some(wire::MIGRATE | wire::JOIN) => wire::SMIG_ACK,
                    _ => wire::ACK,
                };
            }
            None => pattern.text = Some(word.text.clone()),
        }
    }
    Ok(Expectation::Frame(pattern))
}

/// Parses a frame type, given by name or number.
pub(super) fn parse_frame_type(word: &[u8]) -> Result<u8, String> {
    let name = String::from_utf8_lossy(word);
    let known_type = FRAME_TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
    if let Some((_, kind)) = known_type {
        return Ok(*kind);
    }
    let number = parse_number(word).ok().and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| {
        let names: Vec<_> = FRAME_TYPES.iter().map(|(name, _)| *name).collect();
        format!("unknown frame type {name:?}; use a number or {}", names.join(", "))
    })
}

/// Parses an error code, given by name or number.
pub(super) fn parse_error_code(value: &[u8]) -> Result<u32, String> {
    let name = String::from_utf8_lossy(value);
    match ERROR_CODES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) {
        Some((_, code)) => Ok(*code),
        None => parse_number(value).map_err(|_| {
            format!("unknown error code {name:?}; use a name such as CANCEL, or a number")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_lines() {
        let error = parse("s", "ping\n\nsleep\nbogus\nexpect nothing-known\n").unwrap_err();
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines[0], "s:3: expected a time, such as 100ms");
        assert!(lines[1].starts_with("s:4: unknown command \"bogus\""), "{error}");
        assert!(lines[2].starts_with("s:5: unknown frame type \"nothing-known\""), "{error}");
    }

    #[test]
    fn nothing_needs_what_the_script_has_closed() {
        for (script, fault) in [
            ("finish\nping", "s:2: this script has closed the sending side, in line 1"),
            ("finish\n\nfinish", "s:3: this script has closed the sending side, in line 1"),
            ("close\nraw 00", "s:2: this script has closed the connection, in line 1"),
            ("ping\nclose\nwait end", "s:3: this script has closed the connection, in line 2"),
            ("close\nexpect any", "s:2: this script has closed the connection, in line 1"),
        ] {
            assert_eq!(parse("s", script).unwrap_err(), fault);
        }
        for script in ["finish\nwait end\nsleep 1ms\nclose", "close\nsleep 1ms\nclose"] {
            parse("s", script).unwrap();
        }
    }

    #[test]
    fn expectations_are_parsed() {
        let steps =
            parse("s", "wait headers stream=1 :status=200 end\nexpect goaway code=CANCEL").unwrap();
        let Action::Wait(Expectation::Frame(pattern)) = &steps[0].action else {
            panic!("{steps:?}")
        };
        assert_eq!(pattern.kind, Some(wire::HEADERS));
        assert_eq!(pattern.flags, wire::END_STREAM);
        assert_eq!(pattern.fields, [(b":status".to_vec(), b"200".to_vec())]);
        let Action::Expect(Expectation::Frame(pattern)) = &steps[1].action else {
            panic!("{steps:?}")
        };
        assert_eq!(pattern.code, Some(8));
    }
}
