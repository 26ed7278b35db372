//! Senders that are known, and which of them another one is like.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sender::Sender;
use super::series::Series;
use super::spec::ProbeSpec;

/// A sender is one of those whose distance is among so many least.
const NEIGHBOURS: usize = 3;
/// A series may be farther from its class than the members of that are from each other, by this factor.
const TOLERANCE: f64 = 1.5;
/// What is nearer than this is the same, however alike the class is.
const MIN_TOLERANCE: f64 = 0.01;

/// A probe of a known sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who sent.
    pub sender: Sender,
    /// The object and the link.
    #[serde(flatten)]
    pub spec: ProbeSpec,
    /// What the queue did.
    pub series: Series,
}

/// Probes of known senders, as a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingSet {
    /// All of them.
    pub samples: Vec<Sample>,
}

/// Which known sender a probe is like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Classification {
    /// The known sender; `None` if it is like none of them, or as much like several.
    pub sender: Option<Sender>,
    /// The nearest one, and how far it is: the mean difference of the queues, in parts of a hundred packets.
    pub nearest: Sender,
    /// See [`Self::nearest`].
    pub distance: f64,
}

impl TrainingSet {
    /// Classifies a series by its nearest neighbours; `None` without samples.
    #[must_use]
    pub fn classify(&self, series: &Series) -> Option<Classification> {
        let all: Vec<_> = self.samples.iter().collect();
        classify(&all, series)
    }

    /// Returns a set without a class: to find out whether what is not known is called unknown.
    #[must_use]
    pub fn without(&self, sender: &Sender) -> Self {
        let samples = self.samples.iter().filter(|sample| sample.sender != *sender);
        Self { samples: samples.cloned().collect() }
    }
}

fn classify(samples: &[&Sample], series: &Series) -> Option<Classification> {
    let mut near: Vec<_> =
        samples.iter().map(|sample| (sample.series.distance(series), *sample)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0));
    let &(distance, nearest) = near.first()?;
    let mut sizes: BTreeMap<&Sender, usize> = BTreeMap::new();
    for sample in samples {
        *sizes.entry(&sample.sender).or_default() += 1;
    }
    // A class of one sample cannot have more votes.
    let neighbours = sizes.values().min().map_or(1, |least| NEIGHBOURS.min(*least));
    let mut votes: BTreeMap<&Sender, usize> = BTreeMap::new();
    for (_, sample) in near.iter().take(neighbours) {
        *votes.entry(&sample.sender).or_default() += 1;
    }
    // Of classes with as many votes, the nearest one's.
    let most = votes.values().max().copied().unwrap_or(0);
    let winner = if votes.get(&nearest.sender) == Some(&most) {
        &nearest.sender
    } else {
        votes.iter().find(|(_, count)| **count == most).map_or(&nearest.sender, |(name, _)| name)
    };
    let members: Vec<_> = samples.iter().filter(|sample| sample.sender == *winner).collect();
    let to_winner = members.iter().map(|member| member.series.distance(series));
    let to_winner = to_winner.fold(f64::INFINITY, f64::min);
    // A series that ends before the classes part is like several.
    let others = near.iter().filter(|(_, sample)| sample.sender != *winner);
    let to_other = others.map(|(distance, _)| *distance).fold(f64::INFINITY, f64::min);
    let is_known = to_winner <= (usual_distance(&members) * TOLERANCE).max(MIN_TOLERANCE)
        && to_other > to_winner + MIN_TOLERANCE / 4.0;
    Some(Classification {
        sender: is_known.then(|| winner.clone()),
        nearest: nearest.sender.clone(),
        distance,
    })
}

/// Returns how far the members of a class are from their nearest other member, at most.
fn usual_distance(members: &[&&Sample]) -> f64 {
    let nearest_other = |index: usize| {
        let others = members.iter().enumerate().filter(|(other, _)| *other != index);
        let distances = others.map(|(_, other)| other.series.distance(&members[index].series));
        distances.fold(f64::INFINITY, f64::min)
    };
    let distances = (0..members.len()).map(nearest_other);
    distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::{QueuePoint, QueueTrace};

    const SPEC: ProbeSpec = ProbeSpec { object_bytes: 320_000, mtu: 500, rtt_ms: 100 };

    /// A queue that grows to this level within a second, and stays.
    fn sample(name: &str, level: f64) -> Sample {
        let point = |step: u32| QueuePoint {
            at_s: f64::from(step) * 0.01,
            packets: (f64::from(step) * level / 100.0).min(level) as u32 + step % 2,
        };
        let queue = (0..300).map(point).collect();
        let trace = QueueTrace { queue, drops_s: vec![], windows: vec![], received_bytes: 1 };
        Sample { sender: name.parse().unwrap(), spec: SPEC, series: Series::new(&SPEC, &trace) }
    }

    #[test]
    fn the_nearest_known_sender_is_named_and_what_is_far_from_all_is_unknown() {
        let set = TrainingSet {
            samples: [("reno", 90.0), ("reno", 94.0), ("bbr", 20.0), ("bbr", 23.0), ("bbr", 25.0)]
                .map(|(name, level)| sample(name, level))
                .to_vec(),
        };
        let classify = |level| set.classify(&sample("vegas", level).series).unwrap();
        let name = |level| classify(level).sender.map(|sender| sender.to_string());
        assert_eq!(name(92.0).as_deref(), Some("reno"));
        assert_eq!(name(21.0).as_deref(), Some("bbr"));
        assert_eq!(name(55.0), None, "{:?}", classify(55.0));
        let left_out = set.without(&"reno".parse().unwrap());
        assert_eq!(left_out.classify(&sample("reno", 92.0).series).unwrap().sender, None);
        let one_each = TrainingSet { samples: vec![sample("reno", 90.0), sample("bbr", 20.0)] };
        let known = one_each.classify(&sample("vegas", 90.0).series).unwrap();
        assert_eq!(known.sender.map(|sender| sender.to_string()).as_deref(), Some("reno"));
        let same = TrainingSet { samples: vec![sample("reno", 20.0), sample("bbr", 20.0)] };
        assert_eq!(same.classify(&sample("bbr", 20.0).series).unwrap().sender, None, "like both");
        assert_eq!(TrainingSet::default().classify(&sample("bbr", 20.0).series), None);
    }

    #[test]
    fn a_file_can_be_read_again() {
        let set = TrainingSet { samples: vec![sample("cubic-hystart", 50.0)] };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<TrainingSet>(&text).unwrap(), set);
        assert!(serde_json::from_str::<TrainingSet>(&text.replace("cubic-", "../")).is_err());
    }
}
