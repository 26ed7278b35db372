//! Converts the events of a trial's clients to those of the demonstration. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use smig_lab::workload::{
    ConnectionBytes, EventKind, MigrationRecord, ObjectResult, Outcome, WorkloadEvent,
};

use super::scenario::{BIG, SMALL};
use crate::demo::data::{BackgroundLoad, BigFileSample, ConnectionId, Migration, SmallObject};
use crate::demo::recorder::DemoEvent;

/// State of one run.
#[derive(Debug, Default)]
pub(super) struct EventConverter {
    big_requested_ns: Option<u64>,
    /// Bytes of the big file in the samples so far, by connection.
    sampled_bytes: BTreeMap<u32, u64>,
}

impl EventConverter {
    /// Returns the demonstration's events for an event of the clients.
    pub(super) fn convert(&mut self, event: WorkloadEvent) -> Vec<DemoEvent> {
        match (event.name.as_str(), event.kind) {
            (BIG, EventKind::Requested { at_ns }) => {
                self.big_requested_ns = Some(at_ns);
                vec![DemoEvent::BigFileStarted(since_start(at_ns))]
            }
            (BIG, EventKind::Progress { at_ns, connections }) => {
                self.new_samples(at_ns, &connections)
            }
            (BIG, EventKind::Migrated(MigrationRecord { at_ns, from, to, .. })) => {
                let (from, to) = (ConnectionId(from), ConnectionId(to));
                vec![DemoEvent::Migrated(Migration { at: since_start(at_ns), from, to })]
            }
            (BIG, EventKind::Ended(object)) => {
                let mut events = self.new_samples(object.ended_ns, &object.connections);
                if object.outcome == Outcome::Complete {
                    events.push(DemoEvent::BigFileFinished(since_start(object.ended_ns)));
                }
                events
            }
            (SMALL, EventKind::Ended(object)) => self.small_object(&object).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns samples of the bytes since the previous samples; none for a connection without any.
    fn new_samples(&mut self, at_ns: u64, connections: &[ConnectionBytes]) -> Vec<DemoEvent> {
        let mut samples = Vec::new();
        for current in connections {
            let previous =
                self.sampled_bytes.insert(current.connection, current.bytes).unwrap_or(0);
            let bytes = current.bytes.saturating_sub(previous);
            if bytes > 0 {
                let connection = ConnectionId(current.connection);
                let at = since_start(at_ns);
                samples.push(DemoEvent::BigFileBytes(BigFileSample { at, connection, bytes }));
            }
        }
        samples
    }

    /// Returns the event of a small object; `None` for a failure, which the run's result reports.
    fn small_object(&self, object: &ObjectResult) -> Option<DemoEvent> {
        let at = since_start(object.started_ns);
        let took = since_start(object.ended_ns).saturating_sub(at);
        match &object.outcome {
            Outcome::Complete => {
                let beside = self.big_requested_ns.is_some_and(|big| big <= object.started_ns);
                let load = if beside { BackgroundLoad::BigFile } else { BackgroundLoad::Unloaded };
                Some(DemoEvent::Object(SmallObject { at, took, load }))
            }
            Outcome::Cancelled | Outcome::TimedOut => {
                let seconds = took.as_secs();
                let text = format!("A small object did not arrive within {seconds} seconds.");
                Some(DemoEvent::Problem(text))
            }
            Outcome::Damaged | Outcome::Failed(_) => None,
        }
    }
}

const fn since_start(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[cfg(test)]
mod tests {
    use smig_lab::scenario::{SizeClass, TransferDirection};

    use super::*;

    const MS: u64 = 1_000_000;

    fn ended_object(name: &str, from_ms: u64, to_ms: u64, outcome: Outcome) -> ObjectResult {
        ObjectResult {
            name: name.into(),
            number: 0,
            client: "user".into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 1_000,
            started_ns: from_ms * MS,
            head_ns: None,
            first_byte_ns: None,
            ended_ns: to_ms * MS,
            bytes: 1_000,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome,
            cancel: None,
            progress: Vec::new(),
        }
    }

    fn event(name: &str, kind: EventKind) -> WorkloadEvent {
        WorkloadEvent { name: name.into(), number: 0, kind }
    }

    fn bytes(totals: &[(u32, u64)]) -> Vec<ConnectionBytes> {
        totals.iter().map(|&(connection, bytes)| ConnectionBytes { connection, bytes }).collect()
    }

    fn sample(at_ms: u64, connection: u32, bytes: u64) -> DemoEvent {
        let (at, connection) = (Duration::from_millis(at_ms), ConnectionId(connection));
        DemoEvent::BigFileBytes(BigFileSample { at, connection, bytes })
    }

    #[test]
    fn samples_count_bytes_since_the_previous_ones() {
        let mut converter = EventConverter::default();
        let mut progress = |at_ms: u64, totals: &[(u32, u64)]| {
            let kind = EventKind::Progress { at_ns: at_ms * MS, connections: bytes(totals) };
            converter.convert(event(BIG, kind))
        };
        assert_eq!(progress(500, &[(1, 100)]), [sample(500, 1, 100)]);
        assert_eq!(progress(1_000, &[(1, 100)]), []);
        assert_eq!(
            progress(1_500, &[(1, 130), (2, 50)]),
            [sample(1_500, 1, 30), sample(1_500, 2, 50)]
        );
        let complete = ObjectResult {
            connections: bytes(&[(1, 130), (2, 870)]),
            ..ended_object(BIG, 0, 1_700, Outcome::Complete)
        };
        assert_eq!(
            converter.convert(event(BIG, EventKind::Ended(Box::new(complete)))),
            [sample(1_700, 2, 820), DemoEvent::BigFileFinished(Duration::from_millis(1_700))]
        );
    }

    #[test]
    fn small_objects_have_the_load_of_their_request() {
        let mut converter = EventConverter::default();
        let small = |converter: &mut EventConverter, from_ms, to_ms, outcome| {
            let object = ended_object(SMALL, from_ms, to_ms, outcome);
            converter.convert(event(SMALL, EventKind::Ended(Box::new(object))))
        };
        let object = |at_ms, took_ms, load| {
            let (at, took) = (Duration::from_millis(at_ms), Duration::from_millis(took_ms));
            [DemoEvent::Object(SmallObject { at, took, load })]
        };
        let alone = small(&mut converter, 500, 560, Outcome::Complete);
        assert_eq!(alone, object(500, 60, BackgroundLoad::Unloaded));
        let requested = event(BIG, EventKind::Requested { at_ns: 1_100 * MS });
        let started = converter.convert(requested);
        assert_eq!(started, [DemoEvent::BigFileStarted(Duration::from_millis(1_100))]);
        let before = small(&mut converter, 1_000, 1_200, Outcome::Complete);
        assert_eq!(before, object(1_000, 200, BackgroundLoad::Unloaded));
        let beside = small(&mut converter, 1_500, 1_900, Outcome::Complete);
        assert_eq!(beside, object(1_500, 400, BackgroundLoad::BigFile));
        let late = small(&mut converter, 2_000, 62_001, Outcome::Cancelled);
        let text = "A small object did not arrive within 60 seconds.";
        assert_eq!(late, [DemoEvent::Problem(text.into())]);
        assert_eq!(small(&mut converter, 2_000, 2_100, Outcome::Failed("reset".into())), []);
    }

    #[test]
    fn migrations_of_the_big_file_are_converted() {
        let record = MigrationRecord { at_ns: 7 * MS, bytes: 10, from: 1, to: 2 };
        let events = EventConverter::default().convert(event(BIG, EventKind::Migrated(record)));
        let (from, to) = (ConnectionId(1), ConnectionId(2));
        assert_eq!(
            events,
            [DemoEvent::Migrated(Migration { at: Duration::from_millis(7), from, to })]
        );
    }
}
