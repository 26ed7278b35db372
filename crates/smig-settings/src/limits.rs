//! The settings that bound what a client may cause; the engine's `Limits` gives their reasons.

use crate::{Setting, Shared, count, size, time};

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: Shared>() -> Vec<Setting<T>> {
    vec![
        count!(
            "limits.reset_burst",
            "limit-reset-burst",
            engine.limits.reset_burst,
            "Streams that a client may reset at once"
        ),
        count!(
            "limits.resets_per_second",
            "limit-resets-per-second",
            engine.limits.resets_per_second,
            "The same, each second, sustained"
        ),
        count!(
            "limits.max_continuations",
            "limit-continuations",
            engine.limits.max_continuations,
            "CONTINUATION frames of one header block"
        ),
        size!(
            "limits.max_header_block",
            "limit-header-block",
            engine.limits.max_header_block,
            "One encoded header block"
        ),
        size!(
            "limits.max_header_list",
            "limit-header-list",
            engine.limits.max_header_list,
            "One decoded header section, 32 bytes added for each field"
        ),
        count!(
            "limits.max_fields",
            "limit-fields",
            engine.limits.max_fields,
            "Fields of one header section"
        ),
        count!(
            "limits.max_informational",
            "limit-informational",
            engine.limits.max_informational,
            "1xx responses to one request"
        ),
        count!(
            "limits.max_empty_frames",
            "limit-empty-frames",
            engine.limits.max_empty_frames,
            "Empty frames in a row"
        ),
        count!(
            "limits.max_queued_answers",
            "limit-queued-answers",
            engine.limits.max_queued_answers,
            "Answers to PING, SETTINGS and resets that wait unsent"
        ),
        count!(
            "limits.max_settings_entries",
            "limit-settings-entries",
            engine.limits.max_settings_entries,
            "Entries of one SETTINGS frame"
        ),
        count!(
            "limits.max_settings_frames",
            "limit-settings-frames",
            engine.limits.max_settings_frames,
            "SETTINGS frames in ten seconds"
        ),
        count!(
            "limits.max_idle_priorities",
            "limit-idle-priorities",
            engine.limits.max_idle_priorities,
            "Priorities for streams that are not open yet"
        ),
        count!(
            "limits.max_tiny_frames",
            "limit-tiny-frames",
            engine.limits.max_tiny_frames,
            "Frames under 1 KB that a client's window forced in ten seconds"
        ),
        size!(
            "limits.max_unsent",
            "limit-unsent",
            engine.limits.max_unsent,
            "Framed and unsent data of a connection; above it the client is not read"
        ),
        time!(
            "limits.stall_timeout",
            "limit-stall-timeout",
            engine.limits.stall_timeout,
            "A stream that could send and moves too little in this time is reset..."
        ),
        size!(
            "limits.stall_bytes",
            "limit-stall-bytes",
            engine.limits.stall_octets,
            "...and too little is less than this"
        ),
        time!(
            "limits.preface_timeout",
            "limit-preface-timeout",
            engine.limits.preface_timeout,
            "Time for the connection preface and SETTINGS"
        ),
        time!(
            "limits.headers_timeout",
            "limit-headers-timeout",
            engine.limits.headers_timeout,
            "Time for one header block"
        ),
        time!(
            "limits.settings_timeout",
            "limit-settings-timeout",
            engine.limits.settings_timeout,
            "Time for the client to acknowledge SETTINGS"
        ),
    ]
}
