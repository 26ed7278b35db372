//! Which recorded response answers a request.
//!
//! Queries have noise in them: times, random numbers, identifiers. So a request matches a response to the same method, host and path, and of
//! several the one whose query is most like its own.

use std::collections::HashSet;

use super::entry::RecordedResponse;

/// What a parameter counts that is the same, and one whose name is.
const SAME_PARAMETER: usize = 1_000;
const SAME_NAME: usize = 1;
/// As many parameters of a query count: it is compared with those of all candidates.
const MAX_PARAMETERS: usize = 50;

/// Returns the index of the response to a request. A request for the header section alone (HEAD) is also one for the whole (GET).
#[must_use]
pub fn find(
    responses: &[RecordedResponse],
    method: &str,
    host: &str,
    target: &str,
) -> Option<usize> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let host = host.strip_suffix(":443").unwrap_or(host);
    let is_method = |recorded: &str| recorded == method || (method == "HEAD" && recorded == "GET");
    let candidates = responses.iter().enumerate().filter(|(_, response)| {
        response.path == path
            && response.host.eq_ignore_ascii_case(host)
            && is_method(&response.method)
    });
    // Of equals the last one that is no redirect: a page that is sent away to get a cookie comes back to the same URL.
    let rank = |(index, response): &(usize, &RecordedResponse)| {
        let is_redirect = (300..400).contains(&response.status);
        (response.method == method, !is_redirect, *index)
    };
    let exact = candidates.clone().filter(|(_, response)| response.query == query);
    if let Some((index, _)) = exact.max_by_key(rank) {
        return Some(index);
    }
    let requested = Parameters::of(query);
    let similar = candidates
        .max_by_key(|candidate| (requested.similarity(&candidate.1.query), rank(candidate)));
    similar.map(|(index, _)| index)
}

/// The parameters of a query.
struct Parameters<'a> {
    whole: HashSet<&'a str>,
    names: HashSet<&'a str>,
}

impl<'a> Parameters<'a> {
    fn of(query: &'a str) -> Self {
        let whole: HashSet<_> = parameters(query).collect();
        let names = whole.iter().map(|parameter| name_of(parameter)).collect();
        Self { whole, names }
    }

    fn similarity(&self, other: &str) -> usize {
        let score = |parameter: &str| {
            if self.whole.contains(parameter) {
                SAME_PARAMETER
            } else if self.names.contains(name_of(parameter)) {
                SAME_NAME
            } else {
                0
            }
        };
        parameters(other).map(score).sum()
    }
}

fn parameters(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|parameter| !parameter.is_empty()).take(MAX_PARAMETERS)
}

fn name_of(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}
