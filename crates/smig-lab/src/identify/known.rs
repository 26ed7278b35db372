//! Senders that are known, and which of them another one is like.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::sender::Sender;
use super::series::Series;
use super::spec::ProbeSpec;

/// A series may be farther from a class than the members of that are from each other, by this factor.
const TOLERANCE: f64 = 1.5;
/// What is nearer than this is the same, however alike the class is.
const MIN_TOLERANCE: f64 = 0.01;
/// Classes whose distances differ by less than this cannot be told apart.
const MIN_DIFFERENCE: f64 = 0.0025;
/// A sample that is shorter than this part of a series says nothing of its rest.
const MIN_LENGTH_SHARE: f64 = 0.75;

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
pub struct KnownSenders {
    /// All of them.
    pub samples: Vec<Sample>,
}

/// Which known senders a probe is like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Classification {
    /// The known senders that it may be, all as well: several where the object ends before they differ, none if it is unknown.
    pub senders: Vec<Sender>,
    /// The nearest one, and how far it is: the mean difference of the queues, in parts of a hundred packets.
    pub nearest: Sender,
    /// See [`Self::nearest`].
    pub distance: f64,
}

impl fmt::Display for Classification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.senders.iter().map(Sender::to_string).collect();
        f.pad(&if names.is_empty() { "unknown".to_owned() } else { names.join(" or ") })
    }
}

/// The known probes of one sender.
struct Class<'a> {
    members: Vec<&'a Sample>,
}

impl KnownSenders {
    /// Compares a series with each known sender by its nearest probe; `None` without any.
    #[must_use]
    pub fn classify(&self, series: &Series) -> Option<Classification> {
        let mut classes: BTreeMap<&Sender, Class<'_>> = BTreeMap::new();
        for sample in &self.samples {
            let class = classes.entry(&sample.sender).or_insert(Class { members: Vec::new() });
            class.members.push(sample);
        }
        let distances: Vec<_> =
            classes.iter().map(|(name, class)| (class.distance(series), *name)).collect();
        let &(distance, nearest) = distances.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let is_like = |(own, name): &&(f64, &Sender)| {
            *own <= distance + MIN_DIFFERENCE
                && classes.get(name).is_some_and(|class| *own <= class.tolerance())
        };
        let senders = distances.iter().filter(is_like).map(|(_, name)| (*name).clone()).collect();
        Some(Classification { senders, nearest: nearest.clone(), distance })
    }
}

impl Class<'_> {
    /// Returns the distance to the nearest member that is long enough, if any is.
    fn distance(&self, series: &Series) -> f64 {
        let least_length = series.len() as f64 * MIN_LENGTH_SHARE;
        let is_long = |sample: &&Sample| sample.series.len() as f64 >= least_length;
        let has_long = self.members.iter().any(is_long);
        let members = self.members.iter().copied().filter(|sample| !has_long || is_long(sample));
        members.map(|sample| sample.series.distance(series)).fold(f64::INFINITY, f64::min)
    }

    fn tolerance(&self) -> f64 {
        (usual_distance(&self.members) * TOLERANCE).max(MIN_TOLERANCE)
    }
}

/// Returns how far the members of a class are from their nearest other member, at most: of those over another link or with another
/// object, if there are any, since repetitions on the same link hardly differ.
fn usual_distance(members: &[&Sample]) -> f64 {
    let nearest = |index: usize, is_other: &dyn Fn(usize) -> bool| {
        let others = (0..members.len()).filter(|other| *other != index && is_other(*other));
        let distances = others.map(|other| members[other].series.distance(&members[index].series));
        distances.fold(f64::INFINITY, f64::min)
    };
    let nearest_other = |index: usize| {
        let elsewhere = nearest(index, &|other| members[other].spec != members[index].spec);
        if elsewhere.is_finite() { elsewhere } else { nearest(index, &|_| true) }
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
        let set = KnownSenders {
            samples: [("reno", 90.0), ("reno", 94.0), ("bbr", 20.0), ("bbr", 23.0), ("bbr", 25.0)]
                .map(|(name, level)| sample(name, level))
                .to_vec(),
        };
        let classify = |level| set.classify(&sample("vegas", level).series).unwrap();
        assert_eq!(classify(92.0).to_string(), "reno");
        assert_eq!(classify(21.0).to_string(), "bbr");
        assert_eq!(classify(55.0).to_string(), "unknown");
        let others = set.samples.iter().filter(|sample| sample.sender.to_string() != "reno");
        let left_out = KnownSenders { samples: others.cloned().collect() };
        let unknown = left_out.classify(&sample("reno", 92.0).series).unwrap();
        assert_eq!(
            (unknown.to_string().as_str(), unknown.nearest.to_string().as_str()),
            ("unknown", "bbr")
        );
        let one_each = KnownSenders { samples: vec![sample("reno", 90.0), sample("bbr", 20.0)] };
        let known = one_each.classify(&sample("vegas", 90.0).series).unwrap();
        assert_eq!(known.to_string(), "reno", "one probe is enough");
        let same = KnownSenders { samples: vec![sample("reno", 20.0), sample("bbr", 20.0)] };
        let both = same.classify(&sample("bbr", 20.0).series).unwrap();
        assert_eq!(both.to_string(), "bbr or reno", "they do not differ");
        assert_eq!(KnownSenders::default().classify(&sample("bbr", 20.0).series), None);
    }

    #[test]
    fn a_file_can_be_read_again() {
        let set = KnownSenders { samples: vec![sample("cubic-hystart", 50.0)] };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<KnownSenders>(&text).unwrap(), set);
        assert!(serde_json::from_str::<KnownSenders>(&text.replace("cubic-", "../")).is_err());
    }
}
