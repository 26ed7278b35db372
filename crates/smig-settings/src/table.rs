//! The settings of the server, the policy and the extension.

use smig::{MoveMode, Offers};

use crate::entry::last;
use crate::model::Extension;
use crate::value::{parse_count, parse_size, parse_switch};
use crate::{Kind, Setting, Shared, count, size, time, word};

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

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: Shared>() -> Vec<Setting<T>> {
    vec![
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
        count!(
            "server.max_connections",
            "max-connections",
            max_connections,
            "Connections open at once; further ones are closed"
        ),
        count!(
            "server.max_connections_per_client",
            "max-connections-per-client",
            max_connections_per_client,
            "The same for one address (of IPv6 one /64): lower it where no balancer stands before"
        ),
        time!(
            "server.handshake_timeout",
            "handshake-timeout",
            handshake_timeout,
            "Time for a TLS handshake"
        ),
        time!(
            "server.idle_timeout",
            "idle-timeout",
            idle_timeout,
            "How long a client without a request may stay connected"
        ),
        time!(
            "server.body_timeout",
            "body-timeout",
            body_timeout,
            "A request that is not answered yet is reset if less than 1 KB of its body comes in this time"
        ),
        time!(
            "server.drain_timeout",
            "drain-timeout",
            drain_timeout,
            "Time for running transfers after SIGTERM or SIGINT"
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
        count!(
            "policy.tunnel_concurrent",
            "tunnel-concurrent",
            rules.policy.tunnel_concurrent,
            "The same for tunnels: who comes later would find a tunnel's bytes in the queue"
        ),
        size!(
            "policy.tunnel_after",
            "tunnel-after",
            rules.policy.tunnel_after,
            "A tunnel moves after this much..."
        ),
        time!(
            "policy.tunnel_time",
            "tunnel-time",
            rules.policy.tunnel_time,
            "...or what the path carries in this time, if less (and min_size at least)..."
        ),
        time!(
            "policy.tunnel_age",
            "tunnel-age",
            rules.policy.tunnel_age,
            "...and not before this age"
        ),
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
        Setting {
            key: "policy.pace_unmoved",
            flag: "pace-unmoved",
            kind: Kind::Switch,
            value: "BOOL",
            help: "Whether connections that nothing was moved to are kept near that rate as well, what is \
            small with what is big: for comparisons",
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
                    return Err(
                        "0 would switch the extension off; say smig.enabled = false".to_owned()
                    );
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
    ]
}
