//! A bottleneck and its senders in virtual time, for tests: one queue, one rate that may change, a
//! fixed delay, and Reno's windows, which grow and are halved by loss.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

use super::Pacer;
use crate::RateSample;

/// Bytes per packet.
pub(super) const PACKET_BYTES: u64 = 1448;
const TICK: Duration = Duration::from_micros(100);
const TICKS_PER_MS: u64 = 10;
/// Mean opportunities per millisecond to deliver ACKs: 5 Mbit/s of full packets.
const MEAN_ACK_CHANCES_PER_MS: f64 = 0.42;

/// A sender of unlimited data.
struct Sender {
    pacer: Option<Pacer>,
    cwnd: f64,
    slow_start: bool,
    packets_in_flight: u64,
    acknowledged: u64,
    srtt: Duration,
    deviation: Duration,
    credit: u64,
    recovery_until: Instant,
}

impl Sender {
    fn new(pacer: Option<Pacer>) -> Self {
        Self {
            pacer,
            cwnd: 10.0,
            slow_start: true,
            packets_in_flight: 0,
            acknowledged: 0,
            srtt: Duration::ZERO,
            deviation: Duration::ZERO,
            credit: 0,
            recovery_until: Instant::from_nanos(0),
        }
    }

    fn on_acknowledged(&mut self, rtt: Duration) {
        self.packets_in_flight -= 1;
        self.acknowledged += PACKET_BYTES;
        self.deviation = (self.deviation * 3 + rtt.abs_diff(self.srtt)) / 4;
        self.srtt = if self.srtt.is_zero() { rtt } else { (self.srtt * 7 + rtt) / 8 };
        // A window that is not used does not grow.
        if (self.packets_in_flight as f64) * 2.0 > self.cwnd {
            self.cwnd += if self.slow_start { 1.0 } else { 1.0 / self.cwnd };
        }
    }

    fn on_lost(&mut self, now: Instant) {
        self.packets_in_flight -= 1;
        if now > self.recovery_until {
            self.cwnd = (self.cwnd / 2.0).max(2.0);
            self.slow_start = false;
            self.recovery_until = now + self.srtt;
        }
    }
}

enum AckOrLoss {
    Acknowledged,
    Lost,
}

struct Feedback {
    at: Instant,
    sender: usize,
    sent_at: Instant,
    kind: AckOrLoss,
}

pub(super) struct Path {
    now: Instant,
    base_rtt: Duration,
    max_queue_packets: usize,
    /// Bytes per second.
    pub(super) rate: u64,
    service_credit: u64,
    variation: Option<RateVariation>,
    /// Variation of the reverse path.
    reverse_variation: Option<RateVariation>,
    /// Bytes that the path could have carried since the beginning of the measurement.
    offered_bytes: u64,
    queue: VecDeque<(usize, Instant)>,
    /// Ordered by time: the delay is the same for all.
    feedback: VecDeque<Feedback>,
    senders: Vec<Sender>,
    /// Queue length in packets, summed over ticks.
    queued_sum: u64,
    ticks: u64,
    pub(super) drops: u64,
}

/// Results of a measurement.
#[derive(Debug)]
pub(super) struct Measurement {
    /// Bytes per second of each sender.
    pub(super) rates: Vec<u64>,
    /// Bytes per second that the path offered.
    pub(super) offered_rate: u64,
    /// Mean queueing delay.
    pub(super) queue_delay: Duration,
}

impl Path {
    pub(super) fn new(rate: u64, base_rtt: Duration, max_queue_packets: usize) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            base_rtt,
            max_queue_packets,
            rate,
            service_credit: 0,
            variation: None,
            reverse_variation: None,
            offered_bytes: 0,
            queue: VecDeque::new(),
            feedback: VecDeque::new(),
            senders: Vec::new(),
            queued_sum: 0,
            ticks: 0,
            drops: 0,
        }
    }

    /// Makes the rate vary around its value from now on, with Poisson departures, as on a cellular link.
    pub(super) fn vary_rate(&mut self, seed: u64) {
        self.variation = Some(RateVariation { rng_state: seed, level: 1.0, outage: false });
        self.reverse_variation =
            Some(RateVariation { rng_state: seed + 1, level: 1.0, outage: false });
    }

    /// Adds a paced sender.
    pub(super) fn add_paced(&mut self) {
        let pacer = Pacer::new(self.now, self.base_rtt);
        self.senders.push(Sender::new(Some(pacer)));
    }

    /// Adds a sender without pacing.
    pub(super) fn add_unpaced(&mut self) {
        self.senders.push(Sender::new(None));
    }

    /// Removes the last sender.
    pub(super) fn remove_last(&mut self) {
        let removed = self.senders.len() - 1;
        self.senders.pop();
        self.queue.retain(|&(index, _)| index != removed);
        self.feedback.retain(|feedback| feedback.sender != removed);
    }

    pub(super) fn run(&mut self, time: Duration) -> Measurement {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.acknowledged).collect();
        (self.queued_sum, self.ticks, self.offered_bytes) = (0, 0, 0);
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
        let rate = |(sender, before): (&Sender, u64)| {
            ((sender.acknowledged - before) as f64 / time.as_secs_f64()) as u64
        };
        let packet = PACKET_BYTES as f64 / self.rate as f64;
        Measurement {
            rates: self.senders.iter().zip(before).map(rate).collect(),
            offered_rate: (self.offered_bytes as f64 / time.as_secs_f64()) as u64,
            queue_delay: Duration::from_secs_f64(
                self.queued_sum as f64 / self.ticks as f64 * packet,
            ),
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        self.deliver_feedback();
        for index in 0..self.senders.len() {
            self.sample_path(index);
            self.send(index);
        }
        self.serve();
        self.queued_sum += self.queue.len() as u64;
        self.ticks += 1;
    }

    fn deliver_feedback(&mut self) {
        if let Some(variation) = &mut self.reverse_variation
            && (!self.ticks.is_multiple_of(TICKS_PER_MS)
                || variation.packets(MEAN_ACK_CHANCES_PER_MS) == 0)
        {
            return;
        }
        while let Some(feedback) = self.feedback.front()
            && feedback.at <= self.now
        {
            let rtt = self.now.saturating_duration_since(feedback.sent_at);
            match feedback.kind {
                AckOrLoss::Acknowledged => self.senders[feedback.sender].on_acknowledged(rtt),
                AckOrLoss::Lost => self.senders[feedback.sender].on_lost(self.now),
            }
            self.feedback.pop_front();
        }
    }

    fn sample_path(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        let Some(pacer) = &mut sender.pacer else { return };
        if !pacer.is_due(self.now) {
            return;
        }
        if sender.srtt.is_zero() {
            pacer.on_idle(self.now);
            return;
        }
        let sample = RateSample {
            acknowledged: sender.acknowledged,
            sent: sender.acknowledged + sender.packets_in_flight * PACKET_BYTES,
            rtt: sender.srtt,
            rtt_deviation: sender.deviation,
            in_flight: sender.packets_in_flight * PACKET_BYTES,
            min_rtt: self.base_rtt,
            retransmitted: 0,
            mss: PACKET_BYTES as u32,
        };
        pacer.on_sample(self.now, sample);
    }

    fn send(&mut self, index: usize) {
        let sender = &mut self.senders[index];
        let cap = sender.pacer.as_ref().map_or(u64::MAX, Pacer::cap);
        let more = u128::from(cap) * TICK.as_nanos() / 1_000_000_000;
        sender.credit = sender.credit.saturating_add(more as u64).min(2 * PACKET_BYTES);
        let max_in_flight = sender.pacer.as_ref().map_or(u64::MAX, Pacer::max_in_flight);
        while sender.credit >= PACKET_BYTES
            && (sender.packets_in_flight as f64) < sender.cwnd
            && (sender.packets_in_flight + 1) * PACKET_BYTES <= max_in_flight
        {
            if cap < u64::MAX {
                sender.credit -= PACKET_BYTES;
            }
            sender.packets_in_flight += 1;
            if self.queue.len() < self.max_queue_packets {
                self.queue.push_back((index, self.now));
            } else {
                self.drops += 1;
                let at = self.now + self.base_rtt;
                self.feedback.push_back(Feedback {
                    at,
                    sender: index,
                    sent_at: self.now,
                    kind: AckOrLoss::Lost,
                });
            }
        }
    }

    fn serve(&mut self) {
        let steady_bytes = (u128::from(self.rate) * TICK.as_nanos() / 1_000_000_000) as u64;
        let new_credit = match &mut self.variation {
            None => steady_bytes,
            Some(variation) if self.ticks.is_multiple_of(TICKS_PER_MS) => {
                let packets = (steady_bytes * TICKS_PER_MS) as f64 / PACKET_BYTES as f64;
                variation.packets(packets) * PACKET_BYTES
            }
            Some(_) => 0,
        };
        self.offered_bytes += new_credit;
        self.service_credit += new_credit;
        while self.service_credit >= PACKET_BYTES
            && let Some((index, sent_at)) = self.queue.pop_front()
        {
            self.service_credit -= PACKET_BYTES;
            let at = self.now + self.base_rtt;
            self.feedback.push_back(Feedback {
                at,
                sender: index,
                sent_at,
                kind: AckOrLoss::Acknowledged,
            });
        }
        self.service_credit =
            if self.variation.is_some() { 0 } else { self.service_credit.min(PACKET_BYTES) };
    }
}

/// A rate that varies: a random walk that reverts to its mean, with Poisson departures.
struct RateVariation {
    rng_state: u64,
    level: f64,
    outage: bool,
}

impl RateVariation {
    fn packets(&mut self, mean: f64) -> u64 {
        if self.outage {
            // An outage lasts a second on average.
            self.outage = self.uniform() > 0.001;
            return 0;
        }
        // The sum of twelve approximates a normal distribution.
        let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        self.level += (1.0 - self.level) / 8000.0 + 0.0063 * normal;
        self.level = self.level.clamp(0.0, 3.0);
        self.outage = self.level == 0.0;
        let (threshold, mut product, mut packets) = ((-mean * self.level).exp(), self.uniform(), 0);
        while product > threshold {
            product *= self.uniform();
            packets += 1;
        }
        packets
    }

    fn uniform(&mut self) -> f64 {
        self.rng_state ^= self.rng_state << 13;
        self.rng_state ^= self.rng_state >> 7;
        self.rng_state ^= self.rng_state << 17;
        (self.rng_state >> 11) as f64 / (1_u64 << 53) as f64
    }
}
