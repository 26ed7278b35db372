//! Packet loss on the wire, independent or in bursts.
//!
//! A lost packet still occupies the wire for its serialisation time.

use serde::{Deserialize, Serialize};

use super::SpecError;
use super::random::{Purpose, Random};

/// The loss model of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LossSpec {
    /// Each packet is lost with this probability, independently.
    Random(f64),
    /// Packets are lost in bursts (Gilbert-Elliott model).
    Bursts(GilbertElliott),
}

/// Parameters of [`LossSpec::Bursts`]: the link is good or bad, and may change with each packet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// The probability that a good link turns bad.
    #[serde(rename = "enter")]
    pub good_to_bad: f64,
    /// The probability that a bad link turns good: 1 / the mean length of a burst, in packets.
    #[serde(rename = "leave")]
    pub bad_to_good: f64,
    /// The probability that a packet is lost on the bad link.
    #[serde(default = "one", rename = "inside")]
    pub loss_bad: f64,
    /// The probability that a packet is lost on the good link.
    #[serde(default, rename = "outside")]
    pub loss_good: f64,
}

const fn one() -> f64 {
    1.0
}

impl GilbertElliott {
    /// Returns the share of packets for which the link is bad.
    fn bad(&self) -> f64 {
        let change = self.good_to_bad + self.bad_to_good;
        if change > 0.0 { self.good_to_bad / change } else { 0.0 }
    }
}

impl LossSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let values = match self {
            Self::Random(share) => vec![("loss.random", *share)],
            Self::Bursts(GilbertElliott {
                good_to_bad: enter,
                bad_to_good: leave,
                loss_bad: inside,
                loss_good: outside,
            }) => vec![
                ("loss.bursts.enter", *enter),
                ("loss.bursts.leave", *leave),
                ("loss.bursts.inside", *inside),
                ("loss.bursts.outside", *outside),
            ],
        };
        match values.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            Some((key, value)) => Err(SpecError::Value(format!(
                "{key} = {value} is not a probability; 0.01 is one packet in a hundred"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the expected share of lost packets.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self {
            Self::Random(share) => *share,
            Self::Bursts(bursts) => {
                let bad = bursts.bad();
                bad * bursts.loss_bad + (1.0 - bad) * bursts.loss_good
            }
        }
    }

    /// Returns the standard deviation of the share of lost packets among `packets`.
    ///
    /// In bursts, losses are correlated: the covariance decays geometrically with
    /// the distance between packets.
    #[must_use]
    pub fn deviation(&self, packets: u64) -> f64 {
        let share = self.share();
        let mut variance = share * (1.0 - share);
        if let Self::Bursts(bursts) = self {
            let (bad, memory) = (bursts.bad(), 1.0 - bursts.good_to_bad - bursts.bad_to_good);
            let apart = (bursts.loss_bad - bursts.loss_good).powi(2) * bad * (1.0 - bad);
            if memory < 1.0 {
                variance += 2.0 * apart * memory / (1.0 - memory);
            }
        }
        (variance.max(0.0) / packets.max(1) as f64).sqrt()
    }
}

/// State of the loss model.
#[derive(Debug)]
pub(super) struct Loss {
    spec: Option<LossSpec>,
    random: Random,
    bad: bool,
}

impl Loss {
    pub(super) fn new(spec: Option<LossSpec>, seed: u64) -> Self {
        let mut random = Random::for_purpose(seed, Purpose::Loss);
        let bad = match &spec {
            Some(LossSpec::Bursts(bursts)) => random.happens(bursts.bad()),
            _ => false,
        };
        Self { spec, random, bad }
    }

    /// Returns whether the next packet is lost, and advances the state.
    #[inline]
    pub(super) fn strikes(&mut self) -> bool {
        match self.spec {
            None => false,
            Some(LossSpec::Random(share)) => self.random.happens(share),
            Some(LossSpec::Bursts(GilbertElliott {
                good_to_bad: enter,
                bad_to_good: leave,
                loss_bad: inside,
                loss_good: outside,
            })) => {
                let lost = self.random.happens(if self.bad { inside } else { outside });
                let change = self.random.happens(if self.bad { leave } else { enter });
                self.bad ^= change;
                lost
            }
        }
    }
}
