//! The settings of the server, the policy and the extension: key, flag, kind, words for people, and the field they set.

use std::fmt::Display;

use smig::{MoveMode, Offers};

use super::model::{AccessLog, Extension, Wire, parse_listen, show_list, show_listen, show_text};
use super::value::{
    Kind, parse_count, parse_size, parse_switch, parse_time, parse_word, show_size, show_time,
    show_word,
};
use super::{Setting, Settings};

/// The last of a setting's values: a flag that is repeated counts as it was said last.
pub(super) fn last(values: &[String]) -> &str {
    values.last().map_or("", String::as_str)
}

/// A number that fits its field.
pub(super) fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is too big"))
}

/// A field as a number.
pub(super) fn wide<T: TryInto<u64>>(number: T) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

macro_rules! size {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        Setting {
            key: $key, flag: $flag, kind: Kind::Size, value: "BYTES", help: $help,
            show: |s| show_size(super::table::wide(s.$($field).+)),
            set: |s, v| {
                s.$($field).+ = super::table::narrow(parse_size(super::table::last(v))?)?;
                Ok(())
            },
        }
    };
}
macro_rules! count {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        Setting {
            key: $key, flag: $flag, kind: Kind::Count, value: "N", help: $help,
            show: |s| s.$($field).+.to_string(),
            set: |s, v| {
                s.$($field).+ = parse_count(super::table::last(v))?;
                Ok(())
            },
        }
    };
}
macro_rules! time {
    ($key:literal, $flag:literal, $($field:ident).+, $help:literal) => {
        Setting {
            key: $key, flag: $flag, kind: Kind::Time, value: "TIME", help: $help,
            show: |s| show_time(s.$($field).+),
            set: |s, v| {
                s.$($field).+ = parse_time(super::table::last(v))?;
                Ok(())
            },
        }
    };
}
macro_rules! word {
    ($key:literal, $flag:literal, $value:literal, $words:expr, $($field:ident).+, $help:literal) => {
        Setting {
            key: $key, flag: $flag, kind: Kind::Text, value: $value, help: $help,
            show: |s| show_word(&s.$($field).+, &$words),
            set: |s, v| {
                s.$($field).+ = parse_word(super::table::last(v), &$words)?;
                Ok(())
            },
        }
    };
}
pub(super) use {count, size, time, word};

const ACCESS_LOG: [(&str, AccessLog); 3] =
    [("off", AccessLog::Off), ("text", AccessLog::Text), ("json", AccessLog::Json)];
const OFFERS: [(&str, Offers); 2] =
    [("when-no-spare", Offers::WhenNoSpare), ("never", Offers::Never)];

fn parse_mode(text: &str) -> Result<MoveMode, String> {
    match text {
        "policy" => Ok(MoveMode::Policy),
        "never" => Ok(MoveMode::Never),
        _ => {
            let offsets = text.strip_prefix("at:").ok_or_else(|| {
                format!("{text:?} is none of policy, never, at:OFFSET[,OFFSET...]")
            })?;
            let offsets: Result<Vec<u64>, _> = offsets.split(',').map(parse_size).collect();
            let mut offsets = offsets?;
            offsets.sort_unstable();
            Ok(MoveMode::At(offsets))
        }
    }
}

fn show_mode(mode: &MoveMode) -> String {
    match mode {
        MoveMode::Policy => "\"policy\"".to_owned(),
        MoveMode::Never => "\"never\"".to_owned(),
        MoveMode::At(offsets) => {
            let offsets: Vec<_> = offsets.iter().map(u64::to_string).collect();
            format!("\"at:{}\"", offsets.join(","))
        }
    }
}

/// Number or nothing: 0 leaves the system's value.
pub(super) fn optional<T: TryFrom<u64>>(values: &[String]) -> Result<Option<T>, String> {
    match parse_size(last(values))? {
        0 => Ok(None),
        number => narrow(number).map(Some),
    }
}

pub(super) fn or_zero<T: Display + Copy>(number: Option<T>) -> String {
    number.map_or_else(|| "0".to_owned(), |number| number.to_string())
}

fn switch_wire(settings: &mut Settings, values: &[String], on: Wire) -> Result<(), String> {
    let is_on = parse_switch(last(values))?;
    settings.wire = match (is_on, settings.wire) {
        (true, Wire::TrustedCleartext) => Wire::TrustedCleartext,
        (true, _) => on,
        (false, wire) if wire == on => Wire::Tls,
        (false, wire) => wire,
    };
    Ok(())
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        key: "server.root",
        flag: "root",
        kind: Kind::Text,
        value: "DIR",
        help: "The folder, if the command line names none",
        show: |s| {
            show_text(&s.root.as_ref().map_or_else(|| "./public".into(), |p| p.to_string_lossy()))
        },
        set: |s, v| {
            s.root = Some(last(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.listen",
        flag: "listen",
        kind: Kind::List,
        value: "ADDR:PORT",
        help: "Where to listen; several are possible, port 0 takes any free one, localhost:PORT is both loopback addresses",
        show: |s| show_listen(&s.listen),
        set: |s, v| {
            s.listen = parse_listen(v)?;
            Ok(())
        },
    },
    Setting {
        key: "server.cert",
        flag: "cert",
        kind: Kind::Text,
        value: "FILE",
        help: "Certificate chain, PEM; without it a development certificate is made",
        show: |s| {
            show_text(
                &s.certificate.as_ref().map_or_else(|| "cert.pem".into(), |p| p.to_string_lossy()),
            )
        },
        set: |s, v| {
            s.certificate = Some(last(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.key",
        flag: "key",
        kind: Kind::Text,
        value: "FILE",
        help: "The certificate's private key, PEM",
        show: |s| {
            show_text(&s.key.as_ref().map_or_else(|| "key.pem".into(), |p| p.to_string_lossy()))
        },
        set: |s, v| {
            s.key = Some(last(v).into());
            Ok(())
        },
    },
    Setting {
        key: "server.host",
        flag: "host",
        kind: Kind::List,
        value: "NAME",
        help: "Further names and addresses for the development certificate, beside localhost, 127.0.0.1 and ::1",
        show: |s| show_list(&s.hosts),
        set: |s, v| {
            s.hosts = v.to_vec();
            Ok(())
        },
    },
    Setting {
        key: "server.workers",
        flag: "workers",
        kind: Kind::Count,
        value: "N",
        help: "Threads; 0: one for each processor",
        show: |s| s.workers.unwrap_or(0).to_string(),
        set: |s, v| {
            s.workers = Some(parse_count(last(v))?).filter(|n| *n > 0);
            Ok(())
        },
    },
    Setting {
        key: "server.cleartext",
        flag: "cleartext",
        kind: Kind::Switch,
        value: "BOOL",
        help: "No TLS: HTTP/1.1, and HTTP/2 with prior knowledge; no stream moves",
        show: |s| (s.wire != Wire::Tls).to_string(),
        set: |s, v| switch_wire(s, v, Wire::Cleartext),
    },
    Setting {
        key: "server.trust_cleartext",
        flag: "trust-cleartext",
        kind: Kind::Switch,
        value: "BOOL",
        help: "No TLS, and streams move nevertheless: for a lab; it protects against nobody on the path",
        show: |s| (s.wire == Wire::TrustedCleartext).to_string(),
        set: |s, v| switch_wire(s, v, Wire::TrustedCleartext),
    },
    count!(
        "server.max_connections",
        "max-connections",
        max_connections,
        "Connections open at once; further ones are closed"
    ),
    time!(
        "server.handshake_timeout",
        "handshake-timeout",
        handshake_timeout,
        "Time for a TLS handshake"
    ),
    time!(
        "server.drain_timeout",
        "drain-timeout",
        drain_timeout,
        "Time for running transfers after SIGTERM or SIGINT"
    ),
    word!(
        "server.access_log",
        "access-log",
        "FORMAT",
        ACCESS_LOG,
        access_log,
        "One line for each request on standard output: off, text or json"
    ),
    Setting {
        key: "policy.migrate",
        flag: "migrate",
        kind: Kind::Text,
        value: "WHEN",
        help: "Who decides that a stream moves: policy, never, or at:OFFSET,... to force moves there (tests)",
        show: |s| show_mode(&s.rules.mode),
        set: |s, v| {
            s.rules.mode = parse_mode(last(v))?;
            Ok(())
        },
    },
    size!(
        "policy.min_size",
        "min-size",
        rules.policy.min_size,
        "A body with less than this left to send stays"
    ),
    count!(
        "policy.min_concurrent",
        "min-concurrent",
        rules.policy.min_concurrent,
        "A stream stays unless this many others are open, or were within the last second"
    ),
    time!(
        "policy.max_blocking",
        "max-blocking",
        rules.policy.max_blocking,
        "A body that takes less time than this at the measured rate stays"
    ),
    size!(
        "policy.unknown_after",
        "unknown-after",
        rules.policy.unknown_after,
        "A body of unknown size moves after this much"
    ),
    size!(
        "policy.tunnel_after",
        "tunnel-after",
        rules.policy.tunnel_after,
        "A tunnel moves after this much..."
    ),
    time!("policy.tunnel_age", "tunnel-age", rules.policy.tunnel_age, "...and not before this age"),
    word!(
        "policy.offers",
        "offers",
        "WHEN",
        OFFERS,
        rules.offers,
        "Whether the client is asked to open a connection to move to: when-no-spare or never"
    ),
    Setting {
        key: "policy.pace_bulk",
        flag: "pace-bulk",
        kind: Kind::Switch,
        value: "BOOL",
        help: "Whether moved streams are kept near the rate that the path is seen to carry; false: as \
            fast as congestion control goes",
        show: |s| s.pace_bulk.to_string(),
        set: |s, v| {
            s.pace_bulk = parse_switch(last(v))?;
            Ok(())
        },
    },
    time!(
        "policy.max_hold",
        "max-hold",
        max_hold,
        "How long one interactive response may hold bulk back; 0: never"
    ),
    Setting {
        key: "smig.enabled",
        flag: "smig",
        kind: Kind::Switch,
        value: "BOOL",
        help: "Whether clients are told that streams can move; false: plain HTTP/2",
        show: |s| (s.extension == Extension::On).to_string(),
        set: |s, v| {
            s.extension = if parse_switch(last(v))? { Extension::On } else { Extension::Off };
            Ok(())
        },
    },
    Setting {
        key: "smig.max_connections",
        flag: "session-connections",
        kind: Kind::Count,
        value: "N",
        help: "Connections of one session at most, 1 to 16",
        show: |s| s.smig.max_connections.to_string(),
        set: |s, v| {
            let number = parse_count(last(v))?;
            if !(1..=smig_proto::MAX_CONNECTIONS).contains(&number) {
                return Err(format!(
                    "{number} is not between 1 and {}",
                    smig_proto::MAX_CONNECTIONS
                ));
            }
            s.smig.max_connections = number;
            Ok(())
        },
    },
    Setting {
        key: "smig.tolerated",
        flag: "tolerated",
        kind: Kind::Count,
        value: "N",
        help: "Moves under way at once in a session, at least 1",
        show: |s| s.smig.tolerated.to_string(),
        set: |s, v| {
            s.smig.tolerated = parse_count(last(v))?;
            if s.smig.tolerated == 0 {
                return Err("0 would switch the extension off; say smig.enabled = false".to_owned());
            }
            Ok(())
        },
    },
    count!("smig.max_moves", "max-moves", smig.max_moves, "Moves of one stream at most"),
    count!(
        "smig.moves_per_second",
        "moves-per-second",
        smig.migrations_per_second,
        "Moves that a client may make each second in a session, sustained"
    ),
    time!(
        "smig.unbound_timeout",
        "unbound-timeout",
        smig.unbound_timeout,
        "How long data may wait on a connection for the move that explains it"
    ),
    time!(
        "smig.answer_timeout",
        "answer-timeout",
        smig.answer_timeout,
        "How long a client may take to answer a move"
    ),
    size!(
        "smig.replay",
        "replay",
        smig.replay_limit,
        "What is kept of a moving stream until the client has answered"
    ),
];
