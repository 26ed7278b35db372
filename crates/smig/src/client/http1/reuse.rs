//! Whether an HTTP/1.1 connection can be reused: one rule for all pools.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode, Version};

/// Returns whether a request with these fields must be the last one on its HTTP/1.1 connection, because the
/// server may authenticate the connection from then on.
#[must_use]
pub fn is_last_request(headers: &HeaderMap) -> bool {
    authenticates_connection(headers)
}

/// Returns whether the HTTP/1.1 connection of this response must carry no further request: the server may
/// have authenticated the connection, or it may place the message's end elsewhere than this side does.
#[must_use]
pub fn is_last_response<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    // A server of HTTP/1.0 may parse chunks as requests, and hyper would use HTTP/1.0 for it from now on,
    // which drops a body whose length is not known.
    response.version() != Version::HTTP_11
        // RFC 9110 section 15.3.5, RFC 9112 section 6.1: a server that announces content may send it.
        || (response.status() == StatusCode::NO_CONTENT && announces_content(headers))
        || authenticates_connection(headers)
}

fn announces_content(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get_all(CONTENT_LENGTH).iter().any(|length| length != "0")
}

/// Returns whether the fields authenticate the connection and not each request: NTLM, and possibly Negotiate
/// (RFC 4559). The next request on the connection would be attributed to the same user.
fn authenticates_connection(headers: &HeaderMap) -> bool {
    // Most header sections have neither field: one pass over the names is cheaper than two searches.
    if !headers.keys().any(|name| matches!(*name, AUTHORIZATION | WWW_AUTHENTICATE)) {
        return false;
    }
    [AUTHORIZATION, WWW_AUTHENTICATE].iter().any(|name| {
        headers.get_all(name).iter().any(|value| {
            value.as_bytes().split(|&byte| byte == b',').any(|part| {
                // Every byte that a server may accept as the end of the scheme's name ends it here.
                let scheme = part.trim_ascii_start();
                let end = scheme.iter().position(|byte| !byte.is_ascii_alphanumeric());
                let scheme = end.and_then(|end| scheme.get(..end)).unwrap_or(scheme);
                scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_responses_are_the_last_of_their_connection() {
        for (version, status, field, is_last) in [
            (Version::HTTP_11, 200, None, false),
            (Version::HTTP_11, 204, None, false),
            (Version::HTTP_11, 204, Some((CONTENT_LENGTH, "0")), false),
            (Version::HTTP_11, 204, Some((CONTENT_LENGTH, "5")), true),
            (Version::HTTP_11, 204, Some((TRANSFER_ENCODING, "chunked")), true),
            (Version::HTTP_11, 304, Some((CONTENT_LENGTH, "5")), false),
            (Version::HTTP_10, 200, Some((CONTENT_LENGTH, "5")), true),
            (Version::HTTP_11, 401, Some((WWW_AUTHENTICATE, "Basic realm=\"a\"")), false),
            (Version::HTTP_11, 401, Some((WWW_AUTHENTICATE, "Basic realm=\"a\", NTLM")), true),
        ] {
            let mut response = Response::builder().version(version).status(status);
            if let Some((name, value)) = field {
                response = response.header(name, value);
            }
            let response = response.body(()).unwrap();
            assert_eq!(is_last_response(&response), is_last, "{version:?} {status}");
        }
    }

    #[test]
    fn some_requests_are_the_last_of_their_connection() {
        for (credentials, is_last) in [
            ("Bearer ntlm", false),
            ("NTLM TlRM", true),
            ("ntlm\tTlRM", true),
            ("negotiate YII=", true),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, credentials.parse().unwrap())]);
            assert_eq!(is_last_request(&headers), is_last, "{credentials}");
        }
    }
}
