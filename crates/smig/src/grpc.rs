//! Detection of gRPC calls (gRPC over HTTP/2, "Requests"). They have time limits of their own (`grpc-timeout`).

use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// Returns whether a head is that of a gRPC request or response. gRPC-Web does not count: browsers read HTTP statuses.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(media_type) = headers.get(CONTENT_TYPE) else { return false };
    let rest = media_type.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
