//! Retries: which servers a request was sent to, and how often it may be sent again.

use std::sync::Arc;

use smig_proxy::ProxyError;

use crate::upstream::{ActiveRequest, BalanceInput, TriedServers, Upstream};

/// The attempts to get a response to one request.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    upstream: &'a Arc<Upstream>,
    tried: TriedServers,
    /// Remaining retries.
    retries_left: u32,
    /// Whether the one retry that is not counted, after a stale connection, was used.
    stale_retry_used: bool,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(upstream: &'a Arc<Upstream>) -> Self {
        Self {
            upstream,
            tried: TriedServers::default(),
            retries_left: upstream.retries(),
            stale_retry_used: false,
        }
    }

    /// Picks a server for the next attempt, and counts the request as active there.
    pub(super) fn choose(&self, input: BalanceInput<'_>) -> Option<(usize, ActiveRequest)> {
        self.upstream.choose(input, self.tried)
    }

    /// Returns whether another attempt may follow the current one: only then a copy of the request is needed.
    pub(super) const fn can_retry(&self) -> bool {
        self.retries_left > 0 || !self.stale_retry_used
    }

    /// Records the failure at its server, if the server caused it.
    pub(super) fn record_failure(&self, number: usize, failure: &ProxyError) {
        if failure.counts_against_server()
            && let Some(server) = self.upstream.servers().get(number)
        {
            server.on_failure();
        }
    }

    /// Uses up a retry after a failure that allows one. Returns false if none is left.
    pub(super) fn take_retry(&mut self, number: usize, failure: &ProxyError) -> bool {
        if failure.is_stale_connection() && !self.stale_retry_used {
            // This does not count against the server. If it is down as well, a retry remains for
            // another one.
            self.stale_retry_used = true;
        } else {
            let Some(retries_left) = self.retries_left.checked_sub(1) else { return false };
            self.retries_left = retries_left;
            // A second stale connection is no coincidence: prefer another server.
            if !failure.is_stale_connection() || self.upstream.servers().len() > 1 {
                self.tried.insert(number);
            }
        }
        tracing::debug!(upstream = self.upstream.name(), %failure, "request retried");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::UpstreamSpec;

    /// Returns the number of attempts, including the first, if all fail with this error.
    fn count(retries: u32, failure: fn() -> ProxyError) -> usize {
        let spec = UpstreamSpec {
            retries,
            ..UpstreamSpec::new(vec!["http://127.0.0.1:1".parse().unwrap()])
        };
        let upstream = Upstream::new("a", &spec).unwrap();
        let mut attempts = Attempts::new(&upstream);
        let mut count = 1;
        while attempts.take_retry(0, &failure()) {
            count += 1;
        }
        assert!(!attempts.can_retry() || !failure().is_stale_connection());
        count
    }

    #[test]
    fn the_first_stale_connection_uses_no_retry() {
        for retries in [0, 1, 3] {
            let expected = 1 + retries as usize;
            assert_eq!(count(retries, || ProxyError::ConnectTimeout), expected);
            assert_eq!(count(retries, || ProxyError::Stale(String::new())), expected + 1);
            assert_eq!(count(retries, || ProxyError::Refused(String::new())), expected + 1);
        }
    }
}
