//! The settings of HTTP/2's windows, and of the sockets by role.

use smig::Mark;

use crate::entry::{last, optional, or_zero, show_text};
use crate::{Kind, Setting, Shared, count, size, word};

const MARKS: [(&str, Mark); 2] = [("default", Mark::Default), ("lower-effort", Mark::LowerEffort)];

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: Shared>() -> Vec<Setting<T>> {
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
            "The longest frame accepted, 16 KiB to 16 MiB less one"
        ),
        count!(
            "http2.max_concurrent_streams",
            "max-concurrent-streams",
            engine.max_concurrent_streams,
            "Requests that a client may have open in its session"
        ),
        size!(
            "http2.send_buffer",
            "send-buffer",
            engine.send_buffer,
            "What a stream buffers before its source waits"
        ),
        Setting {
            key: "interactive.not_sent_low_water",
            flag: "interactive-low-water",
            kind: Kind::Size,
            value: "BYTES",
            help: "TCP_NOTSENT_LOWAT: what may wait unsent in the kernel; 0: the system's value",
            show: |s| or_zero(s.interactive.not_sent_low_water),
            set: |s, v| {
                s.interactive.not_sent_low_water = optional(v)?;
                Ok(())
            },
        },
        Setting {
            key: "interactive.congestion_control",
            flag: "interactive-congestion",
            kind: Kind::Text,
            value: "NAME",
            help: "Congestion control, such as bbr; empty: the system's",
            show: |s| show_text(s.interactive.congestion_control.as_deref().unwrap_or_default()),
            set: |s, v| {
                s.interactive.congestion_control =
                    Some(last(v).to_owned()).filter(|n| !n.is_empty());
                Ok(())
            },
        },
        Setting {
            key: "bulk.not_sent_low_water",
            flag: "bulk-low-water",
            kind: Kind::Size,
            value: "BYTES",
            help: "TCP_NOTSENT_LOWAT of the connections that streams move to; 0: the system's value",
            show: |s| or_zero(s.bulk.not_sent_low_water),
            set: |s, v| {
                s.bulk.not_sent_low_water = optional(v)?;
                Ok(())
            },
        },
        Setting {
            key: "bulk.congestion_control",
            flag: "bulk-congestion",
            kind: Kind::Text,
            value: "NAME",
            help: "Congestion control of the connections that streams move to; empty: the system's",
            show: |s| show_text(s.bulk.congestion_control.as_deref().unwrap_or_default()),
            set: |s, v| {
                s.bulk.congestion_control = Some(last(v).to_owned()).filter(|n| !n.is_empty());
                Ok(())
            },
        },
        Setting {
            key: "bulk.pacing_rate",
            flag: "bulk-pacing",
            kind: Kind::Size,
            value: "BYTES",
            help: "At most this much a second on each of them; 0: no limit",
            show: |s| or_zero(s.bulk.pacing_rate),
            set: |s, v| {
                s.bulk.pacing_rate = optional(v)?;
                Ok(())
            },
        },
        word!(
            "bulk.mark",
            "bulk-mark",
            "WORD",
            MARKS,
            bulk.mark,
            "Their DSCP mark: lower-effort (RFC 8622) or default"
        ),
    ]
}
