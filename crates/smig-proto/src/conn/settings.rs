//! The peer's settings (RFC 9113 section 6.5.2).

use crate::flow::INITIAL_WINDOW;
use crate::wire::MIN_MAX_FRAME_SIZE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSettings {
    pub(crate) initial_window: u32,
    pub(crate) max_frame_size: u32,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) enable_push: bool,
    pub(crate) enable_connect_protocol: bool,
    /// SETTINGS_SMIG: number of simultaneous migrations that the peer tolerates; 0 if the extension
    /// is off.
    pub(crate) max_open_migrations: u32,
    /// SETTINGS_SMIG_RESUME: for how many seconds the peer keeps what is adrift; 0 if it does not.
    pub(crate) linger_seconds: u32,
    /// The values of the three CID settings received so far: high, middle, low.
    pub(crate) cid_settings: [Option<u32>; 3],
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            initial_window: INITIAL_WINDOW,
            max_frame_size: MIN_MAX_FRAME_SIZE,
            // "It is recommended that this value be no smaller than 100" (RFC 9113 section 6.5.2):
            // the value that a client assumes before it has received the server's SETTINGS.
            max_concurrent_streams: 100,
            enable_push: true,
            enable_connect_protocol: false,
            max_open_migrations: 0,
            linger_seconds: 0,
            cid_settings: [None; 3],
        }
    }
}
