//! The settings that all server programs share, and their sections.

use crate::setting::{HasServerSettings, Setting};
use crate::{limits, table, transport};

/// The sections of the shared settings with their descriptions, in the order of an example file.
pub const SECTIONS: [(&str, &str); 7] = [
    ("server", "Workers, connections and timeouts"),
    (
        "migration",
        "When a running stream migrates to another connection; and the pacing of large bodies, which needs no extension",
    ),
    ("smig", "The SMig extension: sessions of several connections"),
    ("http2", "HTTP/2 windows and sizes"),
    (
        "interactive",
        "Sockets of connections on which streams begin, with the large ones that stay there",
    ),
    ("bulk", "Sockets of connections that carry migrated streams"),
    ("limits", "Limits on what a client may cause"),
];

/// Returns the shared settings, section by section.
#[must_use]
pub fn shared_settings<T: HasServerSettings>() -> Vec<Setting<T>> {
    let mut all = table::table();
    all.extend(transport::table());
    all.extend(limits::table());
    all
}
