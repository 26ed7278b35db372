//! Which recorded response answers a request.
//!
//! Queries have noise in them: times, random numbers, identifiers. So a request matches a response to the same method, host and path, and of
//! several the one whose query is most like its own. Of equals each answers once, in the order in which they were recorded, and then the last
//! one.

use std::collections::HashSet;

use super::entry::RecordedResponse;
use super::host::as_recorded;

/// What a parameter counts that is the same, and one whose name is.
const SAME_PARAMETER: usize = 1_000;
const SAME_NAME: usize = 1;
/// As many parameters of a query count: it is compared with those of all candidates.
const MAX_PARAMETERS: usize = 50;

/// What counts of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its host, with a port or without.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The field Range.
    pub range: Option<&'a str>,
}

/// The answers of a load so far.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// Indexes of the responses that have answered.
    given: HashSet<usize>,
}

impl Answers {
    /// Returns the index of the response to the next request. A request for the header section alone (HEAD) is also one for the whole (GET).
    pub fn next(
        &mut self,
        responses: &[RecordedResponse],
        request: &RequestKey<'_>,
    ) -> Option<usize> {
        let equals = most_similar(responses, request);
        let last = *equals.last()?;
        // What asks for the header section only takes no answer from what asks for the whole.
        if responses[last].method != request.method {
            return Some(last);
        }
        let next = equals.into_iter().find(|index| !self.given.contains(index)).unwrap_or(last);
        self.given.insert(next);
        Some(next)
    }
}

/// Returns the indexes of the responses that match a request best.
fn most_similar(responses: &[RecordedResponse], request: &RequestKey<'_>) -> Vec<usize> {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let (method, host) = (request.method, as_recorded(request.host));
    let is_method = |recorded: &str| recorded == method || (method == "HEAD" && recorded == "GET");
    let requested = Parameters::of(query);
    let rank = |response: &RecordedResponse| {
        let similarity = if response.query == query {
            usize::MAX
        } else {
            requested.similarity(&response.query)
        };
        let is_redirect = (300..400).contains(&response.status);
        let of_range = match response.range.as_deref() {
            range if range == request.range => 2,
            // A server may answer any range with the whole.
            None => 1,
            Some(_) => 0,
        };
        // No redirect if there is another: a page that is sent away to get a cookie comes back to the same URL.
        (similarity, response.method == method, !is_redirect, of_range)
    };
    let candidates = responses.iter().enumerate().filter(|(_, response)| {
        response.path == path && response.host == *host && is_method(&response.method)
    });
    let ranked: Vec<_> = candidates.map(|(index, response)| (index, rank(response))).collect();
    let best = ranked.iter().map(|(_, rank)| *rank).max();
    ranked.into_iter().filter(|(_, rank)| Some(*rank) == best).map(|(index, _)| index).collect()
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
