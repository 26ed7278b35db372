//! Tests of runs over the loopback, and of their events.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use smig::{Server, ServerTls};
use smig_files::{FileOptions, Files};
use tokio::sync::mpsc;

use super::*;
use crate::scenario::{Scenario, parse};

const BIG_BYTES: u64 = 8_000_000;

pub(super) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Small objects until a big one has ended, all on one connection.
fn scenario() -> Scenario {
    scenario_with(&format!(
        "[workload.transfers.big]\nsize = {BIG_BYTES}\nstart = '10ms'\n\
         [workload.transfers.small]\nsize = 1000\nevery = '20ms'\nuntil = 'big'\n"
    ))
}

fn scenario_with(transfers: &str) -> Scenario {
    scenario_of("h2", transfers)
}

/// A scenario with this kind of client and these tables of its workload.
pub(super) fn scenario_of(client: &str, workload: &str) -> Scenario {
    let text = format!(
        "link = 'paper-wired'\n[servers.main]\nkind = 'smig'\n[clients.user]\nkind = '{client}'\n\
         [record]\nprogress = '1ms'\n[workload]\nsettle = '0'\n{workload}"
    );
    let campaign = parse(&text, "test", Path::new("/"), &|_| Ok(())).unwrap();
    campaign.conditions[0].scenario.clone()
}

/// Runs the workload against a server of this process.
pub(super) fn run_with(
    events: Option<EventSender>,
    scenario: Scenario,
    time_limit: Duration,
) -> Result<Observation, WorkloadError> {
    let dir = tempfile::tempdir().unwrap();
    let server_files =
        ServerFiles::create(dir.path(), &[Ipv4Addr::LOCALHOST], BTreeSet::new()).unwrap();
    server_files.create_files(&scenario).unwrap();
    let certificate = fs::read_to_string(&server_files.certificate).unwrap();
    let key = fs::read(&server_files.key).unwrap();
    let tls = ServerTls::from_pem(certificate.as_bytes(), &key).unwrap();
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen((Ipv4Addr::LOCALHOST, 0).into(), tls)
        .start(Files::new(&server_files.files_dir, FileOptions::default()).unwrap())
        .unwrap();
    let spec = WorkloadSpec {
        replays: Replays::default(),
        scenario,
        seed: 1,
        server_by_client: BTreeMap::from([("user".into(), server.local_addrs()[0])]),
        certificate,
        command_env: CommandEnv {
            smig: "smig".into(),
            scratch: dir.path().to_owned(),
            certificate: server_files.certificate,
            servers: BTreeMap::new(),
            programs: BTreeMap::new(),
        },
        time_limit,
    };
    ScenarioClients { events }.run(spec, &mut |_| {})
}

#[test]
fn a_receiver_gets_the_events_of_every_object_in_order() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let observation = run_with(Some(sender), scenario(), TIME_LIMIT).unwrap();
    let mut kinds = BTreeMap::<_, Vec<EventKind>>::new();
    while let Ok(WorkloadEvent { name, number, kind }) = receiver.try_recv() {
        kinds.entry((name, number)).or_default().push(kind);
    }
    assert_eq!(kinds.len(), observation.objects.len());
    for object in &observation.objects {
        assert_eq!(object.outcome, Outcome::Complete);
        let kinds = &kinds[&(object.name.clone(), object.number)];
        assert_eq!(kinds.first(), Some(&EventKind::Requested { at_ns: object.started_ns }));
        assert_eq!(kinds.last(), Some(&EventKind::Ended(Box::new(object.clone()))));
        let progress = kinds.iter().filter_map(|kind| match kind {
            EventKind::Progress { at_ns, connections } => Some((*at_ns, connections)),
            _ => None,
        });
        let mut last_progress = (object.started_ns, 0);
        for (at_ns, connections) in progress.clone() {
            let bytes = connections.iter().map(|by| by.bytes).sum();
            assert!(
                last_progress.0 <= at_ns && last_progress.1 <= bytes,
                "{last_progress:?}, then {bytes} at {at_ns}"
            );
            last_progress = (at_ns, bytes);
        }
        let has_progress = progress.count() > 0;
        assert_eq!(has_progress, object.name == "big", "{} {}", object.name, object.number);
        assert!(last_progress.0 <= object.ended_ns && last_progress.1 <= BIG_BYTES);
    }
}

#[test]
fn a_run_without_an_event_receiver_is_complete() {
    let observation = run_with(None, scenario(), TIME_LIMIT).unwrap();
    let big = observation.objects.iter().find(|object| object.name == "big").unwrap();
    assert_eq!((&big.outcome, big.bytes), (&Outcome::Complete, BIG_BYTES));
    assert_eq!(big.connections, [ConnectionBytes { connection: 1, bytes: BIG_BYTES }]);
}

#[test]
fn a_run_stops_when_its_event_receiver_closes() {
    let (sender, receiver) = mpsc::unbounded_channel();
    drop(receiver);
    let run_result = run_with(Some(sender), scenario(), TIME_LIMIT);
    assert!(matches!(run_result, Err(WorkloadError::Stopped)), "{run_result:?}");
}

#[test]
fn an_object_that_was_cancelled_in_time_is_recorded_after_the_time_limit() {
    // The record of a cancel is complete after a silence, which is longer than this.
    let time_limit = Duration::from_millis(400);
    let scenario = scenario_with(&format!(
        "[workload.transfers.big]\nsize = {BIG_BYTES}\ncancel = {{ after = '1ms' }}\n"
    ));
    let observation = run_with(None, scenario, time_limit).unwrap();
    for object in &observation.objects {
        let is_cancelled = object.outcome == Outcome::Cancelled;
        // On a very slow machine, the object does reach the limit.
        let was_slow = u128::from(object.ended_ns) > time_limit.as_nanos() / 2;
        assert!(is_cancelled || was_slow, "{object:?}");
        assert_eq!(object.cancel.is_some(), is_cancelled, "{object:?}");
    }
}
