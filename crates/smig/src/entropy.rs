//! Random bytes for the engine, which generates none.

use crate::error::{Error, ErrorKind};

/// Returns a JOIN nonce.
pub(crate) fn nonce() -> [u8; 16] {
    bytes()
}

/// Returns an AppID: random for each session, so that sessions cannot be linked.
pub(crate) fn app_id() -> u64 {
    u64::from_ne_bytes(bytes())
}

/// Checks that the system provides random bytes, before anything depends on them.
pub(crate) fn check() -> Result<(), Error> {
    let mut probe = [0; 1];
    getrandom::fill(&mut probe).map_err(|error| {
        Error::new(ErrorKind::Io {
            context: "no random numbers from the system",
            source: std::io::Error::other(error.to_string()),
        })
    })
}

/// Returns random bytes.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Checked at start; Linux's generator does not fail later.
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "no random numbers from the system");
        std::process::abort();
    }
    bytes
}
