//! Which servers a request was sent to, and how often it may be sent again.

use std::sync::Arc;

use smig_proxy::ProxyError;

use crate::upstream::{ActiveRequest, BalanceInput, TriedServers, Upstream};

/// The attempts to get a response to one request.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    upstream: &'a Arc<Upstream>,
    tried: TriedServers,
    /// Remaining retries.
    left: u32,
    /// A failed connection was overlooked, which happens once.
    excused: bool,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(upstream: &'a Arc<Upstream>) -> Self {
        Self { upstream, tried: TriedServers::default(), left: upstream.retries(), excused: false }
    }

    /// Picks a server for the next attempt, and counts the request as active there.
    pub(super) fn choose(&self, asked: BalanceInput<'_>) -> Option<(usize, ActiveRequest)> {
        self.upstream.choose(asked, self.tried)
    }

    /// Returns whether another attempt may follow the current one: only then a copy of the request is needed.
    pub(super) const fn may_follow(&self) -> bool {
        self.left > 0 || !self.excused
    }

    /// Records the failure at its server, if the server caused it.
    pub(super) fn blame(&self, number: usize, failure: &ProxyError) {
        if failure.counts_against_server()
            && let Some(server) = self.upstream.servers().get(number)
        {
            server.on_failure();
        }
    }

    /// Takes another attempt after a failure that allows it. Returns false if none is left.
    pub(super) fn another(&mut self, number: usize, failure: &ProxyError) -> bool {
        if failure.is_stale_connection() && !self.excused {
            // It does not reflect on the server. If the server is down as well, a retry remains for another one.
            self.excused = true;
        } else {
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            // A second time is no coincidence, if there is another server.
            if !failure.is_stale_connection() || self.upstream.servers().len() > 1 {
                self.tried.add(number);
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

    /// Returns how many attempts there are, the first included, if all fail like this.
    fn count(retries: u32, failure: fn() -> ProxyError) -> usize {
        let spec = UpstreamSpec {
            retries,
            ..UpstreamSpec::new(vec!["http://127.0.0.1:1".parse().unwrap()])
        };
        let upstream = Upstream::new("a", &spec).unwrap();
        let mut attempts = Attempts::new(&upstream);
        let mut count = 1;
        while attempts.another(0, &failure()) {
            count += 1;
        }
        assert!(!attempts.may_follow() || !failure().is_stale_connection());
        count
    }

    #[test]
    fn a_connection_that_had_ended_does_not_count_once() {
        for retries in [0, 1, 3] {
            let usual = 1 + retries as usize;
            assert_eq!(count(retries, || ProxyError::ConnectTimeout), usual);
            assert_eq!(count(retries, || ProxyError::Stale(String::new())), usual + 1);
            assert_eq!(count(retries, || ProxyError::Refused(String::new())), usual + 1);
        }
    }
}
