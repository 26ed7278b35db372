//! Results of a check, and their evaluation.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_link::{Lateness, LatenessSummary, LinkSpec, millis};

use crate::netns::Testbed;

/// Maximum relative error of the rate.
const RATE_BOUND: f64 = 0.01;
/// Maximum median of the delay error.
const MEDIAN_BOUND_MS: f64 = 1.0;
/// Maximum 99th percentile of the delay error.
const P99_BOUND_MS: f64 = 2.0;
/// Maximum error of the loss in standard deviations; chance exceeds it with probability 0.001.
const LOSS_BOUND: f64 = 3.29;
/// Maximum 99th percentile of thread lateness on an undisturbed machine.
const CALM: Duration = Duration::from_micros(500);

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    /// The link matches its configuration.
    Good,
    /// It does not, but the machine was disturbed.
    Disturbed,
    /// It does not match its configuration.
    OutOfBounds,
}

/// Results of one link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileCheck {
    /// Name of the link.
    pub name: String,
    /// Configuration of the link.
    pub link: LinkSpec,
    /// From the server to the client.
    pub to_client: DirectionCheck,
    /// From the client to the server.
    pub to_server: DirectionCheck,
    /// Rate through the kernel's token bucket, for comparison.
    pub tbf: TbfCheck,
    /// Timing of the machine.
    pub calm: HostTiming,
}

/// Results of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DirectionCheck {
    /// Rate of a full link.
    pub rate: RateCheck,
    /// Delay through an empty link.
    pub delay: DelayCheck,
    /// Loss on the wire, if configured.
    pub loss: Option<LossCheck>,
}

/// Rate of a full link, in bits of IP packets.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RateCheck {
    /// The expected rate.
    pub commanded_mbit: f64,
    /// The measured rate.
    pub measured_mbit: f64,
    /// Length of the measured interval.
    pub seconds: f64,
}

/// Delay of packets through an empty link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayCheck {
    /// Packets measured.
    pub probes: u64,
    /// Median of the expected delay.
    pub commanded_ms: f64,
    /// Median of the delay from program to program.
    pub measured_ms: f64,
    /// Median of the delay error.
    pub off_p50_ms: f64,
    /// 99th percentile of the delay error.
    pub off_p99_ms: f64,
}

/// Loss on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossCheck {
    /// Packets sent.
    pub packets: u64,
    /// The configured loss rate.
    pub commanded: f64,
    /// Standard deviation of the loss rate for this number of packets.
    pub deviation: f64,
    /// The measured loss rate.
    pub measured: f64,
}

/// The kernel's token bucket at the same rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TbfCheck {
    /// It was measured. Ethernet headers are counted, as the token bucket does.
    Measured {
        /// The configured rate.
        commanded_mbit: f64,
        /// The measured rate.
        measured_mbit: f64,
    },
    /// It was not measured.
    Skipped {
        /// The reason.
        why: String,
    },
}

/// Timing of the machine during a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct HostTiming {
    /// Lateness of the link's thread, in the worst measurement.
    pub link: Option<LatenessSummary>,
    /// 99th percentile of the sending thread's lateness, in the worst measurement.
    #[serde(with = "millis", rename = "sender_p99_ms")]
    pub sender_p99: Duration,
    /// Packets lost outside the model's queue and wire.
    pub lost_outside: u64,
}

impl HostTiming {
    /// Adds a completed measurement.
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

    /// Returns whether the machine was undisturbed, so that errors are the link's.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let punctual = self.link.is_none_or(|link| link.p99 <= CALM);
        punctual && self.sender_p99 <= CALM && self.lost_outside == 0
    }
}

impl RateCheck {
    /// Returns the relative error of the rate; positive if too fast.
    #[must_use]
    pub fn off(&self) -> f64 {
        off(self.measured_mbit, self.commanded_mbit)
    }
}

impl TbfCheck {
    /// Returns the relative error of the token bucket's rate; positive if too fast.
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
    /// Returns the interval of loss rates that chance explains.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let reach = LOSS_BOUND * self.deviation;
        ((self.commanded - reach).max(0.0), (self.commanded + reach).min(1.0))
    }
}

impl DirectionCheck {
    /// Returns the properties that exceed their bounds; empty for an accurate link.
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
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> CheckResult {
        let good = self.to_client.faults().is_empty() && self.to_server.faults().is_empty();
        match (good, self.calm.is_calm()) {
            (true, _) => CheckResult::Good,
            (false, false) => CheckResult::Disturbed,
            (false, true) => CheckResult::OutOfBounds,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use smig_link::LinkSpec;

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
            calm: HostTiming::default(),
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
        assert_eq!(check.verdict(), CheckResult::Good);
        check.calm.sender_p99 = Duration::from_millis(1);
        assert_eq!(check.verdict(), CheckResult::Good, "late, and still within the bounds");
        check.to_server.rate.measured_mbit = 9.0;
        assert_eq!(check.verdict(), CheckResult::Disturbed);
        check.calm.sender_p99 = Duration::ZERO;
        assert_eq!(check.verdict(), CheckResult::OutOfBounds);
        check.calm.lost_outside = 1;
        assert_eq!(check.verdict(), CheckResult::Disturbed);
    }
}
