//! What was measured, and what it says of a link.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lateness::{Lateness, LatenessSummary};
use crate::link::LinkSpec;
use crate::millis;
use crate::netns::Testbed;

/// A link may be this much faster or slower than it was told to be.
const RATE_BOUND: f64 = 0.01;
/// Half of the packets may be this late.
const MEDIAN_BOUND_MS: f64 = 1.0;
/// One packet in a hundred may be later than this.
const P99_BOUND_MS: f64 = 2.0;
/// Loss may be this many standard deviations off: chance goes further once in a thousand times.
const LOSS_BOUND: f64 = 3.29;
/// A machine is calm whose threads run this soon after their time, but for one time in a hundred.
const CALM: Duration = Duration::from_micros(500);

/// What a measurement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The link does what it was told.
    Good,
    /// It does not, but the machine was busy with other things meanwhile.
    Disturbed,
    /// It does not.
    Off,
}

/// One link, measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileCheck {
    /// What it is called.
    pub name: String,
    /// What it was told.
    pub link: LinkSpec,
    /// From the server to the client.
    pub to_client: DirectionCheck,
    /// From the client to the server.
    pub to_server: DirectionCheck,
    /// The same rate by the kernel's token bucket.
    pub tbf: TbfCheck,
    /// How punctual the machine was.
    pub calm: Calm,
}

/// One direction, measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DirectionCheck {
    /// Of a full link.
    pub rate: RateCheck,
    /// Through an empty link.
    pub delay: DelayCheck,
    /// On the wire, where there is any.
    pub loss: Option<LossCheck>,
}

/// What a full link carried, of whole IP packets.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateCheck {
    /// What it should have carried in that time.
    pub commanded_mbit: f64,
    /// What arrived.
    pub measured_mbit: f64,
    /// How long this was measured.
    pub seconds: f64,
}

/// How long packets took through an empty link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayCheck {
    /// Packets measured.
    pub probes: u64,
    /// The median of what they should have taken.
    pub commanded_ms: f64,
    /// The median of what they took from program to program.
    pub measured_ms: f64,
    /// Half of them took no more than this too long.
    pub off_p50_ms: f64,
    /// All but one in a hundred took no more than this too long.
    pub off_p99_ms: f64,
}

/// What got lost on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossCheck {
    /// Packets sent.
    pub packets: u64,
    /// The share that should get lost.
    pub commanded: f64,
    /// The standard deviation of the share of so many packets.
    pub deviation: f64,
    /// The share that got lost.
    pub measured: f64,
}

/// The kernel's token bucket at the same rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TbfCheck {
    /// It was measured, Ethernet headers counted, as it counts.
    Measured {
        /// What it was told.
        commanded_mbit: f64,
        /// What arrived.
        measured_mbit: f64,
    },
    /// It was not.
    Skipped {
        /// Because of this.
        why: String,
    },
}

/// How punctual the machine was during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Calm {
    /// Of the link's thread, in the measurement where it was worst.
    pub link: Option<LatenessSummary>,
    /// Of the sending thread: one packet in a hundred went later than this, at worst.
    #[serde(with = "millis", rename = "sender_p99_ms")]
    pub sender_p99: Duration,
    /// Packets that were lost neither by the model's queue nor on its wire.
    pub lost_outside: u64,
}

impl Calm {
    /// Looks at a measurement that has ended.
    pub(super) fn see(&mut self, testbed: &Testbed, senders: [&Lateness; 2]) -> io::Result<()> {
        let summary = testbed.report().lateness;
        if self.link.is_none_or(|worst| worst.p99 < summary.p99) {
            self.link = Some(summary);
        }
        for sender in senders {
            self.sender_p99 = self.sender_p99.max(sender.quantile(0.99));
        }
        self.lost_outside += testbed.device_drops()?;
        Ok(())
    }

    /// Whether what was measured is the link's doing.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let punctual = self.link.is_none_or(|link| link.p99 <= CALM);
        punctual && self.sender_p99 <= CALM && self.lost_outside == 0
    }
}

impl RateCheck {
    /// By which share it was too fast (positive) or too slow.
    #[must_use]
    pub fn off(&self) -> f64 {
        off(self.measured_mbit, self.commanded_mbit)
    }
}

impl TbfCheck {
    /// By which share the token bucket was too fast or too slow.
    #[must_use]
    pub fn off(&self) -> Option<f64> {
        match self {
            Self::Measured { commanded_mbit, measured_mbit } => {
                Some(off(*measured_mbit, *commanded_mbit))
            }
            Self::Skipped { .. } => None,
        }
    }
}

fn off(measured: f64, commanded: f64) -> f64 {
    if commanded > 0.0 { measured / commanded - 1.0 } else { -1.0 }
}

impl LossCheck {
    /// The least and the largest share that chance allows.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let reach = LOSS_BOUND * self.deviation;
        ((self.commanded - reach).max(0.0), (self.commanded + reach).min(1.0))
    }
}

impl DirectionCheck {
    /// What is not as it should be; nothing of a good link.
    #[must_use]
    pub fn faults(&self) -> Vec<&'static str> {
        let mut faults = Vec::new();
        if self.rate.off().abs() > RATE_BOUND {
            faults.push("rate");
        }
        if self.delay.probes == 0
            || self.delay.off_p50_ms > MEDIAN_BOUND_MS
            || self.delay.off_p99_ms > P99_BOUND_MS
        {
            faults.push("delay");
        }
        let outside = |loss: LossCheck| {
            let (low, high) = loss.interval();
            loss.measured < low || loss.measured > high
        };
        if self.loss.is_some_and(outside) {
            faults.push("loss");
        }
        faults
    }
}

impl ProfileCheck {
    /// What the measurement says.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let good = self.to_client.faults().is_empty() && self.to_server.faults().is_empty();
        match (good, self.calm.is_calm()) {
            (true, _) => Verdict::Good,
            (false, false) => Verdict::Disturbed,
            (false, true) => Verdict::Off,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::link::LinkSpec;

    fn good() -> DirectionCheck {
        DirectionCheck {
            rate: RateCheck { commanded_mbit: 10.0, measured_mbit: 9.95, seconds: 2.0 },
            delay: DelayCheck {
                probes: 200,
                commanded_ms: 25.1,
                measured_ms: 25.3,
                off_p50_ms: 0.2,
                off_p99_ms: 0.4,
            },
            loss: None,
        }
    }

    pub(in crate::check) fn sample() -> ProfileCheck {
        let loss = LossCheck { packets: 9_000, commanded: 0.01, deviation: 0.001, measured: 0.012 };
        ProfileCheck {
            name: "paper-wired".into(),
            link: LinkSpec::paper_wired(),
            to_client: DirectionCheck { loss: Some(loss), ..good() },
            to_server: good(),
            tbf: TbfCheck::Measured { commanded_mbit: 10.0, measured_mbit: 10.001 },
            calm: Calm::default(),
        }
    }

    #[test]
    fn each_bound_has_its_fault() {
        assert_eq!(good().faults(), [""; 0]);
        let with = |change: fn(&mut DirectionCheck)| {
            let mut check = good();
            change(&mut check);
            check.faults().join(" ")
        };
        assert_eq!(with(|check| check.rate.measured_mbit = 10.2), "rate");
        assert_eq!(with(|check| check.rate = RateCheck::default()), "rate");
        assert_eq!(with(|check| check.delay.off_p50_ms = 1.1), "delay");
        assert_eq!(with(|check| check.delay.off_p99_ms = 2.1), "delay");
        assert_eq!(with(|check| check.delay.probes = 0), "delay");
        let mut lossy = sample().to_client;
        lossy.loss.as_mut().unwrap().measured = 0.0135;
        assert_eq!(lossy.faults(), ["loss"]);
        assert_eq!(sample().to_client.faults(), [""; 0]);
    }

    #[test]
    fn a_busy_machine_is_not_the_links_fault() {
        let mut check = sample();
        assert_eq!(check.verdict(), Verdict::Good);
        check.calm.sender_p99 = Duration::from_millis(1);
        assert_eq!(check.verdict(), Verdict::Good, "late, and still within the bounds");
        check.to_server.rate.measured_mbit = 9.0;
        assert_eq!(check.verdict(), Verdict::Disturbed);
        check.calm.sender_p99 = Duration::ZERO;
        assert_eq!(check.verdict(), Verdict::Off);
        check.calm.lost_outside = 1;
        assert_eq!(check.verdict(), Verdict::Disturbed);
    }
}
