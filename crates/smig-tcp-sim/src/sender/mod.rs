//! The sending end of a connection: window, pacing, loss recovery, timers, and what TCP_INFO shows of it.

mod delivery;
mod scoreboard;

use std::time::Duration;

use smig_link::Time;

use crate::congestion::{AckEvent, Algorithm, CongestionControl, RecoveryState};
use crate::packet::{Ack, ByteRange, MSS};
use delivery::RateSampler;
use scoreboard::{Scoreboard, Segment, SegmentState};

/// RFC 6298, with Linux' bounds.
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_secs(120);
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// Linux adds this to the probe timeout: the first while one segment is in flight, the second while more are.
const PROBE_MARGIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(2)];

/// What TCP_INFO shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpInfo {
    /// Bytes acknowledged, and those SACKed.
    pub acknowledged: u64,
    /// Bytes sent and neither acknowledged nor SACKed.
    pub in_flight: u64,
    /// Bytes written and never sent.
    pub unsent: u64,
    /// Smoothed round-trip time; zero before the first sample.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// The minimum round-trip time.
    pub min_rtt: Duration,
    /// The latest delivery rate, bytes per second.
    pub delivery_rate: u64,
    /// Whether the application limited that rate.
    pub is_app_limited: bool,
    /// Packets retransmitted so far.
    pub retransmitted: u64,
    /// The congestion window in bytes.
    pub cwnd: u64,
}

#[derive(Debug)]
pub(crate) struct Sender {
    congestion: Box<dyn CongestionControl>,
    scoreboard: Scoreboard,
    delivery: RateSampler,
    state: RecoveryState,
    /// The recovery ends when everything before this number is acknowledged.
    recovery_end: u64,
    acknowledged: u64,
    next: u64,
    written: u64,
    next_number: u64,
    srtt: Option<Duration>,
    rtt_deviation: Duration,
    min_rtt: Duration,
    backoff: u32,
    timer: Option<(Time, Timer)>,
    reorder_at: Option<Time>,
    probe_sent: bool,
    /// Limit of the pacing rate, bytes per second; `None` before one is set.
    pacing_cap: Option<u64>,
    next_burst_at: Time,
    burst_left: u32,
    is_cwnd_limited: bool,
    max_in_flight: usize,
    is_probe_due: bool,
    retransmitted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Retransmission,
    TailLossProbe,
}

impl Sender {
    pub(crate) fn new(algorithm: Algorithm, initial_window: u32) -> Self {
        Self {
            congestion: algorithm.build(f64::from(initial_window)),
            scoreboard: Scoreboard::default(),
            delivery: RateSampler::default(),
            state: RecoveryState::Open,
            recovery_end: 0,
            acknowledged: 0,
            next: 0,
            written: 0,
            next_number: 1,
            srtt: None,
            rtt_deviation: Duration::ZERO,
            min_rtt: Duration::MAX,
            backoff: 0,
            timer: None,
            reorder_at: None,
            probe_sent: false,
            pacing_cap: None,
            next_burst_at: Time::ZERO,
            burst_left: 0,
            is_cwnd_limited: false,
            max_in_flight: 0,
            is_probe_due: false,
            retransmitted: 0,
        }
    }

    /// The application writes; returns the number of the last byte.
    pub(crate) const fn write(&mut self, bytes: u64) -> u64 {
        self.written += bytes;
        self.written
    }

    pub(crate) const fn discard_unsent(&mut self) {
        self.written = self.next;
    }

    pub(crate) const fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// Sets SO_MAX_PACING_RATE.
    pub(crate) const fn set_pacing_cap(&mut self, bytes_per_s: u64) {
        self.pacing_cap = Some(bytes_per_s);
    }

    /// A handshake measured this round-trip time.
    pub(crate) fn on_handshake(&mut self, rtt: Duration) {
        self.update_rtt(rtt);
    }

    pub(crate) fn info(&self) -> TcpInfo {
        let sacked = self.scoreboard.sacked_bytes();
        TcpInfo {
            acknowledged: self.acknowledged + sacked,
            in_flight: self.next - self.acknowledged - sacked,
            unsent: self.unsent(),
            rtt: self.srtt.unwrap_or_default(),
            rtt_deviation: self.rtt_deviation,
            min_rtt: if self.srtt.is_some() { self.min_rtt } else { Duration::ZERO },
            delivery_rate: self.delivery.last_rate(),
            is_app_limited: self.delivery.last_is_app_limited(),
            retransmitted: self.retransmitted,
            cwnd: (self.congestion.cwnd() * MSS as f64) as u64,
        }
    }

    pub(crate) fn on_ack(&mut self, now: Time, ack: &Ack) {
        let prior_in_flight = self.scoreboard.in_flight() as f64;
        let (mut newest, mut count, mut original_sent_at) = (None::<Segment>, 0.0, None::<Time>);
        let mut is_original_delivered = false;
        self.scoreboard.on_ack(ack, |segment| {
            count += 1.0;
            if newest.is_none_or(|newest| newest.number < segment.number) {
                newest = Some(*segment);
            }
            if !segment.is_retransmitted {
                original_sent_at.get_or_insert(segment.sent_at);
                is_original_delivered |= segment.state == SegmentState::Lost;
            }
        });
        let has_advanced = ack.cumulative > self.acknowledged;
        self.acknowledged = self.acknowledged.max(ack.cumulative);
        let rtt = newest
            .filter(|newest| !newest.is_retransmitted)
            .map(|newest| now.since(newest.sent_at));
        if let Some(sent_at) = original_sent_at {
            self.update_rtt(now.since(sent_at));
        }
        if let Some(rtt) = rtt {
            self.min_rtt = self.min_rtt.min(rtt);
        }
        let sample = self.delivery.on_delivered(now, count, newest.as_ref(), self.min_rtt);
        if self.state == RecoveryState::Loss && is_original_delivered {
            // What the timeout took for lost arrives: the timeout was spurious (RFC 5682).
            self.scoreboard.undo_lost();
            self.congestion.on_undo();
            self.state = RecoveryState::Open;
        }
        let newly_lost = self.detect_lost(now);
        self.end_recovery();
        let event = AckEvent {
            now,
            sample,
            newly_delivered: count,
            newly_lost: newly_lost as f64,
            delivered: self.delivery.delivered(),
            in_flight: self.scoreboard.in_flight() as f64,
            prior_in_flight,
            rtt,
            srtt: self.srtt.unwrap_or_default(),
            min_rtt: self.min_rtt,
            state: self.state,
            is_cwnd_limited: self.is_cwnd_limited,
            max_in_flight: self.max_in_flight as f64,
        };
        self.congestion.on_ack(&event);
        if self.congestion.is_rate_limited() {
            self.delivery.on_app_limited(self.scoreboard.in_flight() as f64);
        }
        if has_advanced || count > 0.0 {
            self.backoff = 0;
            self.probe_sent = false;
            self.arm_timer(now);
            self.max_in_flight = self.scoreboard.in_flight();
            self.is_cwnd_limited = false;
        }
    }

    fn update_rtt(&mut self, rtt: Duration) {
        self.min_rtt = self.min_rtt.min(rtt);
        let Some(srtt) = self.srtt else {
            self.srtt = Some(rtt);
            self.rtt_deviation = rtt / 2;
            return;
        };
        self.rtt_deviation = (self.rtt_deviation * 3 + rtt.abs_diff(srtt)) / 4;
        self.srtt = Some((srtt * 7 + rtt) / 8);
    }

    fn detect_lost(&mut self, now: Time) -> usize {
        let rtt = self.srtt.unwrap_or(INITIAL_RTO);
        let window = (self.min_rtt / 4).min(rtt);
        let in_flight = self.scoreboard.in_flight() as f64;
        let (newly_lost, check_at) = self.scoreboard.detect_lost(now, rtt, window);
        self.reorder_at = check_at;
        if newly_lost > 0 && self.state == RecoveryState::Open {
            self.state = RecoveryState::Recovery;
            self.recovery_end = self.next;
            self.congestion.on_enter_recovery(in_flight);
        }
        newly_lost
    }

    fn end_recovery(&mut self) {
        if self.state != RecoveryState::Open && self.acknowledged >= self.recovery_end {
            if self.state == RecoveryState::Recovery {
                self.congestion.on_exit_recovery();
            }
            self.state = RecoveryState::Open;
        }
    }

    /// Returns the next segment to send, if the window and the pace allow one now.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<ByteRange> {
        let has_data = self.scoreboard.lost() > 0 || self.unsent() > 0;
        if !has_data {
            self.note_app_limited();
            return None;
        }
        if !std::mem::take(&mut self.is_probe_due) {
            if (self.scoreboard.in_flight() as f64) + 1.0 > self.congestion.cwnd().max(1.0) {
                self.is_cwnd_limited = true;
                return None;
            }
            if !self.take_from_burst(now) {
                return None;
            }
        }
        let range = self.send_lost(now).unwrap_or_else(|| self.send_new(now));
        self.max_in_flight = self.max_in_flight.max(self.scoreboard.in_flight());
        if self.timer.is_none() {
            self.arm_timer(now);
        }
        Some(range)
    }

    fn send_lost(&mut self, now: Time) -> Option<ByteRange> {
        let number = self.next_number;
        let segment = self.scoreboard.retransmit()?;
        self.delivery.stamp(now, number, segment);
        self.next_number += 1;
        self.retransmitted += 1;
        Some(segment.range)
    }

    fn send_new(&mut self, now: Time) -> ByteRange {
        let is_idle = self.scoreboard.is_empty();
        if is_idle {
            self.congestion.on_restart_from_idle(now, self.delivery.is_app_limited());
            self.delivery.on_restart(now);
        }
        let range = (self.next, self.written.min(self.next + MSS));
        self.next = range.1;
        let mut segment = Segment {
            range,
            state: SegmentState::InFlight,
            is_retransmitted: false,
            number: 0,
            sent_at: now,
            first_sent_at: now,
            delivered: 0.0,
            delivered_at: now,
            is_app_limited: false,
        };
        self.delivery.stamp(now, self.next_number, &mut segment);
        self.next_number += 1;
        self.scoreboard.push(segment);
        range
    }

    /// Nothing waits to be sent although the window is open: rates from here on are the application's.
    fn note_app_limited(&mut self) {
        let in_flight = self.scoreboard.in_flight() as f64;
        if in_flight < self.congestion.cwnd() {
            self.delivery.on_app_limited(in_flight);
        }
    }

    /// Bytes per second; `None` is unpaced.
    fn pacing_rate(&self) -> Option<f64> {
        let own = self.congestion.pacing_rate().map(|rate| rate * MSS as f64);
        let Some(cap) = self.pacing_cap else { return own };
        let srtt = self.srtt.unwrap_or(Duration::from_millis(1));
        let own = own.unwrap_or_else(|| self.congestion.window_pacing_rate(srtt) * MSS as f64);
        Some(own.min(cap as f64).max(1.0))
    }

    /// Segments leave in bursts of a millisecond, two or more at a time, as from Linux' pacing.
    fn take_from_burst(&mut self, now: Time) -> bool {
        let Some(rate) = self.pacing_rate() else { return true };
        if self.burst_left == 0 {
            if now < self.next_burst_at {
                return false;
            }
            let available = self.unsent().div_ceil(MSS) as f64 + self.scoreboard.lost() as f64;
            let segments = (rate / 1000.0 / MSS as f64).floor().clamp(2.0, 44.0).min(available);
            self.burst_left = segments.max(1.0) as u32;
            let time = Duration::from_secs_f64(f64::from(self.burst_left) * MSS as f64 / rate);
            self.next_burst_at = now + time;
        }
        self.burst_left -= 1;
        true
    }

    fn rto(&self) -> Duration {
        let Some(srtt) = self.srtt else { return INITIAL_RTO };
        let rto = srtt + (self.rtt_deviation * 4).max(MIN_RTO);
        (rto * 2_u32.pow(self.backoff.min(10))).min(MAX_RTO)
    }

    fn arm_timer(&mut self, now: Time) {
        if self.scoreboard.is_empty() {
            self.timer = None;
            return;
        }
        let rto = self.rto();
        let may_probe = self.state == RecoveryState::Open
            && self.scoreboard.sacked() == 0
            && !self.probe_sent
            && self.srtt.is_some();
        self.timer = if may_probe {
            let margin = PROBE_MARGIN[usize::from(self.scoreboard.in_flight() > 1)];
            let timeout = self.srtt.unwrap_or_default() * 2 + margin;
            Some((now + timeout.min(rto), Timer::TailLossProbe))
        } else {
            Some((now + rto, Timer::Retransmission))
        };
    }

    /// Returns when [`Self::on_deadline`] or [`Self::poll_transmit`] must be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let has_data = self.scoreboard.lost() > 0 || self.unsent() > 0;
        let has_window = (self.scoreboard.in_flight() as f64) + 1.0 <= self.congestion.cwnd();
        let paced =
            (has_data && has_window && self.pacing_rate().is_some()).then_some(self.next_burst_at);
        let timer = self.timer.map(|(at, _)| at);
        [timer, self.reorder_at, paced].into_iter().flatten().min()
    }

    pub(crate) fn on_deadline(&mut self, now: Time) {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.detect_lost(now);
        }
        let Some((at, timer)) = self.timer else { return };
        if at > now {
            return;
        }
        match timer {
            Timer::TailLossProbe => self.send_probe(now),
            Timer::Retransmission => {
                self.congestion.on_timeout();
                self.scoreboard.mark_all_lost();
                self.state = RecoveryState::Loss;
                self.recovery_end = self.next;
                self.backoff += 1;
                self.next_burst_at = now;
                self.burst_left = 0;
                self.arm_timer(now);
            }
        }
    }

    /// A tail loss probe: new data, or the last segment again.
    fn send_probe(&mut self, now: Time) {
        self.probe_sent = true;
        self.is_probe_due = true;
        if self.unsent() == 0 {
            self.scoreboard.lose_last();
        }
        self.arm_timer(now);
    }
}
