//! Packet loss on the wire, independent or in bursts.
//!
//! A lost packet still occupies the wire for its serialisation time.

use serde::{Deserialize, Serialize};

use super::SpecError;
use super::random::{Purpose, SplitMix64};

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
    #[serde(default = "default_loss_bad", rename = "inside")]
    pub loss_bad: f64,
    /// The probability that a packet is lost on the good link.
    #[serde(default, rename = "outside")]
    pub loss_good: f64,
}

const fn default_loss_bad() -> f64 {
    1.0
}

impl GilbertElliott {
    /// Returns the share of packets for which the link is bad.
    fn share_bad(&self) -> f64 {
        let change = self.good_to_bad + self.bad_to_good;
        if change > 0.0 { self.good_to_bad / change } else { 0.0 }
    }
}

impl LossSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let values = match self {
            Self::Random(share) => vec![("loss.random", *share)],
            Self::Bursts(GilbertElliott { good_to_bad, bad_to_good, loss_bad, loss_good }) => vec![
                ("loss.bursts.enter", *good_to_bad),
                ("loss.bursts.leave", *bad_to_good),
                ("loss.bursts.inside", *loss_bad),
                ("loss.bursts.outside", *loss_good),
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
                let bad = bursts.share_bad();
                bad * bursts.loss_bad + (1.0 - bad) * bursts.loss_good
            }
        }
    }

    /// Returns the standard deviation of the share of lost packets among `packets`.
    ///
    /// In bursts, losses are correlated: the covariance decays geometrically with
    /// the distance between packets.
    #[must_use]
    pub fn standard_deviation(&self, packets: u64) -> f64 {
        let share = self.share();
        let mut variance = share * (1.0 - share);
        if let Self::Bursts(bursts) = self {
            let (bad, memory) = (bursts.share_bad(), 1.0 - bursts.good_to_bad - bursts.bad_to_good);
            let between_states = (bursts.loss_bad - bursts.loss_good).powi(2) * bad * (1.0 - bad);
            if memory < 1.0 {
                variance += 2.0 * between_states * memory / (1.0 - memory);
            }
        }
        (variance.max(0.0) / packets.max(1) as f64).sqrt()
    }
}

/// State of the loss model.
#[derive(Debug)]
pub(super) struct Loss {
    spec: Option<LossSpec>,
    random: SplitMix64,
    is_bad: bool,
}

impl Loss {
    pub(super) fn new(spec: Option<LossSpec>, seed: u64) -> Self {
        let mut random = SplitMix64::for_purpose(seed, Purpose::Loss);
        let bad = match &spec {
            Some(LossSpec::Bursts(bursts)) => random.bernoulli(bursts.share_bad()),
            _ => false,
        };
        Self { spec, random, is_bad: bad }
    }

    /// Returns whether the next packet is lost, and advances the state.
    #[inline]
    pub(super) fn next_is_lost(&mut self) -> bool {
        match self.spec {
            None => false,
            Some(LossSpec::Random(share)) => self.random.bernoulli(share),
            Some(LossSpec::Bursts(GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_bad,
                loss_good,
            })) => {
                let lost = self.random.bernoulli(if self.is_bad { loss_bad } else { loss_good });
                let changes_state =
                    self.random.bernoulli(if self.is_bad { bad_to_good } else { good_to_bad });
                self.is_bad ^= changes_state;
                lost
            }
        }
    }
}
