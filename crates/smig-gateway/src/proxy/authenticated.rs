//! Users that a server knows by their connection.

use http::HeaderMap;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};

/// Whether a user is known by the connection from here on, and not by each request: NTLM, and Negotiate
/// where it is that (RFC 4559). Whoever sent the next request on it would be taken for the same user.
pub(super) fn authenticates_connection(headers: &HeaderMap) -> bool {
    [AUTHORIZATION, WWW_AUTHENTICATE].iter().any(|name| {
        headers.get_all(name).iter().any(|value| {
            value.as_bytes().split(|&byte| byte == b',').any(|part| {
                let part = part.trim_ascii_start();
                let scheme = part.split(|&byte| byte == b' ').next().unwrap_or_default();
                scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
            })
        })
    })
}
