//! What the runs of one arm in one cell say: the times of the objects, and the rate of the bulk.

use serde::Serialize;
use smig_stats::{Run, Summary};

use crate::trial::TrialResult;
use crate::workload::{ObjectResult, Outcome};

/// Transfers whose names begin so are bulk.
const BULK_PREFIX: &str = "big";
/// The client that is measured; others are cross traffic.
const CLIENT: &str = "user";

/// Measurement of one arm in one cell, all repetitions together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Number of runs.
    pub runs: usize,
    /// Of these, runs that the machine disturbed.
    pub disturbed_runs: usize,
    /// Number of objects that were requested while bulk was on its way.
    pub objects: usize,
    /// Mean time of an object, in milliseconds. An object that was not complete counts until it was given up.
    pub mean_ms: f64,
    /// 95th percentile of the times, in milliseconds.
    pub p95_ms: f64,
    /// Rate of the bulk while there was any, in Mbit/s; 0 without.
    pub bulk_mbit: f64,
    /// Rate of the bulk and the objects together during that time, in Mbit/s. An arm that leaves the objects waiting has more
    /// of the link for its bulk: this is what both leave of the link.
    pub total_mbit: f64,
    /// Rate of other users in Mbit/s, if there are any: of what they began beside bulk, over its time.
    pub other_mbit: Option<f64>,
    /// Number of objects and of bulk transfers that failed.
    pub failed: usize,
    /// The times of the objects, in milliseconds, by run.
    #[serde(skip)]
    pub times_ms: Vec<Run>,
}

/// Sums over runs.
#[derive(Debug, Default)]
struct Sums {
    times_ms: Vec<f64>,
    object_bytes: f64,
    bulk_bytes: u64,
    bulk_s: f64,
    other_bytes: u64,
    other_s: f64,
    failed: usize,
}

impl Measurement {
    /// Evaluates runs of one arm in one cell; `is_reference`: they have no bulk, and all objects count. `None` if
    /// there is no object.
    #[must_use]
    pub fn of(results: &[&TrialResult], is_reference: bool) -> Option<Self> {
        let mut sums = Sums::default();
        let mut times_ms = Vec::new();
        for result in results {
            let earlier = sums.times_ms.len();
            sums.add(&result.observation.objects, is_reference);
            times_ms.push(Run { seed: result.seed, values: sums.times_ms[earlier..].to_vec() });
        }
        let summary = Summary::of(&sums.times_ms)?;
        let mbit = |bytes: f64, seconds: f64| bytes * 8e-6 / seconds.max(1e-9);
        let bulk_bytes = if is_reference { 0.0 } else { sums.bulk_bytes as f64 };
        Some(Self {
            runs: results.len(),
            disturbed_runs: results.iter().filter(|result| !result.disturbed.is_empty()).count(),
            objects: summary.n,
            mean_ms: summary.mean,
            p95_ms: summary.p95,
            bulk_mbit: mbit(bulk_bytes, sums.bulk_s),
            total_mbit: mbit(bulk_bytes + sums.object_bytes, sums.bulk_s),
            other_mbit: (sums.other_s > 0.0).then(|| mbit(sums.other_bytes as f64, sums.other_s)),
            failed: sums.failed,
            times_ms,
        })
    }
}

impl Sums {
    fn add(&mut self, objects: &[ObjectResult], is_reference: bool) {
        let (ours, others): (Vec<_>, Vec<_>) =
            objects.iter().partition(|object| object.client == CLIENT);
        let (bulk, small): (Vec<&ObjectResult>, Vec<&ObjectResult>) =
            ours.into_iter().partition(|object| object.name.starts_with(BULK_PREFIX));
        let is_beside_bulk = |object: &ObjectResult| {
            bulk.iter().any(|big| (big.started_ns..big.ended_ns).contains(&object.started_ns))
        };
        let bulk_spans = spans(&bulk);
        for object in small {
            let beside_s = overlap_seconds(object, &bulk_spans);
            self.object_bytes += object.bytes as f64 * beside_s / object.duration_s().max(1e-9);
            if is_reference || is_beside_bulk(object) {
                self.times_ms.push(object.duration_s() * 1e3);
                self.failed += usize::from(object.outcome != Outcome::Complete);
            }
        }
        self.failed += bulk
            .iter()
            .filter(|big| !matches!(big.outcome, Outcome::Complete | Outcome::Cancelled))
            .count();
        self.bulk_bytes += bulk.iter().map(|big| big.bytes).sum::<u64>();
        let bulk_s = busy_seconds(&bulk);
        self.bulk_s += bulk_s;
        // Of others, only transfers that began while our bulk was on its way.
        let counted = others.iter().filter(|object| is_reference || is_beside_bulk(object));
        self.other_bytes += counted.map(|object| object.bytes).sum::<u64>();
        let others_s = if is_reference { busy_seconds(&others) } else { bulk_s };
        self.other_s += if others.is_empty() { 0.0 } else { others_s };
    }
}

/// Returns the spans, in nanoseconds, in which at least one of the objects was on its way, in order and apart.
fn spans(objects: &[&ObjectResult]) -> Vec<(u64, u64)> {
    let mut all: Vec<_> =
        objects.iter().map(|object| (object.started_ns, object.ended_ns)).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Returns the seconds in which at least one of the objects was on its way.
fn busy_seconds(objects: &[&ObjectResult]) -> f64 {
    spans(objects).iter().map(|(from, to)| to.saturating_sub(*from)).sum::<u64>() as f64 / 1e9
}

/// Returns for how many seconds of these spans the object was on its way.
fn overlap_seconds(object: &ObjectResult, spans: &[(u64, u64)]) -> f64 {
    let overlap = |(from, to): &(u64, u64)| {
        object.ended_ns.min(*to).saturating_sub(object.started_ns.max(*from))
    };
    spans.iter().map(overlap).sum::<u64>() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{SizeClass, TransferDirection};
    use crate::workload::RequestPhases;

    const MS: u64 = 1_000_000;

    fn object(client: &str, name: &str, from_ms: u64, to_ms: u64, bytes: u64) -> ObjectResult {
        ObjectResult {
            name: name.into(),
            number: 0,
            client: client.into(),
            size_class: SizeClass::Small,
            direction: TransferDirection::Download,
            size: bytes,
            started_ns: from_ms * MS,
            phases: RequestPhases::default(),
            head_ns: None,
            first_byte_ns: None,
            ended_ns: to_ms * MS,
            bytes,
            connections: Vec::new(),
            migrations: Vec::new(),
            outcome: Outcome::Complete,
            cancel: None,
            progress: Vec::new(),
        }
    }

    fn sums(objects: &[ObjectResult], is_reference: bool) -> Sums {
        let mut sums = Sums::default();
        sums.add(objects, is_reference);
        sums
    }

    #[test]
    fn only_what_happens_beside_the_bulk_counts() {
        let objects = [
            object("user", "small", 0, 50, 10_000),
            object("user", "big", 1_000, 3_000, 2_000_000),
            object("user", "big-2", 2_000, 4_000, 1_000_000),
            object("user", "small", 1_500, 1_600, 10_000),
            object("user", "again", 3_900, 4_200, 10_000),
            object("user", "small", 4_000, 4_050, 10_000),
            object("other", "other", 500, 1_000, 700_000),
            object("other", "other", 1_000, 1_500, 500_000),
        ];
        let beside = sums(&objects, false);
        assert_eq!(beside.times_ms, [100.0, 300.0]);
        assert_eq!((beside.bulk_bytes, beside.other_bytes), (3_000_000, 500_000));
        // Of the object from 3,900 to 4,200 ms a third: the bulk ended at 4,000.
        assert!((beside.object_bytes - (10_000.0 + 10_000.0 / 3.0)).abs() < 1.0);
        // Overlapping bulk counts once.
        assert!((beside.bulk_s - 3.0).abs() < 1e-9 && (beside.other_s - 3.0).abs() < 1e-9);
        assert_eq!(sums(&objects, true).times_ms.len(), 4, "the reference has all");
        assert_eq!(sums(&objects, true).other_bytes, 1_200_000);
    }

    #[test]
    fn objects_that_were_given_up_count_as_long_as_they_lasted() {
        let mut objects = [
            object("user", "big", 0, 10_000, 0),
            object("user", "small", 1_000, 9_000, 0),
            object("user", "small", 2_000, 2_060, 10_000),
        ];
        objects[0].outcome = Outcome::Cancelled;
        objects[1].outcome = Outcome::TimedOut;
        let found = sums(&objects, false);
        assert_eq!((found.failed, found.times_ms), (1, vec![8_000.0, 60.0]));
        objects[0].outcome = Outcome::Failed("reset".into());
        assert_eq!(sums(&objects, false).failed, 2);
    }
}
