//! The length of a body, as its head announces it.

use http::HeaderMap;
use http::header::CONTENT_LENGTH;

/// The announced length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// Number of bytes still to be sent.
    Remaining(u64),
    Unknown,
}

/// Returns the announced length of a message in bytes.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    // Comparing a few names is cheaper than a hash.
    let (_, length) = headers.iter().find(|(name, _)| **name == CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}
