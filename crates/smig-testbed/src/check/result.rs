//! Results of a check, and their evaluation.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_link::{LatenessHistogram, LatenessSummary, LinkSpec, millis};

use crate::netns::Testbed;

/// Maximum relative error of the rate.
const MAX_RATE_ERROR: f64 = 0.01;
/// Maximum median of the delay error.
const MAX_MEDIAN_DELAY_ERROR_MS: f64 = 1.0;
/// Maximum 99th percentile of the delay error.
const MAX_P99_DELAY_ERROR_MS: f64 = 2.0;
/// Maximum error of the loss in standard deviations; chance exceeds it with probability 0.001.
const MAX_LOSS_DEVIATIONS: f64 = 3.29;
/// Maximum 99th percentile of thread lateness on an undisturbed machine.
const MAX_UNDISTURBED_LATENESS: Duration = Duration::from_micros(500);

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    /// The link matches its configuration.
    Good,
    /// It does not match its configuration, but the machine was disturbed.
    Disturbed,
    /// It does not match its configuration, on an undisturbed machine.
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
    pub timing: HostTiming,
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
    pub expected_mbit_per_s: f64,
    /// The measured rate.
    pub measured_mbit_per_s: f64,
    /// Length of the measured interval.
    pub seconds: f64,
}

/// Delay of packets through an empty link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayCheck {
    /// Packets measured.
    pub probes: u64,
    /// Median of the expected delay.
    pub expected_ms: f64,
    /// Median of the delay from program to program.
    pub measured_ms: f64,
    /// Median of the delay error.
    pub error_p50_ms: f64,
    /// 99th percentile of the delay error.
    pub error_p99_ms: f64,
}

/// Loss on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossCheck {
    /// Packets sent.
    pub packets: u64,
    /// The configured loss rate.
    pub expected: f64,
    /// Standard deviation of the loss rate for this number of packets.
    pub standard_deviation: f64,
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
        expected_mbit_per_s: f64,
        /// The measured rate.
        measured_mbit_per_s: f64,
    },
    /// It was not measured.
    Skipped {
        /// The reason.
        reason: String,
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
    pub packets_lost_outside_link: u64,
}

impl HostTiming {
    /// Adds a completed measurement. `missing_packets` were sent, but neither received nor lost in the model.
    pub(super) fn record(
        &mut self,
        testbed: &Testbed,
        senders: [&LatenessHistogram; 2],
        missing_packets: u64,
    ) -> io::Result<()> {
        let summary = testbed.report().lateness;
        if self.link.is_none_or(|worst| worst.p99 < summary.p99) {
            self.link = Some(summary);
        }
        for sender in senders {
            self.sender_p99 = self.sender_p99.max(sender.quantile(0.99));
        }
        self.add_losses(testbed.device_drops()?, missing_packets);
        Ok(())
    }

    /// Adds the packets lost in a measurement. A packet that a device dropped is missing as well: it counts once.
    fn add_losses(&mut self, device_drops: u64, missing_packets: u64) {
        self.packets_lost_outside_link += device_drops.max(missing_packets);
    }

    /// Returns whether the machine was undisturbed, so that errors are the link's.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        let punctual = self.link.is_none_or(|link| link.p99 <= MAX_UNDISTURBED_LATENESS);
        punctual
            && self.sender_p99 <= MAX_UNDISTURBED_LATENESS
            && self.packets_lost_outside_link == 0
    }
}

impl RateCheck {
    /// Returns the relative error of the rate; positive if too fast.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        relative_error(self.measured_mbit_per_s, self.expected_mbit_per_s)
    }
}

impl TbfCheck {
    /// Returns the relative error of the token bucket's rate; positive if too fast.
    #[must_use]
    pub fn relative_error(&self) -> Option<f64> {
        match self {
            Self::Measured { expected_mbit_per_s, measured_mbit_per_s } => {
                Some(relative_error(*measured_mbit_per_s, *expected_mbit_per_s))
            }
            Self::Skipped { .. } => None,
        }
    }
}

fn relative_error(measured: f64, expected: f64) -> f64 {
    if expected > 0.0 { measured / expected - 1.0 } else { -1.0 }
}

impl LossCheck {
    /// Returns the interval of loss rates that are within the bound.
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let half_width = MAX_LOSS_DEVIATIONS * self.standard_deviation;
        ((self.expected - half_width).max(0.0), (self.expected + half_width).min(1.0))
    }
}

impl DirectionCheck {
    /// Returns the properties that exceed their bounds; empty for an accurate link.
    #[must_use]
    pub fn violations(&self) -> Vec<&'static str> {
        let mut violations = Vec::new();
        if self.rate.relative_error().abs() > MAX_RATE_ERROR {
            violations.push("rate");
        }
        if self.delay.probes == 0
            || self.delay.error_p50_ms > MAX_MEDIAN_DELAY_ERROR_MS
            || self.delay.error_p99_ms > MAX_P99_DELAY_ERROR_MS
        {
            violations.push("delay");
        }
        let outside = |loss: LossCheck| {
            let (low, high) = loss.interval();
            loss.measured < low || loss.measured > high
        };
        if self.loss.is_some_and(outside) {
            violations.push("loss");
        }
        violations
    }
}

impl ProfileCheck {
    /// Returns the result for both directions together.
    #[must_use]
    pub fn result(&self) -> CheckResult {
        let good = self.to_client.violations().is_empty() && self.to_server.violations().is_empty();
        match (good, self.timing.is_undisturbed()) {
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

    fn good_direction() -> DirectionCheck {
        DirectionCheck {
            rate: RateCheck { expected_mbit_per_s: 10.0, measured_mbit_per_s: 9.95, seconds: 2.0 },
            delay: DelayCheck {
                probes: 200,
                expected_ms: 25.1,
                measured_ms: 25.3,
                error_p50_ms: 0.2,
                error_p99_ms: 0.4,
            },
            loss: None,
        }
    }

    pub(in crate::check) fn sample() -> ProfileCheck {
        let loss = LossCheck {
            packets: 9_000,
            expected: 0.01,
            standard_deviation: 0.001,
            measured: 0.012,
        };
        ProfileCheck {
            name: "paper-wired".into(),
            link: LinkSpec::paper_wired(),
            to_client: DirectionCheck { loss: Some(loss), ..good_direction() },
            to_server: good_direction(),
            tbf: TbfCheck::Measured { expected_mbit_per_s: 10.0, measured_mbit_per_s: 10.001 },
            timing: HostTiming::default(),
        }
    }

    #[test]
    fn each_bound_has_its_violation() {
        assert_eq!(good_direction().violations(), [""; 0]);
        let with = |change: fn(&mut DirectionCheck)| {
            let mut check = good_direction();
            change(&mut check);
            check.violations().join(" ")
        };
        assert_eq!(with(|check| check.rate.measured_mbit_per_s = 10.2), "rate");
        assert_eq!(with(|check| check.rate = RateCheck::default()), "rate");
        assert_eq!(with(|check| check.delay.error_p50_ms = 1.1), "delay");
        assert_eq!(with(|check| check.delay.error_p99_ms = 2.1), "delay");
        assert_eq!(with(|check| check.delay.probes = 0), "delay");
        let mut lossy = sample().to_client;
        lossy.loss.as_mut().unwrap().measured = 0.0135;
        assert_eq!(lossy.violations(), ["loss"]);
        assert_eq!(sample().to_client.violations(), [""; 0]);
    }

    #[test]
    fn a_packet_that_a_device_dropped_counts_once() {
        let mut timing = HostTiming::default();
        timing.add_losses(1, 1);
        assert_eq!(timing.packets_lost_outside_link, 1);
        timing.add_losses(0, 2);
        timing.add_losses(3, 0);
        assert_eq!(timing.packets_lost_outside_link, 6);
    }

    #[test]
    fn a_disturbed_machine_is_not_an_error_of_the_link() {
        let mut check = sample();
        assert_eq!(check.result(), CheckResult::Good);
        check.timing.sender_p99 = Duration::from_millis(1);
        assert_eq!(check.result(), CheckResult::Good, "late, but still within the bounds");
        check.to_server.rate.measured_mbit_per_s = 9.0;
        assert_eq!(check.result(), CheckResult::Disturbed);
        check.timing.sender_p99 = Duration::ZERO;
        assert_eq!(check.result(), CheckResult::OutOfBounds);
        check.timing.packets_lost_outside_link = 1;
        assert_eq!(check.result(), CheckResult::Disturbed);
    }
}
