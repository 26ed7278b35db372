//! Random octets for the engine, which makes none itself.

use crate::error::{Error, Kind};

/// A JOIN nonce.
pub(crate) fn nonce() -> [u8; 16] {
    bytes()
}

/// An AppID: random for each session, so that it links nothing.
pub(crate) fn app_id() -> u64 {
    u64::from_ne_bytes(bytes())
}

/// Proves, before anything depends on it, that the system gives random octets.
pub(crate) fn check() -> Result<(), Error> {
    let mut probe = [0; 1];
    getrandom::fill(&mut probe).map_err(|error| {
        Error::new(Kind::Io {
            doing: "no random numbers from the system",
            source: std::io::Error::other(error.to_string()),
        })
    })
}

/// Random octets.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Checked at start; Linux's generator does not fail later.
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "no random numbers from the system");
        std::process::abort();
    }
    bytes
}
