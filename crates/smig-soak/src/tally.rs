//! The totals of all runs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use smig::Stats;

use crate::census::Census;
use crate::relay::KilledRole;
use crate::run::RunReport;
use crate::transfer::TransferOutcome;

/// Outcomes of the transfers of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OutcomeCounts {
    pub(crate) complete: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
}

impl OutcomeCounts {
    fn add(&mut self, outcome: &TransferOutcome) {
        match outcome {
            TransferOutcome::Complete => self.complete += 1,
            TransferOutcome::Cancelled => self.cancelled += 1,
            TransferOutcome::Failed(_) => self.failed += 1,
            TransferOutcome::Violation(_) => self.wrong += 1,
        }
    }
}

/// The counters of one endpoint.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct EndpointCounters {
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) joined: u64,
    pub(crate) joins_refused: u64,
    pub(crate) streams: u64,
    pub(crate) streams_reset: u64,
    /// Migrations of streams to another connection, whichever side initiated them.
    pub(crate) migrations: u64,
    /// Those that this side initiated.
    pub(crate) migrations_initiated: u64,
    /// Migrations and offers of this side that the other declined: the stream resumed on its
    /// connection.
    pub(crate) migrations_declined: u64,
    pub(crate) panics: u64,
}

impl EndpointCounters {
    pub(crate) fn add(&mut self, stats: &Stats) {
        self.connections += stats.connections_opened;
        self.sessions += stats.sessions_established;
        self.joined += stats.connections_joined;
        self.joins_refused += stats.joins_refused;
        self.streams += stats.streams_opened;
        self.streams_reset += stats.streams_reset;
        self.migrations += stats.migrations;
        self.migrations_initiated += stats.migrations_initiated;
        self.migrations_declined += stats.migrations_declined;
        self.panics += stats.panics;
    }
}

/// Connections that the relay killed, by role.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct KillCounts {
    pub(crate) interactive: u64,
    pub(crate) bulk: u64,
    pub(crate) other: u64,
}

/// Resources before and after the runs, which must not grow, and the growth of memory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeakReport {
    pub(crate) before: Census,
    pub(crate) after: Census,
    /// Resident memory after each batch of runs, KiB.
    pub(crate) resident_kib: Vec<u64>,
    /// The limit on the growth of memory since the first batch, in KiB.
    pub(crate) max_growth_kib: u64,
}

impl LeakReport {
    pub(crate) fn growth_kib(&self) -> i64 {
        let first = self.resident_kib.first().copied().unwrap_or(0);
        let last = self.resident_kib.last().copied().unwrap_or(0);
        last.cast_signed() - first.cast_signed()
    }
}

/// The result of all runs.
#[derive(Debug, Serialize)]
pub(crate) struct Tally {
    pub(crate) machine: String,
    pub(crate) seed: u64,
    pub(crate) size: u64,
    pub(crate) seconds: f64,
    pub(crate) runs: u64,
    pub(crate) runs_with_kills: u64,
    pub(crate) downloads: OutcomeCounts,
    pub(crate) uploads: OutcomeCounts,
    pub(crate) small: OutcomeCounts,
    /// Uploads that the server read completely and correctly: at least as many as the client counts.
    pub(crate) uploads_complete_at_server: u64,
    /// Clean failures by message, without its numbers.
    pub(crate) failures: BTreeMap<String, u64>,
    pub(crate) kills: KillCounts,
    pub(crate) client: EndpointCounters,
    pub(crate) server: EndpointCounters,
    /// Limits reached at either end; expected are "migrations", and "unbound carrier time" at most
    /// once per kill.
    pub(crate) limits_hit: BTreeMap<&'static str, u64>,
    pub(crate) leaks: Option<LeakReport>,
    /// Violations; those found in a run begin with its number.
    pub(crate) violations: Vec<String>,
}

impl Tally {
    pub(crate) fn new(seed: u64, size: u64) -> Self {
        Self {
            machine: crate::census::machine(),
            seed,
            size,
            seconds: 0.0,
            runs: 0,
            runs_with_kills: 0,
            downloads: OutcomeCounts::default(),
            uploads: OutcomeCounts::default(),
            small: OutcomeCounts::default(),
            uploads_complete_at_server: 0,
            failures: BTreeMap::new(),
            kills: KillCounts::default(),
            client: EndpointCounters::default(),
            server: EndpointCounters::default(),
            limits_hit: BTreeMap::new(),
            leaks: None,
            violations: Vec::new(),
        }
    }

    /// Adds a run's report.
    pub(crate) fn add(&mut self, number: usize, report: &RunReport) {
        self.runs += 1;
        self.runs_with_kills += u64::from(!report.kills.is_empty());
        for (counts, outcomes) in [
            (&mut self.downloads, &report.downloads),
            (&mut self.uploads, &report.uploads),
            (&mut self.small, &report.small_downloads),
        ] {
            for outcome in outcomes {
                counts.add(outcome);
                if let TransferOutcome::Failed(error) = outcome {
                    *self.failures.entry(without_numbers(&error.to_string())).or_default() += 1;
                }
            }
        }
        for kill in &report.kills {
            match kill.role {
                KilledRole::Interactive => self.kills.interactive += 1,
                KilledRole::Bulk => self.kills.bulk += 1,
                KilledRole::Other => self.kills.other += 1,
            }
        }
        self.client.add(&report.client_stats);
        if let Some(server) = &report.own_server_stats {
            self.server.add(server);
        }
        self.violations
            .extend(report.violations.iter().map(|wrong| format!("run {number}: {wrong}")));
    }
}

/// Replaces each number by `N`, so that messages that differ only in numbers compare equal.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('N') => {}
            '0'..='9' => out.push('N'),
            c => out.push(c),
        }
    }
    out
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs of 2 x {} bytes in {:.0} s", self.runs, self.size, self.seconds)?;
        writeln!(f)?;
        writeln!(f, "           complete  cancelled  failed  wrong")?;
        let rows =
            [("downloads", self.downloads), ("uploads", self.uploads), ("small", self.small)];
        for (name, counts) in rows {
            let OutcomeCounts { complete, cancelled, failed, wrong } = counts;
            writeln!(f, "{name:<9}  {complete:>8}  {cancelled:>9}  {failed:>6}  {wrong:>5}")?;
        }
        writeln!(f)?;
        let KillCounts { interactive, bulk, other: other_kills } = self.kills;
        writeln!(
            f,
            "kills      {} in {} runs: {interactive} interactive, {bulk} bulk, {other_kills} other",
            interactive + bulk + other_kills,
            self.runs_with_kills
        )?;
        for (name, counters) in [("client", self.client), ("server", self.server)] {
            writeln!(
                f,
                "{name}     {} connections, {} joined, {} streams; {} migrations initiated, {} declined",
                counters.connections,
                counters.joined,
                counters.streams,
                counters.migrations_initiated,
                counters.migrations_declined
            )?;
        }
        if let Some(leaks) = &self.leaks {
            let growth_kib = leaks.growth_kib();
            writeln!(
                f,
                "memory     {growth_kib:+} KiB since the first batch, {} allowed",
                leaks.max_growth_kib
            )?;
        }
        if !self.failures.is_empty() {
            writeln!(f)?;
            writeln!(f, "clean failures:")?;
            for (text, count) in &self.failures {
                writeln!(f, "{count:>6}  {text}")?;
            }
        }
        if !self.violations.is_empty() {
            writeln!(f)?;
            writeln!(f, "VIOLATIONS:")?;
            for violation in &self.violations {
                writeln!(f, "  {violation}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_messages_are_replaced() {
        assert_eq!(without_numbers("connection 12 ended at 3.5"), "connection N ended at N.N");
    }
}
