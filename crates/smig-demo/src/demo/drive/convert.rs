//! Converts the events of a trial's clients to those of the demonstration. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use smig_lab::workload::{
    ConnectionBytes, EventKind, MigrationRecord, ObjectResult, Outcome, WorkloadEvent,
};

use super::scenario::{BIG_TRANSFER, SMALL_TRANSFER};
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
            (BIG_TRANSFER, EventKind::Requested { at_ns }) => {
                self.big_requested_ns = Some(at_ns);
                vec![DemoEvent::BigFileStarted(since_start(at_ns))]
            }
            (BIG_TRANSFER, EventKind::Progress { at_ns, connections }) => {
                self.new_samples(at_ns, &connections)
            }
            (BIG_TRANSFER, EventKind::Migrated(MigrationRecord { at_ns, from, to, .. })) => {
                let (from, to) = (ConnectionId(from), ConnectionId(to));
                vec![DemoEvent::Migrated(Migration { observed_at: since_start(at_ns), from, to })]
            }
            (BIG_TRANSFER, EventKind::Ended(object)) => {
                let mut events = self.new_samples(object.ended_ns, &object.connections);
                if object.outcome == Outcome::Complete {
                    events.push(DemoEvent::BigFileFinished(since_start(object.ended_ns)));
                }
                events
            }
            (SMALL_TRANSFER, EventKind::Ended(object)) => {
                self.small_object(&object).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns samples of the bytes since the previous samples; none for a connection without any.
    fn new_samples(&mut self, at_ns: u64, connections: &[ConnectionBytes]) -> Vec<DemoEvent> {
        let mut samples = Vec::new();
        for total in connections {
            let previous = self.sampled_bytes.insert(total.connection, total.bytes).unwrap_or(0);
            let bytes = total.bytes.saturating_sub(previous);
            if bytes > 0 {
                let connection = ConnectionId(total.connection);
                let interval_end = since_start(at_ns);
                samples.push(DemoEvent::BigFileBytes(BigFileSample {
                    interval_end,
                    connection,
                    bytes,
                }));
            }
        }
        samples
    }

    /// Returns the event of a small object; `None` for a failure, which the run's result reports.
    fn small_object(&self, object: &ObjectResult) -> Option<DemoEvent> {
        let requested_at = since_start(object.started_ns);
        let duration = since_start(object.ended_ns).saturating_sub(requested_at);
        match &object.outcome {
            Outcome::Complete => {
                let is_beside_big_file =
                    self.big_requested_ns.is_some_and(|big| big <= object.started_ns);
                let load = if is_beside_big_file {
                    BackgroundLoad::BigFile
                } else {
                    BackgroundLoad::Unloaded
                };
                Some(DemoEvent::Object(SmallObject { requested_at, duration, load }))
            }
            Outcome::Cancelled | Outcome::TimedOut => {
                let seconds = duration.as_secs();
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
    use smig_lab::workload::RequestPhases;

    use super::*;

    const NS_PER_MS: u64 = 1_000_000;

    fn ended_object(name: &str, from_ms: u64, to_ms: u64, outcome: Outcome) -> ObjectResult {
        ObjectResult {
            name: name.into(),
            number: 0,
            client: "user".into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: 1_000,
            started_ns: from_ms * NS_PER_MS,
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: to_ms * NS_PER_MS,
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

    fn connection_bytes(totals: &[(u32, u64)]) -> Vec<ConnectionBytes> {
        totals.iter().map(|&(connection, bytes)| ConnectionBytes { connection, bytes }).collect()
    }

    fn sample(at_ms: u64, connection: u32, bytes: u64) -> DemoEvent {
        let (at, connection) = (Duration::from_millis(at_ms), ConnectionId(connection));
        DemoEvent::BigFileBytes(BigFileSample { interval_end: at, connection, bytes })
    }

    #[test]
    fn samples_count_bytes_since_the_previous_ones() {
        let mut converter = EventConverter::default();
        let mut progress = |at_ms: u64, totals: &[(u32, u64)]| {
            let kind = EventKind::Progress {
                at_ns: at_ms * NS_PER_MS,
                connections: connection_bytes(totals),
            };
            converter.convert(event(BIG_TRANSFER, kind))
        };
        assert_eq!(progress(500, &[(1, 100)]), [sample(500, 1, 100)]);
        assert_eq!(progress(1_000, &[(1, 100)]), []);
        assert_eq!(
            progress(1_500, &[(1, 130), (2, 50)]),
            [sample(1_500, 1, 30), sample(1_500, 2, 50)]
        );
        let complete = ObjectResult {
            connections: connection_bytes(&[(1, 130), (2, 870)]),
            ..ended_object(BIG_TRANSFER, 0, 1_700, Outcome::Complete)
        };
        assert_eq!(
            converter.convert(event(BIG_TRANSFER, EventKind::Ended(Box::new(complete)))),
            [sample(1_700, 2, 820), DemoEvent::BigFileFinished(Duration::from_millis(1_700))]
        );
    }

    #[test]
    fn small_objects_have_the_load_of_their_request() {
        let mut converter = EventConverter::default();
        let end_small_object = |converter: &mut EventConverter, from_ms, to_ms, outcome| {
            let object = ended_object(SMALL_TRANSFER, from_ms, to_ms, outcome);
            converter.convert(event(SMALL_TRANSFER, EventKind::Ended(Box::new(object))))
        };
        let object = |at_ms, took_ms, load| {
            let (at, took) = (Duration::from_millis(at_ms), Duration::from_millis(took_ms));
            [DemoEvent::Object(SmallObject { requested_at: at, duration: took, load })]
        };
        let alone = end_small_object(&mut converter, 500, 560, Outcome::Complete);
        assert_eq!(alone, object(500, 60, BackgroundLoad::Unloaded));
        let requested = event(BIG_TRANSFER, EventKind::Requested { at_ns: 1_100 * NS_PER_MS });
        let started = converter.convert(requested);
        assert_eq!(started, [DemoEvent::BigFileStarted(Duration::from_millis(1_100))]);
        let before = end_small_object(&mut converter, 1_000, 1_200, Outcome::Complete);
        assert_eq!(before, object(1_000, 200, BackgroundLoad::Unloaded));
        let beside = end_small_object(&mut converter, 1_500, 1_900, Outcome::Complete);
        assert_eq!(beside, object(1_500, 400, BackgroundLoad::BigFile));
        let late = end_small_object(&mut converter, 2_000, 62_001, Outcome::Cancelled);
        let text = "A small object did not arrive within 60 seconds.";
        assert_eq!(late, [DemoEvent::Problem(text.into())]);
        assert_eq!(
            end_small_object(&mut converter, 2_000, 2_100, Outcome::Failed("reset".into())),
            []
        );
    }

    #[test]
    fn migrations_of_the_big_file_are_converted() {
        let record = MigrationRecord { at_ns: 7 * NS_PER_MS, bytes: 10, from: 1, to: 2 };
        let events =
            EventConverter::default().convert(event(BIG_TRANSFER, EventKind::Migrated(record)));
        let (from, to) = (ConnectionId(1), ConnectionId(2));
        assert_eq!(
            events,
            [DemoEvent::Migrated(Migration { observed_at: Duration::from_millis(7), from, to })]
        );
    }
}
