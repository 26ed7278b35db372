//! Shutdown of a server: the first signal drains, the second ends it at once.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use smig::Server;
use smig_admin::access_log::AccessLog;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Verbosity;

/// Least time limit of flushing the access log at shutdown, even if the drain used up its own limit.
const MIN_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Signals that stop a server.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> Result<Self> {
        let watch = |kind| signal(kind).context("cannot install a signal handler");
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal; returns its name and number.
    pub(crate) async fn next(&mut self) -> (&'static str, u8) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", 15),
            _ = self.interrupt.recv() => ("SIGINT", 2),
        }
    }

    /// Runs until a signal arrives, then until all transfers complete, `limit` expires or the next
    /// signal arrives.
    pub(super) async fn run_until_drained(
        &mut self,
        server: Server,
        log: &AccessLog,
        limit: Duration,
        verbosity: Verbosity,
    ) -> Result<ExitCode> {
        let (name, _) = self.next().await;
        verbosity.print_line(&format!(
            "{name}: waiting up to {} s for running transfers; a second signal stops at once",
            limit.as_secs()
        ));
        let view = server.view();
        let shutdown = async {
            let deadline = Instant::now() + limit;
            let ended = server.shutdown(limit).await;
            let remaining = deadline.saturating_duration_since(Instant::now());
            log.flush(remaining.max(MIN_FLUSH_TIMEOUT)).await;
            ended
        };
        tokio::select! {
            ended = shutdown => ended?,
            (name, number) = self.next() => {
                log.flush(MIN_FLUSH_TIMEOUT).await;
                verbosity.print_line(&format!("{name}: stopped at once"));
                return Ok(ExitCode::from(128 + number));
            }
        }
        let stats = view.stats();
        verbosity.print_line(&format!(
            "stopped after {} connections, {} streams, {} migrations",
            stats.connections_opened, stats.streams_opened, stats.migrations
        ));
        Ok(ExitCode::SUCCESS)
    }
}
