//! BBR version 1, as in Linux `tcp_bbr.c`, without its detection of policers.

use std::collections::VecDeque;
use std::time::Duration;

use smig_link::Time;

use super::{AckEvent, CongestionControl, RecoveryState};

const HIGH_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
const CWND_GAIN: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds without growth after which the pipe counts as full.
const FULL_BW_ROUNDS: u32 = 3;
const BW_WINDOW_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_CWND: f64 = 4.0;
/// Paced one percent below the estimate, as in Linux.
const PACING_MARGIN: f64 = 0.99;
const MAX_EXTRA_ACKED: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

#[derive(Debug)]
pub(super) struct Bbr {
    mode: Mode,
    cwnd: f64,
    prior_cwnd: f64,
    pacing_rate: f64,
    initial_window: f64,
    /// Round and rate; the largest in the window is the first.
    bw: VecDeque<(u64, f64)>,
    round: u64,
    round_end_delivered: f64,
    round_start: bool,
    full_bw: f64,
    full_bw_rounds: u32,
    cycle_index: usize,
    cycle_start: Time,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    /// When PROBE_RTT ends at the earliest, and whether a round has passed since its begin.
    probe_rtt_end: Option<(Time, bool)>,
    idle_restart: bool,
    packet_conservation: bool,
    prev_recovery_state: RecoveryState,
    ack_epoch: Time,
    ack_epoch_acked: f64,
    extra_acked: [f64; 2],
    extra_acked_rounds: u32,
}

impl Bbr {
    pub(super) fn new(initial_window: f64) -> Self {
        Self {
            mode: Mode::Startup,
            cwnd: initial_window,
            prior_cwnd: 0.0,
            pacing_rate: HIGH_GAIN * initial_window * 1000.0,
            initial_window,
            bw: VecDeque::new(),
            round: 0,
            round_end_delivered: 0.0,
            round_start: false,
            full_bw: 0.0,
            full_bw_rounds: 0,
            cycle_index: 0,
            cycle_start: Time::ZERO,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            probe_rtt_end: None,
            idle_restart: false,
            packet_conservation: false,
            prev_recovery_state: RecoveryState::Open,
            ack_epoch: Time::ZERO,
            ack_epoch_acked: 0.0,
            extra_acked: [0.0; 2],
            extra_acked_rounds: 0,
        }
    }

    fn max_bw(&self) -> f64 {
        self.bw.front().map_or(0.0, |&(_, rate)| rate)
    }

    fn bdp(&self, gain: f64) -> f64 {
        let Some(min_rtt) = self.min_rtt else { return self.initial_window };
        (gain * self.max_bw() * min_rtt.as_secs_f64()).ceil()
    }

    /// Room for segments that wait to be sent together and for delayed acknowledgements.
    fn quantize(&self, packets: f64) -> f64 {
        let goal = (self.pacing_rate / 1000.0).clamp(2.0, 44.0).floor();
        let packets = packets + 3.0 * goal;
        let packets = (packets / 2.0).ceil() * 2.0;
        if self.mode == Mode::ProbeBw && self.cycle_index == 0 { packets + 2.0 } else { packets }
    }

    fn inflight(&self, gain: f64) -> f64 {
        self.quantize(self.bdp(gain))
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw => (CYCLE[self.cycle_index], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        }
    }

    const fn full_bw_reached(&self) -> bool {
        self.full_bw_rounds >= FULL_BW_ROUNDS
    }

    fn update_bw(&mut self, event: &AckEvent) {
        self.round_start = false;
        let Some(rate) = event.sample.rate() else { return };
        if event.sample.prior_delivered >= self.round_end_delivered {
            self.round_end_delivered = event.delivered;
            self.round += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        if !event.sample.is_app_limited || rate >= self.max_bw() {
            while self.bw.back().is_some_and(|&(_, old)| old <= rate) {
                self.bw.pop_back();
            }
            self.bw.push_back((self.round, rate));
        }
        while self.bw.len() > 1
            && self.bw.front().is_some_and(|&(round, _)| round + BW_WINDOW_ROUNDS < self.round)
        {
            self.bw.pop_front();
        }
    }

    fn update_ack_aggregation(&mut self, event: &AckEvent) {
        if event.newly_delivered <= 0.0 {
            return;
        }
        if self.round_start {
            self.extra_acked_rounds += 1;
            if self.extra_acked_rounds >= 5 {
                self.extra_acked_rounds = 0;
                self.extra_acked = [0.0, self.extra_acked[0]];
            }
        }
        let expected = self.max_bw() * event.now.since(self.ack_epoch).as_secs_f64();
        let mut expected = expected;
        if self.ack_epoch_acked <= expected {
            self.ack_epoch = event.now;
            self.ack_epoch_acked = 0.0;
            expected = 0.0;
        }
        self.ack_epoch_acked += event.newly_delivered;
        let extra = (self.ack_epoch_acked - expected).min(self.cwnd);
        self.extra_acked[0] = self.extra_acked[0].max(extra);
    }

    fn update_cycle(&mut self, event: &AckEvent) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let is_full_length =
            event.now.since(self.cycle_start) > self.min_rtt.unwrap_or(Duration::ZERO);
        let gain = CYCLE[self.cycle_index];
        let next = if gain == 1.0 {
            is_full_length
        } else if gain > 1.0 {
            is_full_length
                && (event.newly_lost > 0.0 || event.prior_in_flight >= self.inflight(gain))
        } else {
            is_full_length || event.prior_in_flight <= self.inflight(1.0)
        };
        if next {
            self.cycle_index = (self.cycle_index + 1) % CYCLE.len();
            self.cycle_start = event.now;
        }
    }

    fn enter_probe_bw(&mut self, now: Time) {
        self.mode = Mode::ProbeBw;
        // Linux starts in a random phase other than the drain; this code also leaves out the probing phase.
        self.cycle_index = 2 + (now.as_nanos() / 7919 % 6) as usize;
        self.cycle_start = now;
    }

    fn check_full_bw(&mut self, event: &AckEvent) {
        if self.full_bw_reached() || !self.round_start || event.sample.is_app_limited {
            return;
        }
        if self.max_bw() >= self.full_bw * 1.25 {
            self.full_bw = self.max_bw();
            self.full_bw_rounds = 0;
            return;
        }
        self.full_bw_rounds += 1;
    }

    fn check_drain(&mut self, event: &AckEvent) {
        if self.mode == Mode::Startup && self.full_bw_reached() {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && event.in_flight <= self.inflight(1.0) {
            self.enter_probe_bw(event.now);
        }
    }

    fn update_min_rtt(&mut self, event: &AckEvent) {
        let expired = self.min_rtt.is_some() && event.now.since(self.min_rtt_at) > MIN_RTT_WINDOW;
        if let Some(rtt) = event.rtt
            && (self.min_rtt.is_none_or(|min| rtt <= min) || expired)
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = event.now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd();
            self.probe_rtt_end = None;
        }
        if self.mode == Mode::ProbeRtt {
            match self.probe_rtt_end {
                None if event.in_flight <= MIN_CWND => {
                    self.probe_rtt_end = Some((event.now + PROBE_RTT_TIME, false));
                    self.round_end_delivered = event.delivered;
                }
                None => {}
                Some((end, round_done)) => {
                    let round_done = round_done || self.round_start;
                    self.probe_rtt_end = Some((end, round_done));
                    if round_done && event.now > end {
                        self.exit_probe_rtt(event.now);
                    }
                }
            }
        }
        if event.sample.delivered > 0.0 {
            self.idle_restart = false;
        }
    }

    fn exit_probe_rtt(&mut self, now: Time) {
        self.min_rtt_at = now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        if self.full_bw_reached() {
            self.enter_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn save_cwnd(&mut self) {
        let is_reduced =
            self.prev_recovery_state != RecoveryState::Open || self.mode == Mode::ProbeRtt;
        self.prior_cwnd = if is_reduced { self.prior_cwnd.max(self.cwnd) } else { self.cwnd };
    }

    fn set_pacing_rate(&mut self, event: &AckEvent) {
        if self.bw.len() < 2 && self.round < 2 && !event.srtt.is_zero() {
            self.pacing_rate = HIGH_GAIN * self.cwnd / event.srtt.as_secs_f64();
        }
        let rate = self.gains().0 * self.max_bw() * PACING_MARGIN;
        if self.full_bw_reached() || rate > self.pacing_rate {
            self.pacing_rate = rate.max(0.1);
        }
    }

    fn set_cwnd(&mut self, event: &AckEvent) {
        if event.newly_delivered > 0.0 && !self.set_cwnd_in_recovery(event) {
            let mut target = self.bdp(self.gains().1);
            let max_extra = self.max_bw() * MAX_EXTRA_ACKED.as_secs_f64();
            let extra = self.extra_acked[0].max(self.extra_acked[1]).min(max_extra);
            target = self.quantize(if self.full_bw_reached() { target + extra } else { target });
            if self.full_bw_reached() {
                self.cwnd = (self.cwnd + event.newly_delivered).min(target);
            } else if self.cwnd < target || event.delivered < self.initial_window {
                self.cwnd += event.newly_delivered;
            }
            self.cwnd = self.cwnd.max(MIN_CWND);
        }
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(MIN_CWND);
        }
    }

    /// Returns whether packet conservation determines the window.
    fn set_cwnd_in_recovery(&mut self, event: &AckEvent) -> bool {
        if event.newly_lost > 0.0 {
            self.cwnd = (self.cwnd - event.newly_lost).max(1.0);
        }
        if event.state == RecoveryState::Recovery
            && self.prev_recovery_state != RecoveryState::Recovery
        {
            self.packet_conservation = true;
            self.round_end_delivered = event.delivered;
            self.cwnd = event.in_flight + event.newly_delivered;
        } else if self.prev_recovery_state != RecoveryState::Open
            && event.state == RecoveryState::Open
        {
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.packet_conservation = false;
        }
        self.prev_recovery_state = event.state;
        if self.packet_conservation {
            self.cwnd = self.cwnd.max(event.in_flight + event.newly_delivered);
        }
        self.packet_conservation
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, event: &AckEvent) {
        self.update_bw(event);
        self.update_ack_aggregation(event);
        self.update_cycle(event);
        self.check_full_bw(event);
        self.check_drain(event);
        self.update_min_rtt(event);
        self.set_pacing_rate(event);
        self.set_cwnd(event);
    }

    fn on_enter_recovery(&mut self, _in_flight: f64) {
        self.save_cwnd();
    }

    fn on_exit_recovery(&mut self) {}

    fn on_timeout(&mut self) {
        self.save_cwnd();
        self.prev_recovery_state = RecoveryState::Loss;
        self.full_bw = 0.0;
        self.round_start = true;
        self.cwnd = 1.0;
    }

    fn on_undo(&mut self) {
        self.full_bw = 0.0;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    fn on_restart_from_idle(&mut self, now: Time, is_app_limited: bool) {
        if !is_app_limited {
            return;
        }
        self.idle_restart = true;
        self.ack_epoch = now;
        self.ack_epoch_acked = 0.0;
        if self.mode == Mode::ProbeBw {
            self.pacing_rate = (self.max_bw() * PACING_MARGIN).max(0.1);
        } else if self.mode == Mode::ProbeRtt
            && self.probe_rtt_end.is_some_and(|(end, _)| now > end)
        {
            self.exit_probe_rtt(now);
        }
    }

    fn is_rate_limited(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<f64> {
        Some(self.pacing_rate)
    }

    fn window_pacing_rate(&self, _srtt: Duration) -> f64 {
        self.pacing_rate
    }
}
