//! The totals of all runs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use smig::Stats;

use crate::census::Census;
use crate::relay::KilledRole;
use crate::run::Report;
use crate::transfer::Outcome;

/// Outcomes of the transfers of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Ends {
    pub(crate) complete: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
}

impl Ends {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Complete => self.complete += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Wrong(_) => self.wrong += 1,
        }
    }
}

/// The counters of one side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Side {
    pub(crate) connections: u64,
    pub(crate) sessions: u64,
    pub(crate) joined: u64,
    pub(crate) joins_refused: u64,
    pub(crate) streams: u64,
    pub(crate) streams_reset: u64,
    /// Streams that migrated to another connection, whichever side initiated it.
    pub(crate) moves: u64,
    /// Those of them that this side initiated.
    pub(crate) moves_made: u64,
    /// Migrations and offers of this side that the other declined: the stream resumed on its connection.
    pub(crate) migrations_declined: u64,
    pub(crate) panics: u64,
}

impl Side {
    pub(crate) fn add(&mut self, stats: &Stats) {
        self.connections += stats.connections_opened;
        self.sessions += stats.sessions_established;
        self.joined += stats.joined;
        self.joins_refused += stats.joins_refused;
        self.streams += stats.streams_opened;
        self.streams_reset += stats.streams_reset;
        self.moves += stats.migrations;
        self.moves_made += stats.migrations_initiated;
        self.migrations_declined += stats.migrations_declined;
        self.panics += stats.panics;
    }
}

/// Connections that the relay killed, by role.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Kills {
    pub(crate) interactive: u64,
    pub(crate) bulk: u64,
    pub(crate) spare: u64,
}

/// What is left of the runs when they are over.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeakReport {
    pub(crate) before: Census,
    pub(crate) after: Census,
    /// Resident memory after each batch of runs, KiB.
    pub(crate) resident_kib: Vec<u64>,
    /// The limit on its growth since the first batch, in KiB.
    pub(crate) bound_kib: u64,
}

impl LeakReport {
    pub(crate) fn growth_kib(&self) -> i64 {
        let first = self.resident_kib.first().copied().unwrap_or(0);
        let last = self.resident_kib.last().copied().unwrap_or(0);
        last.cast_signed() - first.cast_signed()
    }
}

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Tally {
    pub(crate) machine: String,
    pub(crate) seed: u64,
    pub(crate) size: u64,
    pub(crate) seconds: f64,
    pub(crate) runs: u64,
    pub(crate) runs_with_kills: u64,
    pub(crate) downloads: Ends,
    pub(crate) uploads: Ends,
    pub(crate) small: Ends,
    /// Uploads that the server read completely and correctly: at least as many as the client counts.
    pub(crate) uploads_whole_at_server: u64,
    /// Clean failures by message, without its numbers.
    pub(crate) failures: BTreeMap<String, u64>,
    pub(crate) kills: Kills,
    pub(crate) client: Side,
    pub(crate) server: Side,
    /// Limits reached at either end: only those on migrations may be.
    pub(crate) limits_hit: BTreeMap<&'static str, u64>,
    pub(crate) residue: Option<LeakReport>,
    /// Violations, each with its run's number first.
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
            downloads: Ends::default(),
            uploads: Ends::default(),
            small: Ends::default(),
            uploads_whole_at_server: 0,
            failures: BTreeMap::new(),
            kills: Kills::default(),
            client: Side::default(),
            server: Side::default(),
            limits_hit: BTreeMap::new(),
            residue: None,
            violations: Vec::new(),
        }
    }

    /// Adds a run's report.
    pub(crate) fn add(&mut self, number: usize, report: &Report) {
        self.runs += 1;
        self.runs_with_kills += u64::from(!report.kills.is_empty());
        for (ends, outcomes) in [
            (&mut self.downloads, &report.downloads),
            (&mut self.uploads, &report.uploads),
            (&mut self.small, &report.smalls),
        ] {
            for outcome in outcomes {
                ends.count(outcome);
                if let Outcome::Failed(error) = outcome {
                    *self.failures.entry(without_numbers(&error.to_string())).or_default() += 1;
                }
            }
        }
        for kill in &report.kills {
            match kill.victim {
                KilledRole::Interactive => self.kills.interactive += 1,
                KilledRole::Bulk => self.kills.bulk += 1,
                KilledRole::Spare => self.kills.spare += 1,
            }
        }
        self.client.add(&report.client);
        if let Some(server) = &report.server {
            self.server.add(server);
        }
        self.violations.extend(report.wrong.iter().map(|wrong| format!("run {number}: {wrong}")));
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
        for (name, ends) in rows {
            let Ends { complete, cancelled, failed, wrong } = ends;
            writeln!(f, "{name:<9}  {complete:>8}  {cancelled:>9}  {failed:>6}  {wrong:>5}")?;
        }
        writeln!(f)?;
        let Kills { interactive, bulk, spare } = self.kills;
        writeln!(
            f,
            "kills      {} in {} runs: {interactive} interactive, {bulk} bulk, {spare} spare",
            interactive + bulk + spare,
            self.runs_with_kills
        )?;
        for (name, side) in [("client", self.client), ("server", self.server)] {
            writeln!(
                f,
                "{name}     {} connections, {} joined, {} streams; {} moves made, {} declined",
                side.connections,
                side.joined,
                side.streams,
                side.moves_made,
                side.migrations_declined
            )?;
        }
        if let Some(residue) = &self.residue {
            let growth = residue.growth_kib();
            writeln!(
                f,
                "memory     {growth:+} KiB since the first batch, {} allowed",
                residue.bound_kib
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
    fn failures_differ_in_more_than_numbers() {
        assert_eq!(without_numbers("connection 12 ended at 3.5"), "connection N ended at N.N");
    }
}
