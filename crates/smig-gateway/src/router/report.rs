//! Statistics of upstreams and tunnels for the admin page and /metrics.

use smig_admin::{ReportedStats, StatsSource, UpstreamServerReport};

use super::GatewayService;

impl StatsSource for GatewayService {
    fn report(&self, stats: &mut ReportedStats) {
        let config = self.config();
        config.tunnels.report(stats);
        stats.access_log_dropped = config.log.is_enabled().then(|| config.log.dropped_lines());
        for upstream in config.upstreams() {
            stats.upstream_servers.extend(upstream.servers().iter().map(|server| {
                let status = server.status();
                UpstreamServerReport {
                    upstream: upstream.name().to_owned(),
                    server: status.url.to_string(),
                    healthy: status.is_healthy,
                    active: status.load as u64,
                    connections: status.open_connections as u64,
                    attempts: status.attempts,
                    failures: status.failures,
                }
            }));
        }
    }
}
