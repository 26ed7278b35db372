//! Senders that are known, and which of them another one is like.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::sender::Sender;
use super::series::Series;
use super::spec::ProbeSpec;

/// A series may be farther from a class than the members of that over one link are from each other, by this factor.
const SAME_LINK_TOLERANCE: f64 = 1.5;
/// The same for members over different links. One between two links that are known is half as far from the nearer one as these are from each
/// other; half as much again is allowed.
const OTHER_LINK_TOLERANCE: f64 = 0.75;
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
#[derive(Debug, Clone)]
struct Class<'a> {
    members: Vec<&'a Sample>,
    /// How far a series may be from the nearest of them.
    tolerance: f64,
}

/// Compares probes with known senders.
#[derive(Debug, Clone)]
pub struct Classifier<'a> {
    /// By sender, with and without SACK: what a sender does after its first losses depends on that.
    classes: BTreeMap<(&'a Sender, bool), Class<'a>>,
}

impl<'a> Classifier<'a> {
    /// Prepares the comparison.
    #[must_use]
    pub fn new(known: &'a KnownSenders) -> Self {
        let mut members: BTreeMap<(&Sender, bool), Vec<&Sample>> = BTreeMap::new();
        for sample in &known.samples {
            members.entry((&sample.sender, sample.spec.sack)).or_default().push(sample);
        }
        let class = |(name, members): ((&'a Sender, bool), Vec<&'a Sample>)| {
            let tolerance = tolerance(&members);
            (name, Class { members, tolerance })
        };
        Self { classes: members.into_iter().map(class).collect() }
    }

    /// Forgets a sender: its probes should be unknown then.
    #[must_use]
    pub fn without(mut self, sender: &Sender) -> Self {
        self.classes.retain(|(name, _), _| *name != sender);
        self
    }

    /// Compares the series of a probe with each known sender by its nearest probe; `None` without any that was measured with SACK as this one
    /// was.
    #[must_use]
    pub fn classify(&self, spec: &ProbeSpec, series: &Series) -> Option<Classification> {
        let alike = self.classes.iter().filter(|((_, sack), _)| *sack == spec.sack);
        let distances: Vec<_> =
            alike.map(|((name, _), class)| (class.distance(series), *name, class)).collect();
        let &(distance, nearest, _) = distances.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let is_like = |(own, _, class): &&(f64, &Sender, &Class<'_>)| {
            *own <= distance + MIN_DIFFERENCE && *own <= class.tolerance
        };
        let senders =
            distances.iter().filter(is_like).map(|(_, name, _)| (*name).clone()).collect();
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
}

/// Returns how far a probe may be from the nearest member of a class, by how far the members are from each other.
fn tolerance(members: &[&Sample]) -> f64 {
    let link = |sample: &Sample| (sample.spec.rtt_ms, sample.spec.mtu);
    let nearest = |index: usize, is_same_link: bool| {
        let others = (0..members.len()).filter(|other| {
            *other != index && (link(members[*other]) == link(members[index])) == is_same_link
        });
        let distances = others.map(|other| members[other].series.distance(&members[index].series));
        distances.fold(f64::INFINITY, f64::min)
    };
    let largest = |is_same_link| {
        let distances = (0..members.len()).map(|index| nearest(index, is_same_link));
        distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max)
    };
    MIN_TOLERANCE
        .max(largest(true) * SAME_LINK_TOLERANCE)
        .max(largest(false) * OTHER_LINK_TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::{QueuePoint, QueueTrace};

    const SPEC: ProbeSpec = ProbeSpec { object_bytes: 320_000, mtu: 500, rtt_ms: 100, sack: false };

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
        let classifier = Classifier::new(&set);
        let classify = |level| classifier.classify(&SPEC, &sample("vegas", level).series).unwrap();
        assert_eq!(classify(92.0).to_string(), "reno");
        assert_eq!(classify(21.0).to_string(), "bbr");
        assert_eq!(classify(55.0).to_string(), "unknown");
        let left_out = Classifier::new(&set).without(&"reno".parse().unwrap());
        let unknown = left_out.classify(&SPEC, &sample("reno", 92.0).series).unwrap();
        assert_eq!(
            (unknown.to_string().as_str(), unknown.nearest.to_string().as_str()),
            ("unknown", "bbr")
        );
        let one_each = KnownSenders { samples: vec![sample("reno", 90.0), sample("bbr", 20.0)] };
        let known =
            Classifier::new(&one_each).classify(&SPEC, &sample("vegas", 90.0).series).unwrap();
        assert_eq!(known.to_string(), "reno", "one probe is enough");
        let same = KnownSenders { samples: vec![sample("reno", 20.0), sample("bbr", 20.0)] };
        let both = Classifier::new(&same).classify(&SPEC, &sample("bbr", 20.0).series).unwrap();
        assert_eq!(both.to_string(), "bbr or reno", "they do not differ");
        let with_sack = ProbeSpec { sack: true, ..SPEC };
        let other = Classifier::new(&same).classify(&with_sack, &sample("bbr", 20.0).series);
        assert_eq!(other, None, "nothing is known of senders with SACK");
        let nothing = KnownSenders::default();
        assert_eq!(Classifier::new(&nothing).classify(&SPEC, &sample("bbr", 20.0).series), None);
    }

    #[test]
    fn a_file_can_be_read_again() {
        let set = KnownSenders { samples: vec![sample("cubic-hystart", 50.0)] };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<KnownSenders>(&text).unwrap(), set);
        assert!(serde_json::from_str::<KnownSenders>(&text.replace("cubic-", "../")).is_err());
    }
}
