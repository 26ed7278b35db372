//! The two fields by which WebSocket's HTTP/1.1 handshake proves itself (RFC 6455 section 1.3); the one by
//! HTTP/2 has none (RFC 8441 section 5).

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::HeaderName;

/// The client's half.
pub(super) const KEY: HeaderName = http::header::SEC_WEBSOCKET_KEY;
/// The server's half.
pub(super) const ACCEPT: HeaderName = http::header::SEC_WEBSOCKET_ACCEPT;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A key of our own.
pub(super) fn key() -> Option<HeaderValue> {
    let mut octets = [0; 16];
    rand::fill(&mut octets).ok()?;
    HeaderValue::try_from(STANDARD.encode(octets)).ok()
}

/// The answer to a key.
pub(super) fn accept(key: &HeaderValue) -> Option<HeaderValue> {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(GUID);
    HeaderValue::try_from(STANDARD.encode(hash.finish())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept(&key).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
