//! How well senders are told by probes that were not learnt, and what is said of a sender that nobody has learnt.

use serde::Serialize;
use smig_chart::html::{Align, Table};

use super::known::{Classifier, KnownSenders, Sample};
use super::sender::Sender;
use super::table::confusion_of;

/// How well one sender is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SenderAccuracy {
    /// The sender.
    pub sender: Sender,
    /// Number of its probes.
    pub probes: usize,
    /// Of these, those that are called by its name, and no other.
    pub right: usize,
    /// Of these, those that may be of it or of others.
    pub ambiguous: usize,
    /// Of these, those that are called unknown if it is not among the known senders.
    pub unknown_if_left_out: usize,
}

/// How well the senders of some probes are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Accuracy {
    /// By sender, in the order of their names.
    pub senders: Vec<SenderAccuracy>,
    /// The confusion matrix; `None` without probes.
    pub confusion: Option<Table>,
    /// Number of probes that are compared with nothing: no known sender was measured with SACK as they were.
    pub skipped: usize,
}

impl Accuracy {
    /// Compares probes of senders with those that are known.
    #[must_use]
    pub fn of(known: &KnownSenders, probes: &[Sample]) -> Self {
        let classifier = Classifier::new(known);
        let likes: Vec<_> = probes
            .iter()
            .filter_map(|probe| Some((probe, classifier.classify(&probe.spec, &probe.series)?)))
            .collect();
        let mut senders: Vec<&Sender> = probes.iter().map(|probe| &probe.sender).collect();
        senders.sort();
        senders.dedup();
        let of_sender = |sender: &Sender| {
            let own = likes.iter().filter(|(probe, _)| probe.sender == *sender);
            let is_like = |like: &[Sender]| like.contains(sender);
            let left_out = classifier.clone().without(sender);
            let is_unknown = |probe: &Sample| {
                left_out
                    .classify(&probe.spec, &probe.series)
                    .is_none_or(|like| like.senders.is_empty())
            };
            SenderAccuracy {
                sender: sender.clone(),
                probes: own.clone().count(),
                right: own.clone().filter(|(_, like)| like.senders == [sender.clone()]).count(),
                ambiguous: own
                    .clone()
                    .filter(|(_, like)| like.senders.len() > 1 && is_like(&like.senders))
                    .count(),
                unknown_if_left_out: own.filter(|(probe, _)| is_unknown(probe)).count(),
            }
        };
        let compared: Vec<_> = likes.iter().map(|(probe, like)| (&probe.sender, like)).collect();
        Self {
            senders: senders.into_iter().map(of_sender).collect(),
            confusion: confusion_of(&compared),
            skipped: probes.len() - likes.len(),
        }
    }
}

/// Returns a row for each sender, and one for all.
#[must_use]
pub fn accuracy_table(accuracy: &Accuracy) -> Table {
    let columns = [
        ("sender", Align::Left),
        ("probes", Align::Right),
        ("right", Align::Right),
        ("or others", Align::Right),
        ("unknown if left out", Align::Right),
    ];
    let cell = |count: usize, of: usize| {
        let percent = 100.0 * count as f64 / of.max(1) as f64;
        format!("{count} ({percent:.1} %)")
    };
    let row = |name: String, probes: usize, counts: [usize; 3]| {
        let cells = counts.map(|count| cell(count, probes));
        [name, probes.to_string()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let sum = |count: fn(&SenderAccuracy) -> usize| accuracy.senders.iter().map(count).sum();
    let mut rows: Vec<_> = accuracy
        .senders
        .iter()
        .map(|one| {
            let counts = [one.right, one.ambiguous, one.unknown_if_left_out];
            row(one.sender.to_string(), one.probes, counts)
        })
        .collect();
    let all = [sum(|one| one.right), sum(|one| one.ambiguous), sum(|one| one.unknown_if_left_out)];
    rows.push(row("all".to_owned(), sum(|one| one.probes), all));
    Table { columns: columns.map(|(name, align)| (name.to_owned(), align)).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::{ProbeSpec, QueuePoint, QueueTrace, Series};

    const SPEC: ProbeSpec = ProbeSpec { object_bytes: 320_000, mtu: 500, rtt_ms: 100, sack: true };

    /// A queue that stays at this level for three seconds.
    fn sample(name: &str, level: u32) -> Sample {
        let point =
            |step: u32| QueuePoint { at_s: f64::from(step) * 0.01, packets: level + step % 2 };
        let trace = QueueTrace {
            queue: (0..300).map(point).collect(),
            drops_s: vec![],
            windows: vec![],
            received_bytes: 1,
        };
        Sample { sender: name.parse().unwrap(), spec: SPEC, series: Series::new(&SPEC, &trace) }
    }

    #[test]
    fn a_sender_is_right_ambiguous_or_unknown() {
        let known = KnownSenders {
            samples: vec![sample("reno", 90), sample("cubic", 60), sample("yeah", 60)],
        };
        let probes =
            [sample("reno", 90), sample("reno", 30), sample("cubic", 60), sample("yeah", 90)];
        let accuracy = Accuracy::of(&known, &probes);
        let counts: Vec<_> = accuracy
            .senders
            .iter()
            .map(|one| (one.probes, one.right, one.ambiguous, one.unknown_if_left_out))
            .collect();
        // Cubic's probe is like yeah, too, also if cubic is not known; yeah's is like reno.
        assert_eq!(counts, [(1, 0, 1, 0), (2, 1, 0, 2), (1, 0, 0, 0)]);
        let table = accuracy_table(&accuracy);
        assert_eq!(table.rows[3], ["all", "4", "1 (25.0 %)", "1 (25.0 %)", "2 (50.0 %)"]);
        assert_eq!(accuracy.confusion.unwrap().rows.len(), 3);
        assert_eq!(accuracy.skipped, 0);
        let without_sack = ProbeSpec { sack: false, ..SPEC };
        let other = Sample { spec: without_sack, ..sample("reno", 90) };
        assert_eq!(Accuracy::of(&known, &[other]).skipped, 1);
        let nothing = Accuracy::of(&known, &[]);
        assert_eq!((nothing.senders.len(), nothing.confusion), (0, None));
    }
}
