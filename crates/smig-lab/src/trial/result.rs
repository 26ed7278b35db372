//! A trial's result: one line of JSON with everything that is needed to reproduce it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_link::{LinkReport, Scheduling};

use super::origin::Origin;
use crate::scenario::{ArrivalProcess, ClientKind, Scenario, TrialId};
use crate::workload::{ObjectResult, Observation};

/// Format version of the lines; readers reject greater ones.
pub const FORMAT_VERSION: u32 = 2;

/// Result of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Format version of this line.
    pub format: u32,
    /// Identifier of the trial.
    pub id: TrialId,
    /// Digest of scenario and seed: see [`crate::scenario::Trial::hash`].
    pub hash: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Scenario that was measured.
    pub scenario: Scenario,
    /// Versions of this program, the servers and the commands, as they report them.
    pub versions: BTreeMap<String, String>,
    /// Machine of the run.
    pub machine: Machine,
    /// Build of the program, and load of the machine; absent in results of format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Start of the run, in seconds of Unix time.
    pub unix_time: u64,
    /// The attempt that counted, from 1.
    pub attempt: u32,
    /// Duration with setup and teardown, in seconds.
    pub seconds: f64,
    /// Statistics of the link and its lateness.
    pub link: LinkReport,
    /// Statistics of further links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_links: Vec<LinkReport>,
    /// Packets dropped in the hosts' own devices, except for those that a client's device dropped while an event had it down: 0 in
    /// a valid run.
    pub device_drops: u64,
    /// Whether CUBIC used HyStart at the end of the run; absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hystart: Option<bool>,
    /// Why the run is invalid; empty if it is valid.
    pub disturbed: Vec<String>,
    /// What the clients observed.
    pub observation: Observation,
    /// Events that our own servers logged, by server name: connections, joins, migrations, with
    /// `at_ns` of `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_events: BTreeMap<String, Vec<serde_json::Value>>,
    /// File with the run's time series, relative to the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<String>,
}

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and version of the kernel.
    pub kernel: String,
    /// Processor model.
    pub cpu: String,
    /// Number of processors available to this process.
    pub cpus: usize,
    /// Number of trials that ran in parallel.
    pub jobs: usize,
}

/// The machine stood still if a client's request is this much later than scheduled.
const MAX_REQUEST_LATENESS: Duration = Duration::from_millis(500);

/// Returns why a run is invalid; empty if it is valid.
pub(super) fn disturbances(
    scenario: &Scenario,
    observation: &Observation,
    links: &[LinkReport],
    device_drops: u64,
) -> Vec<String> {
    let bounds = &scenario.accept;
    let mut reasons = Vec::new();
    let request_lateness = request_lateness(scenario, &observation.objects);
    if request_lateness > MAX_REQUEST_LATENESS {
        reasons.push(format!("a request was {request_lateness:.1?} late"));
    }
    let lateness = links.iter().map(|link| link.lateness.p99).max().unwrap_or_default();
    let bound = bounds.lateness_p99.0;
    if lateness > bound {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let advice = if links.iter().any(|link| link.scheduling == Scheduling::Ordinary) {
            "; as root it has priority over other programs"
        } else {
            ""
        };
        let (lateness_ms, bound_ms) = (millis(lateness), millis(bound));
        reasons.push(format!(
            "the link was late: {lateness_ms:.1} ms at p99, limit {bound_ms:.1} ms{advice}"
        ));
    }
    if device_drops > 0 {
        reasons.push(format!("the hosts' network devices dropped {device_drops} packets"));
    }
    reasons
}

/// Returns by how much a request was later than scheduled, at most. Only periodic requests of the lab's own clients have
/// a known time.
fn request_lateness(scenario: &Scenario, objects: &[ObjectResult]) -> Duration {
    let lateness = objects.iter().filter_map(|object| {
        let transfer = scenario.workload.transfers.get(&object.name)?;
        let is_command = scenario.clients.get(&object.client)?.kind == ClientKind::Command;
        if is_command || transfer.arrival != ArrivalProcess::Periodic {
            return None;
        }
        let interval = transfer.every.map_or(Duration::ZERO, |every| every.0);
        let due = transfer.start.0 + interval * object.number;
        Some(Duration::from_nanos(object.started_ns).saturating_sub(due))
    });
    lateness.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::{SizeClass, TransferDirection, parse};
    use crate::workload::{Outcome, RequestPhases};

    fn object(number: u32, started_ms: u64) -> ObjectResult {
        ObjectResult {
            name: "small".into(),
            number,
            client: "user".into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 1000,
            started_ns: started_ms * 1_000_000,
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: started_ms * 1_000_000,
            bytes: 1000,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome: Outcome::Complete,

            cancel: None,
            progress: Vec::new(),
        }
    }

    #[test]
    fn a_request_that_is_much_too_late_disturbs_a_run() {
        let text = "link = 'paper-wired'\n[servers.main]\nkind = 'smig'\n[clients.user]\nkind = 'h2'\n\
             [workload.transfers.small]\nsize = 1000\nstart = '1s'\nevery = '500ms'\ncount = 3\n";
        let campaign = parse(text, "late", Path::new("/"), &|_| Ok(())).unwrap();
        let scenario = &campaign.trials()[0].scenario;
        let reasons = |started_ms: [u64; 3]| {
            let objects =
                (0..).zip(started_ms).map(|(number, at)| object(number, at)).collect::<Vec<_>>();
            let observation = Observation { objects, ..Observation::default() };
            disturbances(scenario, &observation, &[], 0)
        };
        assert!(reasons([1000, 1501, 2400]).is_empty());
        assert_eq!(reasons([1000, 1501, 13_900]), ["a request was 11.9s late"]);
    }

    #[test]
    fn an_event_excuses_no_drops_of_its_own() {
        let text = "link = 'paper-wired'\n[[events]]\nat = '1s'\ndo = 'down'\n[servers.main]\nkind = 'smig'\n\
             [clients.user]\nkind = 'h2'\n[workload.transfers.small]\nsize = 1000\n";
        let campaign = parse(text, "drops", Path::new("/"), &|_| Ok(())).unwrap();
        let scenario = &campaign.trials()[0].scenario;
        let reasons = |drops| disturbances(scenario, &Observation::default(), &[], drops);
        assert!(reasons(0).is_empty());
        assert_eq!(reasons(3), ["the hosts' network devices dropped 3 packets"]);
    }
}
