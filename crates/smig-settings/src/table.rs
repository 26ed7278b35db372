//! The settings of the server, of migration and of the extension.

use smig::{Connections, MigrationMode, Offers, PacedStreams};

use crate::entry::last_value;
use crate::model::Extension;
use crate::value::{parse_bool, parse_integer, parse_size};
use crate::{HasServerSettings, Setting, ValueKind, integer, size, time, word};

const OFFER_VALUES: [(&str, Offers); 2] =
    [("when-no-spare", Offers::WhenNoSpare), ("never", Offers::Never)];

const CONNECTION_VALUES: [(&str, Connections); 2] =
    [("one", Connections::One), ("adaptive", Connections::Adaptive)];

const PACED_VALUES: [(&str, PacedStreams); 2] =
    [("stay", PacedStreams::Stay), ("move", PacedStreams::Move)];

fn parse_mode(text: &str) -> Result<MigrationMode, String> {
    match text {
        "auto" => Ok(MigrationMode::Policy),
        "never" => Ok(MigrationMode::Never),
        _ => {
            let offsets = text.strip_prefix("at:").ok_or_else(|| {
                format!("{text:?} is not one of auto, never, at:OFFSET[,OFFSET...]")
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
        MigrationMode::Policy => "\"auto\"".to_owned(),
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
            value_name: "N",
            help: "Number of worker threads; 0: one per processor",
            show: |s| s.workers.unwrap_or(0).to_string(),
            set: |s, v| {
                s.workers = Some(parse_integer(last_value(v))?).filter(|n| *n > 0);
                Ok(())
            },
        },
        integer!(
            "server.max_connections",
            "max-connections",
            max_connections,
            "Maximum number of open connections; further ones are closed"
        ),
        integer!(
            "server.max_connections_per_client",
            "max-connections-per-client",
            max_connections_per_client,
            "Maximum number of open connections per client address (IPv6: /64); lower it if clients connect directly"
        ),
        time!(
            "server.handshake_timeout",
            "handshake-timeout",
            handshake_timeout,
            "Timeout of a TLS handshake, and of the first bytes on a cleartext connection"
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
            "Reset a request without a response if less than 1 KiB of its body arrives within this time; not CONNECT and gRPC, which may idle"
        ),
        time!(
            "server.drain_timeout",
            "drain-timeout",
            drain_timeout,
            "How long running transfers may take to finish after SIGTERM or SIGINT"
        ),
        Setting {
            key: "migration.mode",
            flag: "migrate",
            kind: ValueKind::Text,
            value_name: "WHEN",
            help: "When streams migrate: auto (by the rules below), never, or at:OFFSET,... to force migrations at these \
            offsets (for tests)",
            show: |s| show_mode(&s.migration.mode),
            set: |s, v| {
                s.migration.mode = parse_mode(last_value(v))?;
                Ok(())
            },
        },
        size!(
            "migration.min_size",
            "min-size",
            migration.policy.min_size,
            "Do not migrate a body with less than this left to send; a shorter body is not bulk either, and not paced"
        ),
        integer!(
            "migration.min_concurrent",
            "min-concurrent",
            migration.policy.min_concurrent,
            "Migrate a stream only if this many others are open, or (up to three) were opened within the last second"
        ),
        time!(
            "migration.min_transfer_time",
            "min-transfer-time",
            migration.policy.min_transfer_time,
            "Do not migrate a body that takes less time than this at the measured rate"
        ),
        word!(
            "migration.paced",
            "migrate-paced",
            "WHAT",
            PACED_VALUES,
            migration.policy.paced,
            "What becomes of large streams that are paced: stay until packets are lost again and again or the process runs \
            late, or move at once"
        ),
        size!(
            "migration.unknown_length_after",
            "unknown-length-after",
            migration.policy.unknown_length_after,
            "Migrate a body of unknown length after this many bytes sent"
        ),
        integer!(
            "migration.tunnel_min_concurrent",
            "tunnel-min-concurrent",
            migration.policy.tunnel_min_concurrent,
            "Like min_concurrent, for tunnels; later streams would queue behind a tunnel's bytes"
        ),
        size!(
            "migration.tunnel_min_bytes",
            "tunnel-min-bytes",
            migration.policy.tunnel_min_bytes,
            "Migrate a tunnel after this many bytes sent at the latest"
        ),
        time!(
            "migration.tunnel_min_path_time",
            "tunnel-min-path-time",
            migration.policy.tunnel_min_path_time,
            "Migrate a tunnel after the bytes that the path carries in this time, if fewer (but at least min_size)"
        ),
        time!(
            "migration.tunnel_min_age",
            "tunnel-min-age",
            migration.policy.tunnel_min_age,
            "Do not migrate a tunnel that is younger than this"
        ),
        word!(
            "migration.offers",
            "offers",
            "WHEN",
            OFFER_VALUES,
            migration.offers,
            "When to ask the client for another connection to migrate to: when-no-spare or never"
        ),
        word!(
            "migration.connections",
            "connections",
            "HOW",
            CONNECTION_VALUES,
            migration.connections,
            "Over how many connections of one session responses are spread: one, or adaptive (as many as a session may have, six \
            at most, while random losses or a path that grows keep a single congestion window too small; only with clients that \
            speak SMig)"
        ),
        Setting {
            key: "migration.pace_bulk",
            flag: "pace-bulk",
            kind: ValueKind::Bool,
            value_name: "BOOL",
            help: "Send large bodies no faster than the measured rate of the path, also without migration; \
            false: as fast as congestion control allows",
            show: |s| s.pace_bulk.to_string(),
            set: |s, v| {
                s.pace_bulk = parse_bool(last_value(v))?;
                Ok(())
            },
        },
        Setting {
            key: "migration.pace_uploads",
            flag: "pace-uploads",
            kind: ValueKind::Bool,
            value_name: "BOOL",
            help: "Let clients without SMig upload large bodies no faster than the path carries while they have other \
            streams. Several uploads of one client at once may get much less",
            show: |s| s.pace_uploads.to_string(),
            set: |s, v| {
                s.pace_uploads = parse_bool(last_value(v))?;
                Ok(())
            },
        },
        time!(
            "migration.max_bulk_deferral",
            "max-bulk-deferral",
            max_bulk_deferral,
            "How long one interactive response may delay bulk data; 0: not at all"
        ),
        Setting {
            key: "smig.enabled",
            flag: "smig",
            kind: ValueKind::Bool,
            value_name: "BOOL",
            help: "Advertise the SMig extension to clients; false: plain HTTP/2",
            show: |s| (s.extension == Extension::On).to_string(),
            set: |s, v| {
                s.extension =
                    if parse_bool(last_value(v))? { Extension::On } else { Extension::Off };
                Ok(())
            },
        },
        Setting {
            key: "smig.max_connections",
            flag: "session-connections",
            kind: ValueKind::Integer,
            value_name: "N",
            help: "Maximum number of connections per session, 1 to 16",
            show: |s| s.smig.max_connections.to_string(),
            set: |s, v| {
                let number = parse_integer(last_value(v))?;
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
            key: "smig.max_open_migrations",
            flag: "max-open-migrations",
            kind: ValueKind::Integer,
            value_name: "N",
            help: "Maximum number of a client's migrations in progress in a session, at least 1",
            show: |s| s.smig.max_open_migrations.to_string(),
            set: |s, v| {
                s.smig.max_open_migrations = parse_integer(last_value(v))?;
                if s.smig.max_open_migrations == 0 {
                    return Err(
                        "0 would disable the extension; set smig.enabled = false".to_owned()
                    );
                }
                Ok(())
            },
        },
        integer!(
            "smig.max_migrations_per_stream",
            "max-migrations-per-stream",
            smig.max_migrations_per_stream,
            "Maximum number of migrations per stream"
        ),
        integer!(
            "smig.migrations_per_second",
            "migrations-per-second",
            smig.migrations_per_second,
            "Maximum sustained rate of a client's migrations in a session, per second"
        ),
        time!(
            "smig.unbound_timeout",
            "unbound-timeout",
            smig.unbound_timeout,
            "How long data of a migrated stream may wait for its MIGRATE frame"
        ),
        time!(
            "smig.answer_timeout",
            "answer-timeout",
            smig.answer_timeout,
            "How long to wait for the client's answer to a migration"
        ),
        size!(
            "smig.replay_limit",
            "replay-limit",
            smig.replay_limit,
            "Bytes of a migrating stream to keep for resumption until the client answers"
        ),
    ]
}
