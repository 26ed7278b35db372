//! Reno and CUBIC: a window that loss reduces, with proportional rate reduction (RFC 6937).

use std::time::Duration;

use smig_link::Time;

use super::cubic::{Cubic, Hystart};
use super::{AckEvent, CongestionControl, RecoveryState};

#[derive(Debug)]
enum Growth {
    Reno,
    Cubic(Cubic),
}

#[derive(Debug)]
pub(super) struct LossBased {
    growth: Growth,
    hystart: Option<Hystart>,
    cwnd: f64,
    ssthresh: f64,
    /// The window and the threshold before the last reduction.
    prior_cwnd: f64,
    prior_ssthresh: f64,
    /// Proportional rate reduction: packets delivered in this recovery, and packets in flight at its start.
    prr_delivered: f64,
    recovery_in_flight: f64,
    last_ack: Time,
}

impl LossBased {
    fn new(growth: Growth, hystart: Option<Hystart>, initial_window: f64) -> Self {
        Self {
            growth,
            hystart,
            cwnd: initial_window,
            ssthresh: f64::INFINITY,
            prior_cwnd: initial_window,
            prior_ssthresh: f64::INFINITY,
            prr_delivered: 0.0,
            recovery_in_flight: 0.0,
            last_ack: Time::ZERO,
        }
    }

    pub(super) fn reno(initial_window: f64) -> Self {
        Self::new(Growth::Reno, None, initial_window)
    }

    pub(super) fn cubic(initial_window: f64, hystart: bool) -> Self {
        let hystart = hystart.then(Hystart::new);
        Self::new(Growth::Cubic(Cubic::default()), hystart, initial_window)
    }

    fn reduce(&mut self) {
        (self.prior_cwnd, self.prior_ssthresh) = (self.cwnd, self.ssthresh);
        self.ssthresh = match &mut self.growth {
            Growth::Reno => (self.cwnd / 2.0).max(2.0),
            Growth::Cubic(cubic) => cubic.reduce(self.cwnd),
        };
    }

    fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window, if it is used (RFC 7661; Linux `tcp_is_cwnd_limited`).
    fn grow(&mut self, event: &AckEvent) {
        let is_used = event.is_cwnd_limited
            || (self.is_slow_start() && self.cwnd < 2.0 * event.max_in_flight);
        if !is_used {
            return;
        }
        if self.is_slow_start() {
            if let Some(hystart) = &mut self.hystart
                && hystart.on_ack(self.cwnd, event)
            {
                self.ssthresh = self.cwnd;
                return;
            }
            self.cwnd = (self.cwnd + event.newly_delivered).min(self.ssthresh.max(self.cwnd + 1.0));
            return;
        }
        self.cwnd = match &mut self.growth {
            Growth::Reno => self.cwnd + event.newly_delivered / self.cwnd,
            Growth::Cubic(cubic) => cubic.grow(self.cwnd, event.newly_delivered, event),
        };
    }

    /// Proportional rate reduction, with slow-start reduction bound.
    fn reduce_in_recovery(&mut self, event: &AckEvent) {
        self.prr_delivered += event.newly_delivered;
        let excess = event.in_flight - self.ssthresh;
        let sent = if excess > 0.0 {
            let target = (self.ssthresh * self.prr_delivered / self.recovery_in_flight).ceil();
            // Sent in this recovery: what is in flight now and was delivered, less what was in flight at its start.
            let out = event.in_flight + self.prr_delivered - self.recovery_in_flight;
            (target - out.max(0.0)).clamp(0.0, event.newly_delivered + 1.0)
        } else {
            (event.newly_delivered + 1.0).min(-excess)
        };
        self.cwnd = (event.in_flight + sent).max(2.0);
    }
}

impl CongestionControl for LossBased {
    fn on_ack(&mut self, event: &AckEvent) {
        self.last_ack = event.now;
        match event.state {
            RecoveryState::Recovery => self.reduce_in_recovery(event),
            RecoveryState::Open | RecoveryState::Loss => self.grow(event),
        }
    }

    fn on_enter_recovery(&mut self, in_flight: f64) {
        self.reduce();
        self.prr_delivered = 0.0;
        self.recovery_in_flight = in_flight.max(1.0);
    }

    fn on_exit_recovery(&mut self) {
        self.cwnd = self.ssthresh;
    }

    fn on_timeout(&mut self) {
        self.reduce();
        self.cwnd = 1.0;
    }

    fn on_undo(&mut self) {
        (self.cwnd, self.ssthresh) = (self.prior_cwnd, self.prior_ssthresh);
    }

    fn on_restart_from_idle(&mut self, now: Time, _is_app_limited: bool) {
        if let Growth::Cubic(cubic) = &mut self.growth {
            cubic.skip_idle(now.since(self.last_ack));
        }
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    fn window_pacing_rate(&self, srtt: Duration) -> f64 {
        let gain = if self.cwnd < self.ssthresh / 2.0 { 2.0 } else { 1.2 };
        gain * self.cwnd / srtt.as_secs_f64().max(1e-6)
    }
}
