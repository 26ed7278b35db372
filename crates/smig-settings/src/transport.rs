//! The settings of HTTP/2, and of the sockets of interactive and of bulk connections.

use smig::Dscp;

use crate::entry::{last_value, parse_optional, show_optional, show_text};
use crate::{HasServerSettings, Setting, ValueKind, integer, size, word};

const DSCP_VALUES: [(&str, Dscp); 2] = [("default", Dscp::Default), ("le", Dscp::LowerEffort)];

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: HasServerSettings>() -> Vec<Setting<T>> {
    vec![
        size!(
            "http2.stream_window",
            "stream-window",
            engine.stream_window,
            "Receive window of each stream (uploads)"
        ),
        size!(
            "http2.connection_window",
            "connection-window",
            engine.connection_window,
            "Receive window of each connection (uploads)"
        ),
        size!(
            "http2.max_frame_size",
            "max-frame-size",
            engine.max_frame_size,
            "Largest frame to accept, 16 KiB to 16 MiB minus 1 byte"
        ),
        integer!(
            "http2.max_concurrent_streams",
            "max-concurrent-streams",
            engine.max_concurrent_streams,
            "Maximum number of concurrent streams in a client's session"
        ),
        size!(
            "http2.send_buffer",
            "send-buffer",
            engine.send_buffer,
            "Bytes that a stream buffers before the source of its body has to wait"
        ),
        Setting {
            key: "interactive.notsent_lowat",
            flag: "interactive-notsent-lowat",
            kind: ValueKind::Size,
            value_name: "BYTES",
            help: "TCP_NOTSENT_LOWAT, the limit of unsent data in the kernel; 0: the system's default",
            show: |s| show_optional(s.interactive.notsent_lowat),
            set: |s, v| {
                s.interactive.notsent_lowat = parse_optional(v)?;
                Ok(())
            },
        },
        Setting {
            key: "interactive.congestion_control",
            flag: "interactive-congestion",
            kind: ValueKind::Text,
            value_name: "NAME",
            help: "Congestion control algorithm, such as bbr; empty: the system's default",
            show: |s| show_text(s.interactive.congestion_control.as_deref().unwrap_or_default()),
            set: |s, v| {
                s.interactive.congestion_control =
                    Some(last_value(v).to_owned()).filter(|n| !n.is_empty());
                Ok(())
            },
        },
        Setting {
            key: "bulk.notsent_lowat",
            flag: "bulk-notsent-lowat",
            kind: ValueKind::Size,
            value_name: "BYTES",
            help: "TCP_NOTSENT_LOWAT of connections with migrated streams; 0: the system's default",
            show: |s| show_optional(s.bulk.notsent_lowat),
            set: |s, v| {
                s.bulk.notsent_lowat = parse_optional(v)?;
                Ok(())
            },
        },
        Setting {
            key: "bulk.congestion_control",
            flag: "bulk-congestion",
            kind: ValueKind::Text,
            value_name: "NAME",
            help: "Congestion control algorithm of connections with migrated streams; empty: the system's default",
            show: |s| show_text(s.bulk.congestion_control.as_deref().unwrap_or_default()),
            set: |s, v| {
                s.bulk.congestion_control =
                    Some(last_value(v).to_owned()).filter(|n| !n.is_empty());
                Ok(())
            },
        },
        Setting {
            key: "bulk.pacing_rate",
            flag: "bulk-pacing-rate",
            kind: ValueKind::Size,
            value_name: "BYTES",
            help: "Maximum rate of each connection with migrated streams, per second; 0: no limit",
            show: |s| show_optional(s.bulk.pacing_rate),
            set: |s, v| {
                s.bulk.pacing_rate = parse_optional(v)?;
                Ok(())
            },
        },
        word!(
            "bulk.dscp",
            "bulk-dscp",
            "WORD",
            DSCP_VALUES,
            bulk.dscp,
            "DSCP of connections with migrated streams: le (lower effort, RFC 8622) or default"
        ),
    ]
}
