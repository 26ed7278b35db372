//! The two fields that verify WebSocket's HTTP/1.1 handshake (RFC 6455 section 1.3); the HTTP/2 handshake has none
//! (RFC 8441 section 5).

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::HeaderName;

/// Sent by the client.
pub(super) const KEY: HeaderName = http::header::SEC_WEBSOCKET_KEY;
/// Sent by the server.
pub(super) const ACCEPT: HeaderName = http::header::SEC_WEBSOCKET_ACCEPT;

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Generates a random key.
pub(super) fn generate_key() -> Option<HeaderValue> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).ok()?;
    HeaderValue::try_from(STANDARD.encode(bytes)).ok()
}

/// Returns the value of Sec-WebSocket-Accept for a key.
pub(super) fn accept_value(key: &HeaderValue) -> Option<HeaderValue> {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(GUID);
    HeaderValue::try_from(STANDARD.encode(hash.finish())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_matches_the_rfc_example() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept_value(&key).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
