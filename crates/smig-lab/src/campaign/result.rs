//! A cell's result: one line of JSON with everything that it takes to do it again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::origin::Origin;
use crate::link::{LinkReport, Scheduling};
use crate::scenario::{Accept, CellId, Scenario};
use crate::workload::Observation;

/// The form of the lines; a reader refuses greater ones.
pub const FORMAT: u32 = 2;

/// What a cell gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// The form of this line.
    pub format: u32,
    /// Which cell.
    pub id: CellId,
    /// Names scenario and seed: see [`crate::scenario::Cell::hash`].
    pub hash: String,
    /// For everything random in it.
    pub seed: u64,
    /// What was measured.
    pub scenario: Scenario,
    /// The servers and this program, in their own words.
    pub versions: BTreeMap<String, String>,
    /// Where.
    pub machine: Machine,
    /// By which program, and beside what load; absent in results of format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// When, seconds of Unix time.
    pub unix_time: u64,
    /// The try that counted, from 1.
    pub attempt: u32,
    /// How long it took with setting up and taking down, seconds.
    pub seconds: f64,
    /// What the link did, and how late it was.
    pub link: LinkReport,
    /// The same of further links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_links: Vec<LinkReport>,
    /// Packets lost in the hosts' own devices: 0 in a run that counts.
    pub device_drops: u64,
    /// Whether the machine's CUBIC had HyStart at the end; absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// Why the run does not count; empty if it does.
    pub disturbed: Vec<String>,
    /// What the clients saw.
    pub observation: Observation,
    /// What our own servers said, by their names: connections, joins, moves, with `at_ns` of
    /// `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_events: BTreeMap<String, Vec<serde_json::Value>>,
    /// A file with the run's time series, beside the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<String>,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and version of the kernel.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// How many of them this process may use.
    pub cpus: usize,
    /// Cells that ran at once.
    pub jobs: usize,
}

/// Why a run does not count.
pub(super) fn disturbances(
    accept: &Accept,
    links: &[LinkReport],
    device_drops: u64,
) -> Vec<String> {
    let mut why = Vec::new();
    let late = links.iter().map(|link| link.lateness.p99).max().unwrap_or_default();
    let bound = accept.lateness_p99.0;
    if late > bound {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let advice = if links.iter().any(|link| link.scheduling == Scheduling::Ordinary) {
            "; as root it would go before other programs"
        } else {
            ""
        };
        let (late, bound) = (millis(late), millis(bound));
        why.push(format!(
            "the link was late: {late:.1} ms at p99, {bound:.1} ms is the bound{advice}"
        ));
    }
    if device_drops > 0 {
        why.push(format!("the hosts' own devices dropped {device_drops} packets"));
    }
    why
}
