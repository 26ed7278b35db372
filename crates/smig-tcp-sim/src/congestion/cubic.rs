//! The window growth of CUBIC (RFC 9438) and `HyStart`, as in Linux.

use std::time::Duration;

use smig_link::Time;

use super::AckEvent;

/// RFC 9438, section 4.6 and 5.
const BETA: f64 = 0.7;
const C: f64 = 0.4;
/// Linux `HyStart`: shortest window, samples per round, and the spacing of an ACK train.
const HYSTART_MIN_CWND: f64 = 16.0;
const HYSTART_MIN_SAMPLES: u32 = 8;
const ACK_TRAIN_SPACING: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Cubic {
    w_max: f64,
    epoch_start: Option<Time>,
    k: f64,
    origin: f64,
    w_est: f64,
}

impl Cubic {
    /// Returns the slow-start threshold after a loss, with fast convergence.
    pub(super) fn reduce(&mut self, cwnd: f64) -> f64 {
        self.epoch_start = None;
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        (cwnd * BETA).max(2.0)
    }

    /// Returns the window after an acknowledgement in congestion avoidance.
    pub(super) fn grow(&mut self, cwnd: f64, acked: f64, event: &AckEvent) -> f64 {
        let start = *self.epoch_start.get_or_insert_with(|| {
            self.w_est = cwnd;
            if cwnd < self.w_max {
                self.k = ((self.w_max - cwnd) / C).cbrt();
                self.origin = self.w_max;
            } else {
                (self.k, self.origin) = (0.0, cwnd);
            }
            event.now
        });
        let elapsed = (event.now.since(start) + event.min_rtt).as_secs_f64();
        let target = self.origin + C * (elapsed - self.k).powi(3);
        // The Reno-friendly region.
        self.w_est += 3.0 * (1.0 - BETA) / (1.0 + BETA) * acked / cwnd;
        let target = target.clamp(cwnd, cwnd * 1.5).max(self.w_est);
        let step = ((target - cwnd) / cwnd).max(0.01 / cwnd);
        cwnd + (step * acked).min(acked / 2.0)
    }

    /// Time in which the application sent nothing does not count.
    pub(super) fn skip_idle(&mut self, idle: Duration) {
        self.epoch_start = self.epoch_start.map(|start| start + idle);
    }
}

/// Ends slow start before the queue is full.
#[derive(Debug)]
pub(super) struct Hystart {
    round_start: Time,
    last_ack: Time,
    round_end_delivered: f64,
    round_min_rtt: Option<Duration>,
    samples: u32,
    min_rtt: Option<Duration>,
}

impl Hystart {
    pub(super) const fn new() -> Self {
        Self {
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            round_end_delivered: 0.0,
            round_min_rtt: None,
            samples: 0,
            min_rtt: None,
        }
    }

    /// Returns whether slow start should end.
    pub(super) fn on_ack(&mut self, cwnd: f64, event: &AckEvent) -> bool {
        if event.delivered >= self.round_end_delivered {
            self.round_start = event.now;
            self.last_ack = event.now;
            self.round_end_delivered = event.delivered + event.in_flight;
            self.round_min_rtt = None;
            self.samples = 0;
        }
        let Some(rtt) = event.rtt else { return false };
        let min_rtt = self.min_rtt.map_or(rtt, |min| min.min(rtt));
        self.min_rtt = Some(min_rtt);
        if cwnd < HYSTART_MIN_CWND {
            return false;
        }
        if event.now.since(self.last_ack) <= ACK_TRAIN_SPACING {
            self.last_ack = event.now;
            if event.now.since(self.round_start) > min_rtt / 2 {
                return true;
            }
        }
        self.samples += 1;
        if self.samples <= HYSTART_MIN_SAMPLES {
            self.round_min_rtt = Some(self.round_min_rtt.map_or(rtt, |min| min.min(rtt)));
            return false;
        }
        let threshold = (min_rtt / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
        self.round_min_rtt.is_some_and(|round| round > min_rtt + threshold)
    }
}
