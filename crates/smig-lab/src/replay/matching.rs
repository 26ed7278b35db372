//! Which recorded response answers a request.
//!
//! Queries have noise in them: times, random numbers, identifiers. So a request matches a response to the same method, host and path, and of
//! several the one whose query is most like its own.

use super::entry::RecordedResponse;

/// What a parameter counts that is the same, and one whose name is.
const SAME_PARAMETER: usize = 1_000;
const SAME_NAME: usize = 1;

/// Returns the index of the response to a request. A request for the header section alone (HEAD) is one for the whole (GET).
#[must_use]
pub fn find(
    responses: &[RecordedResponse],
    method: &str,
    host: &str,
    target: &str,
) -> Option<usize> {
    let method = if method == "HEAD" { "GET" } else { method };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let host = host.strip_suffix(":443").unwrap_or(host);
    let candidates = responses.iter().enumerate().filter(|(_, response)| {
        response.method == method
            && response.host.eq_ignore_ascii_case(host)
            && response.path == path
    });
    // Of equals the last one that is no redirect: a page that is sent away to get a cookie comes back to the same URL.
    let rank = |(index, response): &(usize, &RecordedResponse)| {
        let is_redirect = (300..400).contains(&response.status);
        (response.query == query, similarity(&response.query, query), !is_redirect, *index)
    };
    candidates.max_by_key(rank).map(|(index, _)| index)
}

fn similarity(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.split('&').filter(|parameter| !parameter.is_empty()).collect();
    let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    let score = |parameter: &str| {
        if other.contains(&parameter) {
            SAME_PARAMETER
        } else if other.iter().any(|other| name(other) == name(parameter)) {
            SAME_NAME
        } else {
            0
        }
    };
    one.split('&').filter(|parameter| !parameter.is_empty()).map(score).sum()
}
