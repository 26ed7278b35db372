//! The settings of the server, the policy and the extension.

use smig::{MigrationMode, Offers};

use crate::entry::last;
use crate::model::Extension;
use crate::value::{parse_count, parse_size, parse_switch};
use crate::{HasServerSettings, Setting, ValueKind, count, size, time, word};

const OFFERS: [(&str, Offers); 2] =
    [("when-no-spare", Offers::WhenNoSpare), ("never", Offers::Never)];

fn parse_mode(text: &str) -> Result<MigrationMode, String> {
    match text {
        "policy" => Ok(MigrationMode::Policy),
        "never" => Ok(MigrationMode::Never),
        _ => {
            let offsets = text.strip_prefix("at:").ok_or_else(|| {
                format!("{text:?} is not one of policy, never, at:OFFSET[,OFFSET...]")
            })?;
            let offsets: Result<Vec<u64>, _> = offsets.split(',').map(parse_size).collect();
            let mut offsets = offsets?;
            offsets.sort_unstable();
            Ok(MigrationMode::At(offsets))
        }
    }
}

fn show_mode(mode: &MigrationMode) -> String {
    match mode {
        MigrationMode::Policy => "\"policy\"".to_owned(),
        MigrationMode::Never => "\"never\"".to_owned(),
        MigrationMode::At(offsets) => {
            let offsets: Vec<_> = offsets.iter().map(u64::to_string).collect();
            format!("\"at:{}\"", offsets.join(","))
        }
    }
}

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: HasServerSettings>() -> Vec<Setting<T>> {
    vec![
        Setting {
            key: "server.workers",
            flag: "workers",
            kind: ValueKind::Integer,
            value: "N",
            help: "Number of worker threads; 0: one per processor",
            show: |s| s.workers.unwrap_or(0).to_string(),
            set: |s, v| {
                s.workers = Some(parse_count(last(v))?).filter(|n| *n > 0);
                Ok(())
            },
        },
        count!(
            "server.max_connections",
            "max-connections",
            max_connections,
            "Maximum number of open connections; further ones are closed"
        ),
        count!(
            "server.max_connections_per_client",
            "max-connections-per-client",
            max_connections_per_client,
            "Maximum number of open connections per client address (IPv6: /64); lower it if clients connect directly"
        ),
        time!(
            "server.handshake_timeout",
            "handshake-timeout",
            handshake_timeout,
            "Timeout of a TLS handshake"
        ),
        time!(
            "server.idle_timeout",
            "idle-timeout",
            idle_timeout,
            "Close a session that has had no open streams for this long"
        ),
        time!(
            "server.body_timeout",
            "body-timeout",
            body_timeout,
            "Reset a request without a response if less than 1 KB of its body arrives within this time"
        ),
        time!(
            "server.drain_timeout",
            "drain-timeout",
            drain_timeout,
            "How long running transfers may take to finish after SIGTERM or SIGINT"
        ),
        Setting {
            key: "policy.migrate",
            flag: "migrate",
            kind: ValueKind::Text,
            value: "WHEN",
            help: "When streams move: policy, never, or at:OFFSET,... to force moves at these offsets (for tests)",
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
            "Do not move a body with less than this left to send"
        ),
        count!(
            "policy.min_concurrent",
            "min-concurrent",
            rules.policy.min_concurrent,
            "Move a stream only if this many others are open, or were within the last second"
        ),
        time!(
            "policy.max_blocking",
            "max-blocking",
            rules.policy.min_transfer_time,
            "Do not move a body that takes less time than this at the measured rate"
        ),
        size!(
            "policy.unknown_after",
            "unknown-after",
            rules.policy.unknown_length_after,
            "Move a body of unknown length after this many bytes"
        ),
        count!(
            "policy.tunnel_concurrent",
            "tunnel-concurrent",
            rules.policy.tunnel_concurrent,
            "Like min_concurrent, for tunnels; later streams would queue behind a tunnel's bytes"
        ),
        size!(
            "policy.tunnel_after",
            "tunnel-after",
            rules.policy.tunnel_after,
            "Move a tunnel after this many bytes at the latest"
        ),
        time!(
            "policy.tunnel_time",
            "tunnel-time",
            rules.policy.tunnel_time,
            "Move a tunnel after the bytes that the path carries in this time, if fewer (but at least min_size)"
        ),
        time!(
            "policy.tunnel_age",
            "tunnel-age",
            rules.policy.tunnel_age,
            "Do not move a tunnel that is younger than this"
        ),
        word!(
            "policy.offers",
            "offers",
            "WHEN",
            OFFERS,
            rules.offers,
            "When to ask the client for another connection to move to: when-no-spare or never"
        ),
        Setting {
            key: "policy.pace_bulk",
            flag: "pace-bulk",
            kind: ValueKind::Bool,
            value: "BOOL",
            help: "Pace moved streams near the measured rate of the path; false: send as fast as congestion \
            control allows",
            show: |s| s.pace_bulk.to_string(),
            set: |s, v| {
                s.pace_bulk = parse_switch(last(v))?;
                Ok(())
            },
        },
        Setting {
            key: "policy.pace_unmoved",
            flag: "pace-unmoved",
            kind: ValueKind::Bool,
            value: "BOOL",
            help: "Pace connections without moved streams too, small and large bodies alike (for \
            comparisons)",
            show: |s| s.pace_unmoved.to_string(),
            set: |s, v| {
                s.pace_unmoved = parse_switch(last(v))?;
                Ok(())
            },
        },
        time!(
            "policy.max_hold",
            "max-hold",
            max_hold,
            "How long one interactive response may delay bulk data; 0: not at all"
        ),
        Setting {
            key: "smig.enabled",
            flag: "smig",
            kind: ValueKind::Bool,
            value: "BOOL",
            help: "Advertise the SMig extension to clients; false: plain HTTP/2",
            show: |s| (s.extension == Extension::On).to_string(),
            set: |s, v| {
                s.extension = if parse_switch(last(v))? { Extension::On } else { Extension::Off };
                Ok(())
            },
        },
        Setting {
            key: "smig.max_connections",
            flag: "session-connections",
            kind: ValueKind::Integer,
            value: "N",
            help: "Maximum number of connections per session, 1 to 16",
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
            kind: ValueKind::Integer,
            value: "N",
            help: "Maximum number of concurrent moves in a session, at least 1",
            show: |s| s.smig.tolerated.to_string(),
            set: |s, v| {
                s.smig.tolerated = parse_count(last(v))?;
                if s.smig.tolerated == 0 {
                    return Err(
                        "0 would disable the extension; set smig.enabled = false".to_owned()
                    );
                }
                Ok(())
            },
        },
        count!("smig.max_moves", "max-moves", smig.max_moves, "Maximum number of moves per stream"),
        count!(
            "smig.moves_per_second",
            "moves-per-second",
            smig.migrations_per_second,
            "Maximum sustained rate of a client's moves in a session, per second"
        ),
        time!(
            "smig.unbound_timeout",
            "unbound-timeout",
            smig.unbound_timeout,
            "How long data of a moved stream may wait for its MIGRATE frame"
        ),
        time!(
            "smig.answer_timeout",
            "answer-timeout",
            smig.answer_timeout,
            "How long to wait for the client's answer to a move"
        ),
        size!(
            "smig.replay",
            "replay",
            smig.replay_limit,
            "Bytes of a moving stream to keep for resumption until the client answers"
        ),
    ]
}
