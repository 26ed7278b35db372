//! Retries: which servers a request was sent to, and how often it may be sent again.

use std::sync::Arc;

use smig_proxy::ProxyError;

use crate::upstream::{ActiveRequest, BalanceInput, TriedServers, Upstream};

/// The attempts to get a response to one request.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    upstream: &'a Arc<Upstream>,
    tried_servers: TriedServers,
    /// Remaining retries.
    retries_left: u32,
    /// Whether the one retry that is not counted, after a stale connection, was used.
    uncounted_retry_used: bool,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(upstream: &'a Arc<Upstream>) -> Self {
        Self {
            upstream,
            tried_servers: TriedServers::default(),
            retries_left: upstream.retries(),
            uncounted_retry_used: false,
        }
    }

    /// Picks a server for the next attempt, and counts the request as active there.
    pub(super) fn begin_next(&self, input: BalanceInput<'_>) -> Option<(usize, ActiveRequest)> {
        self.upstream.choose_and_begin(input, self.tried_servers)
    }

    /// Returns whether another attempt may follow the current one: only then a copy of the request is needed.
    pub(super) const fn can_retry(&self) -> bool {
        self.retries_left > 0 || !self.uncounted_retry_used
    }

    /// Records the failure at its server, if the server caused it.
    pub(super) fn record_failure(&self, server_index: usize, failure: &ProxyError) {
        if failure.counts_against_server()
            && let Some(server) = self.upstream.servers().get(server_index)
        {
            server.on_failure();
        }
    }

    /// Uses up a retry after a failure that allows one. Returns false if none is left.
    pub(super) fn take_retry(&mut self, server_index: usize, failure: &ProxyError) -> bool {
        if failure.is_connection_specific() && !self.uncounted_retry_used {
            // This does not count against the server. If it is down as well, a retry remains for
            // another one.
            self.uncounted_retry_used = true;
        } else {
            let Some(retries_left) = self.retries_left.checked_sub(1) else { return false };
            self.retries_left = retries_left;
            // A second stale connection is no coincidence: prefer another server.
            if !failure.is_connection_specific() || self.upstream.servers().len() > 1 {
                self.tried_servers.insert(server_index);
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
    fn count_attempts(retries: u32, failure: fn() -> ProxyError) -> usize {
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
        assert!(!attempts.can_retry() || !failure().is_connection_specific());
        count
    }

    #[test]
    fn the_first_stale_connection_uses_no_retry() {
        for retries in [0, 1, 3] {
            let expected = 1 + retries as usize;
            assert_eq!(count_attempts(retries, || ProxyError::ConnectTimeout), expected);
            assert_eq!(count_attempts(retries, || ProxyError::Stale(String::new())), expected + 1);
            assert_eq!(
                count_attempts(retries, || ProxyError::Refused(String::new())),
                expected + 1
            );
        }
    }
}
