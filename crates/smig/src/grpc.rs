//! How a gRPC call is known (gRPC over HTTP/2, "Requests"). Its time limits are its own (`grpc-timeout`).

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Whether a head is a gRPC call's, or an answer to one. gRPC-Web is not: browsers read HTTP statuses.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(media_type) = headers.get(CONTENT_TYPE) else { return false };
    let rest = media_type.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
