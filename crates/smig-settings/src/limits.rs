//! Limits on what a client may cause; the engine's `Limits` documents their reasons.

use crate::{HasServerSettings, Setting, integer, size, time};

/// Returns the settings, for any type that has them.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table<T: HasServerSettings>() -> Vec<Setting<T>> {
    vec![
        integer!(
            "limits.reset_burst",
            "limit-reset-burst",
            engine.limits.reset_burst,
            "Maximum burst of stream resets by a client; refusals and timeouts count too, resets that it provokes twice"
        ),
        integer!(
            "limits.resets_per_second",
            "limit-resets-per-second",
            engine.limits.resets_per_second,
            "Maximum sustained rate of the same, per second"
        ),
        integer!(
            "limits.max_continuations",
            "limit-continuations",
            engine.limits.max_continuations,
            "Maximum number of CONTINUATION frames in a field block"
        ),
        size!(
            "limits.max_header_block",
            "limit-header-block",
            engine.limits.max_header_block,
            "Maximum size of an encoded field block"
        ),
        size!(
            "limits.max_header_list",
            "limit-header-list",
            engine.limits.max_header_list,
            "Maximum size of a decoded field section, plus 32 bytes for each field"
        ),
        integer!(
            "limits.max_fields",
            "limit-fields",
            engine.limits.max_fields,
            "Maximum number of fields in a field section"
        ),
        integer!(
            "limits.max_consecutive_empty_frames",
            "limit-consecutive-empty-frames",
            engine.limits.max_consecutive_empty_frames,
            "Maximum number of consecutive empty frames"
        ),
        integer!(
            "limits.max_queued_control_frames",
            "limit-queued-control-frames",
            engine.limits.max_queued_control_frames,
            "Maximum number of unsent replies to PING, SETTINGS, MIGRATE and JOIN frames"
        ),
        integer!(
            "limits.max_settings_entries",
            "limit-settings-entries",
            engine.limits.max_settings_entries,
            "Maximum number of entries in a SETTINGS frame"
        ),
        integer!(
            "limits.max_settings_frames",
            "limit-settings-frames",
            engine.limits.max_settings_frames,
            "Maximum number of SETTINGS frames in ten seconds"
        ),
        integer!(
            "limits.max_idle_priority_updates",
            "limit-idle-priority-updates",
            engine.limits.max_idle_priority_updates,
            "Maximum number of buffered PRIORITY_UPDATE frames for idle streams"
        ),
        integer!(
            "limits.max_small_data_frames",
            "limit-small-data-frames",
            engine.limits.max_small_data_frames,
            "Maximum number of DATA frames under 1 KiB that a client's window forces in ten seconds"
        ),
        size!(
            "limits.max_buffered_output",
            "limit-buffered-output",
            engine.limits.max_buffered_output,
            "Maximum unsent data of a connection; above it, nothing is read from the client"
        ),
        time!(
            "limits.stall_timeout",
            "limit-stall-timeout",
            engine.limits.stall_timeout,
            "Reset a stream that has data to send but transfers less than stall_bytes in this time"
        ),
        size!(
            "limits.stall_bytes",
            "limit-stall-bytes",
            engine.limits.stall_bytes,
            "Minimum number of bytes that a stream must transfer in stall_timeout"
        ),
        time!(
            "limits.preface_timeout",
            "limit-preface-timeout",
            engine.limits.preface_timeout,
            "Timeout of the connection preface and SETTINGS"
        ),
        time!(
            "limits.headers_timeout",
            "limit-headers-timeout",
            engine.limits.headers_timeout,
            "Timeout of a field block"
        ),
        time!(
            "limits.settings_timeout",
            "limit-settings-timeout",
            engine.limits.settings_timeout,
            "How long the client may take to acknowledge SETTINGS"
        ),
    ]
}
