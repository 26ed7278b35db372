//! A server of an upstream: its load and health, shared by all workers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use smig::{ConnectionLimit, QueueLimit};
use smig_proxy::conn_pool::ConnLimits;

use super::balance;
use super::spec::{Ejection, ServerUrl};

/// Returns a monotonic time in milliseconds since the first call.
fn now_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A server, shared by all workers.
#[derive(Debug)]
pub struct UpstreamServer {
    url: ServerUrl,
    /// Hash of its URL, for consistent hashing.
    pub(super) hash: u64,
    /// Active requests.
    load: AtomicUsize,
    /// Limits of its connections.
    pub(super) limits: Arc<ConnLimits>,
    /// The same limit, for connections of the HTTP/2 client.
    pub(super) connections_limit: ConnectionLimit,
    /// Limit on the requests that wait in the HTTP/2 client.
    pub(super) queue_limit: QueueLimit,
    ejection: Ejection,
    /// Consecutive failures.
    consecutive_failures: AtomicU32,
    /// Consecutive ejections.
    consecutive_ejections: AtomicU32,
    /// End of the ejection in [`now_ms`]; 0: not ejected.
    ejected_until_ms: AtomicU64,
    /// State of the health check: the flag [`DOWN_FLAG`], and the number of consecutive results that contradict it.
    /// Initially up.
    health_check_state: AtomicU32,
    /// Whether the server last selected HTTP/2 by ALPN. Shared by all workers: to find out for
    /// itself, a worker would need a connection, and might wait for it until the timeout.
    selects_http2: AtomicBool,
    /// Until then, in [`now_ms`], only HTTP/1.1 is offered for WebSockets, since the server's
    /// HTTP/2 has no extended CONNECT; 0: both are.
    websockets_need_http1_until_ms: AtomicU64,
    attempts: AtomicU64,
    failures: AtomicU64,
    connection_attempts: AtomicU64,
}

/// Counters and state of a server, for metrics and the admin page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The server.
    pub url: ServerUrl,
    /// Whether it is neither ejected nor failing its health checks.
    pub is_healthy: bool,
    /// Active requests.
    pub load: usize,
    /// Requests that wait for an HTTP/1.1 connection; those that wait in the HTTP/2 client are not counted.
    pub pending_requests: usize,
    /// Attempts since the start: the times that a request was given this server.
    pub attempts: u64,
    /// Of these, the failures that count against the server.
    pub failures: u64,
    /// Connections that are open or being opened.
    pub open_connections: usize,
    /// Connection attempts since the start, without those of HTTP/2 sessions.
    pub connection_attempts: u64,
}

/// Minimum length of the queue, whatever is configured: over HTTP/2 each request passes through it.
const MIN_QUEUE_LENGTH: usize = 16;

/// Time in milliseconds after which a server that lacked extended CONNECT is tried again: it may
/// have been updated.
const EXTENDED_CONNECT_RETRY_MS: u64 = 60_000;

/// Flag in `health_check_state`: the health check considers the server down.
const DOWN_FLAG: u32 = 1 << 31;

impl UpstreamServer {
    pub(super) fn new(
        url: ServerUrl,
        max_connections: usize,
        max_pending_requests: usize,
        ejection: Ejection,
    ) -> Self {
        let limits = ConnLimits::new(max_connections, max_pending_requests);
        Self {
            connections_limit: limits.connection_limit(),
            limits,
            queue_limit: QueueLimit::new(max_pending_requests.max(MIN_QUEUE_LENGTH)),
            hash: balance::hash(url.to_string().as_bytes()),
            url,
            load: AtomicUsize::new(0),
            ejection,
            consecutive_failures: AtomicU32::new(0),
            consecutive_ejections: AtomicU32::new(0),
            ejected_until_ms: AtomicU64::new(0),
            health_check_state: AtomicU32::new(0),
            selects_http2: AtomicBool::new(false),
            websockets_need_http1_until_ms: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            connection_attempts: AtomicU64::new(0),
        }
    }

    /// Its URL.
    #[must_use]
    pub const fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// Active requests.
    #[must_use]
    pub fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Returns whether the server is neither ejected nor failing its health checks. The balancer picks others only if
    /// none of these is left.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        if self.health_check_state.load(Ordering::Relaxed) & DOWN_FLAG != 0 {
            return false;
        }
        let until = self.ejected_until_ms.load(Ordering::Relaxed);
        until == 0 || now_ms() >= until
    }

    /// Returns its counters and state.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        ServerStatus {
            url: self.url.clone(),
            is_healthy: self.is_healthy(),
            load: self.load(),
            pending_requests: self.limits.pending_requests(),
            attempts: self.attempts.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            open_connections: self.limits.open_connections(),
            connection_attempts: self.connection_attempts.load(Ordering::Relaxed),
        }
    }

    pub(super) fn begin(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn selects_http2(&self) -> bool {
        self.selects_http2.load(Ordering::Relaxed)
    }

    /// Sets whether the server selects HTTP/2; if not, the next connection offers both versions.
    pub(crate) fn set_selects_http2(&self, selects: bool) {
        self.selects_http2.store(selects, Ordering::Relaxed);
    }

    pub(super) fn websockets_need_http1(&self) -> bool {
        self.websockets_need_http1_at(now_ms())
    }

    fn websockets_need_http1_at(&self, now: u64) -> bool {
        now < self.websockets_need_http1_until_ms.load(Ordering::Relaxed)
    }

    /// Sets whether WebSockets need HTTP/1.1. If so, they use it for a while, and then try HTTP/2 again; `false` ends
    /// that early, for a server that has no HTTP/1.1.
    pub(super) fn set_websockets_need_http1(&self, need: bool) {
        let until = if need { now_ms().saturating_add(EXTENDED_CONNECT_RETRY_MS) } else { 0 };
        self.websockets_need_http1_until_ms.store(until, Ordering::Relaxed);
    }

    /// Returns whether a request waits for an HTTP/1.1 connection because all connections are in use.
    pub(super) fn has_waiting(&self) -> bool {
        self.limits.pending_requests() > 0
    }

    pub(super) fn on_connection_attempt(&self) {
        self.connection_attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a response: resets the count of failures, and ends an ejection.
    pub(crate) fn on_success(&self) {
        // Load before storing: the cache line is shared by all workers.
        if self.consecutive_failures.load(Ordering::Relaxed) != 0 {
            self.consecutive_failures.store(0, Ordering::Relaxed);
        }
        if self.ejected_until_ms.load(Ordering::Relaxed) != 0 {
            self.ejected_until_ms.store(0, Ordering::Relaxed);
            self.consecutive_ejections.store(0, Ordering::Relaxed);
            tracing::info!(server = %self.url, "ejected server responded again");
        }
    }

    /// Records a failure: no connection, no response, or a truncated one. Ejects the server after
    /// too many consecutive ones.
    pub(crate) fn on_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let failures = self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1;
        if self.ejection.consecutive_failures == 0 || failures < self.ejection.consecutive_failures
        {
            return;
        }
        self.consecutive_failures.store(0, Ordering::Relaxed);
        let times =
            self.consecutive_ejections.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(10);
        let time = self.ejection.base_time.saturating_mul(times);
        let until = now_ms().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.ejected_until_ms.store(until.max(1), Ordering::Relaxed);
        tracing::warn!(server = %self.url, failures, ?time, "server ejected after failures");
    }

    /// Records a result of the health check; `rise` or `fall` consecutive ones change the state.
    pub(super) fn record_health_check(&self, has_passed: bool, rise: u32, fall: u32) {
        let checks = self.health_check_state.load(Ordering::Relaxed);
        let (is_down, contradicting_results) = (checks & DOWN_FLAG != 0, checks & !DOWN_FLAG);
        // Count the consecutive results that contradict the current state.
        let contradicting_results =
            if has_passed == is_down { contradicting_results + 1 } else { 0 };
        let has_changed = contradicting_results >= if is_down { rise.max(1) } else { fall.max(1) };
        let next_state = match (has_changed, is_down) {
            (true, false) => DOWN_FLAG,
            (true, true) => 0,
            (false, true) => DOWN_FLAG | contradicting_results,
            (false, false) => contradicting_results,
        };
        self.health_check_state.store(next_state, Ordering::Relaxed);
        match (has_changed, is_down) {
            (true, false) => tracing::warn!(server = %self.url, "server failed health checks"),
            (true, true) => tracing::info!(server = %self.url, "server passed health checks"),
            (false, _) => {}
        }
    }
}

/// An active request at a server; dropping it ends the count.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    upstream: Arc<super::Upstream>,
    server_index: usize,
}

impl ActiveRequest {
    pub(super) fn begin(upstream: &Arc<super::Upstream>, server_index: usize) -> Self {
        let this = Self { upstream: Arc::clone(upstream), server_index };
        if let Some(server) = this.server() {
            server.begin();
        }
        this
    }

    pub(crate) fn server(&self) -> Option<&UpstreamServer> {
        self.upstream.servers().get(self.server_index)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(server) = self.server() {
            server.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn server(consecutive_failures: u32, base_time: Duration) -> UpstreamServer {
        let ejection = Ejection { consecutive_failures, base_time };
        UpstreamServer::new("http://a".parse().unwrap(), 1, 1, ejection)
    }

    #[test]
    fn consecutive_failures_eject_and_a_response_restores() {
        let server = server(2, Duration::from_secs(3600));
        server.on_failure();
        server.on_success();
        server.on_failure();
        assert!(server.is_healthy());
        server.on_failure();
        assert!(!server.is_healthy());
        server.on_success();
        assert!(server.is_healthy());
        assert_eq!(server.status().failures, 3);
    }

    #[test]
    fn ejection_can_be_disabled() {
        let server = server(0, Duration::from_secs(3600));
        (0..100).for_each(|_| server.on_failure());
        assert!(server.is_healthy());
    }

    #[test]
    fn websockets_are_tried_over_http2_again_after_a_minute() {
        let server = server(0, Duration::ZERO);
        assert!(!server.websockets_need_http1());
        let before = now_ms();
        server.set_websockets_need_http1(true);
        let after = now_ms();
        assert!(server.websockets_need_http1_at(before + 59_999));
        assert!(!server.websockets_need_http1_at(after + 60_000));
        server.set_websockets_need_http1(false);
        assert!(!server.websockets_need_http1_at(after));
    }

    #[test]
    fn health_checks_count_consecutive_results() {
        let server = server(0, Duration::ZERO);
        let mut check = |passed| {
            server.record_health_check(passed, 2, 3);
            server.is_healthy()
        };
        assert_eq!(
            [false, false, true, false, false, false].map(&mut check),
            [true, true, true, true, true, false]
        );
        assert_eq!([true, false, true, true].map(&mut check), [false, false, false, true]);
    }
}
