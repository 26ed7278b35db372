//! Converts the observation of a run's clients to timeline entries.

use smig_chart::format_bytes;
use smig_link::Time;

use crate::timeline::{
    Column, ConnectionName, Span, SpanOutcome, Subject, Timeline, Track, micros_after,
};
use crate::workload::{self, ObjectResult, Observation};

/// Adds every object to a timeline: a span, and the bytes that its connections carried over time. A
/// connection is named by its client's end, or by its number (`c1`) if that is unknown.
pub fn add_observation(timeline: &mut Timeline, observation: &Observation) {
    let start = Time::from_nanos(observation.start_monotonic_ns);
    let origin = timeline.origin();
    let micros = |ns: u64| micros_after(origin, Time::from_nanos(start.as_nanos() + ns));
    let name_of = |number: u32| {
        let record = observation.connections.iter().find(|record| record.number == number);
        ConnectionName(
            record.map_or_else(|| format!("c{number}"), |record| record.client.to_string()),
        )
    };
    for object in &observation.objects {
        let name = span_name(&object.name, object.number);
        timeline.spans.push(Span {
            name: name.clone(),
            group: format!("{}, {}", object.name, format_bytes(object.size)),
            from_us: micros(object.started_ns),
            first_byte_us: object.first_byte_ns.map(micros),
            to_us: micros(object.ended_ns.max(object.started_ns)),
            bytes: object.bytes,
            connection: ConnectionHistory::of(object).last().map(name_of),
            outcome: span_outcome(&object.outcome),
            part: None,
        });
        timeline.tracks.extend(tracks(object, &name, &name_of, &micros));
    }
    timeline.spans.sort_by_key(|span| span.from_us);
}

/// Returns the name of an object's span.
pub(super) fn span_name(object: &str, number: u32) -> String {
    format!("{object} {}", number + 1)
}

pub(super) const fn span_outcome(outcome: &workload::Outcome) -> SpanOutcome {
    match outcome {
        workload::Outcome::Complete => SpanOutcome::Complete,
        workload::Outcome::Cancelled => SpanOutcome::Cancelled,
        workload::Outcome::TimedOut => SpanOutcome::Unfinished,
        workload::Outcome::Damaged | workload::Outcome::Failed(_) => SpanOutcome::Failed,
    }
}

/// Connections of a stream in order, each with the stream offset at which it took over.
struct ConnectionHistory(Vec<(u32, u64)>);

impl ConnectionHistory {
    fn of(object: &ObjectResult) -> Self {
        let first = object.migrations.first().map(|migration| migration.from);
        let first = first.or_else(|| object.connections.first().map(|by| by.connection));
        let migrations = object.migrations.iter().map(|migration| (migration.to, migration.bytes));
        Self(first.map(|first| (first, 0)).into_iter().chain(migrations).collect())
    }

    fn last(&self) -> Option<u32> {
        self.0.last().map(|(connection, _)| *connection)
    }

    /// Returns how many of the first `total` bytes a connection carried.
    fn bytes_carried(&self, connection: u32, total: u64) -> u64 {
        let ends = self.0.iter().skip(1).map(|(_, from)| *from).chain([u64::MAX]);
        let parts = self.0.iter().zip(ends).filter(|((by, _), _)| *by == connection);
        parts.map(|((_, from), end)| total.min(end).saturating_sub(*from)).sum()
    }
}

fn tracks(
    object: &ObjectResult,
    name: &str,
    name_of: &dyn Fn(u32) -> ConnectionName,
    micros: &dyn Fn(u64) -> u64,
) -> Vec<Track> {
    let history = ConnectionHistory::of(object);
    let mut connections: Vec<u32> = history.0.iter().map(|(connection, _)| *connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let end_point = (object.ended_ns, object.bytes);
    let progress = || object.progress.iter().map(|point| (point.0, point.1)).chain([end_point]);
    connections
        .into_iter()
        .map(|connection| {
            let (name, connection_name) = (name.to_owned(), name_of(connection));
            let mut track = Track::new(Subject::Stream { name, connection: connection_name });
            for (at_ns, total_bytes) in progress() {
                let bytes = history.bytes_carried(connection, total_bytes);
                if bytes > track.last(Column::CarriedBytes).unwrap_or(0) {
                    track.push(micros(at_ns), &[(Column::CarriedBytes, bytes)]);
                }
            }
            track
        })
        .filter(|track| !track.at_us.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{SizeClass, TransferDirection};
    use crate::workload::{
        ConnectionBytes, ConnectionRecord, MigrationRecord, ProgressPoint, RequestPhases,
    };

    fn migrated_object() -> ObjectResult {
        ObjectResult {
            name: "big".into(),
            number: 0,
            client: "user".into(),
            size_class: SizeClass::Large,
            direction: TransferDirection::Download,
            size: 3_000,
            started_ns: 1_000_000,
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: Some(2_000_000),
            ended_ns: 9_000_000,
            bytes: 3_000,
            connections: vec![
                ConnectionBytes { connection: 1, bytes: 1_000 },
                ConnectionBytes { connection: 2, bytes: 2_000 },
            ],
            migrations: vec![MigrationRecord { at_ns: 4_000_000, bytes: 1_000, from: 1, to: 2 }],
            outcome: workload::Outcome::Complete,
            cancel: None,
            progress: vec![ProgressPoint(3_000_000, 500), ProgressPoint(5_000_000, 1_500)],
        }
    }

    #[test]
    fn bytes_are_attributed_to_the_connection_that_carried_them() {
        let observation = Observation {
            pages: Vec::new(),
            frames: Vec::new(),
            start_monotonic_ns: 50_000_000,
            ended_ns: 9_000_000,
            objects: vec![migrated_object()],
            connections: vec![ConnectionRecord {
                number: 2,
                client: ([10, 99, 0, 2], 41_230).into(),
            }],
        };
        let mut timeline = Timeline::new("t", Time::from_nanos(40_000_000));
        add_observation(&mut timeline, &observation);
        let points =
            |index: usize| timeline.tracks[index].points(Column::CarriedBytes).collect::<Vec<_>>();
        assert_eq!(points(0), [(13_000, 500), (15_000, 1_000)]);
        assert_eq!(points(1), [(15_000, 500), (19_000, 2_000)]);
        let span = &timeline.spans[0];
        assert_eq!((span.from_us, span.first_byte_us, span.to_us), (11_000, Some(12_000), 19_000));
        assert_eq!(span.connection, Some(ConnectionName("10.99.0.2:41230".into())));
        let stream_subject =
            Subject::Stream { name: "big 1".into(), connection: ConnectionName("c1".into()) };
        assert_eq!(timeline.tracks[0].subject, stream_subject, "the client's address is unknown");
        assert_eq!((span.name.as_str(), span.group.as_str()), ("big 1", "big, 3 kB"));
    }

    #[test]
    fn an_object_without_bytes_has_no_track() {
        let mut object = migrated_object();
        (object.connections, object.migrations, object.bytes) = (Vec::new(), Vec::new(), 0);
        object.outcome = workload::Outcome::Failed("reset".into());
        let mut timeline = Timeline::new("t", Time::ZERO);
        let observation = Observation { objects: vec![object], ..Observation::default() };
        add_observation(&mut timeline, &observation);
        assert_eq!(timeline.tracks, []);
        assert_eq!(
            (timeline.spans[0].outcome, &timeline.spans[0].connection),
            (SpanOutcome::Failed, &None)
        );
    }
}
