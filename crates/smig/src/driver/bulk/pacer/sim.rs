//! A bottleneck and its senders in virtual time, for tests: one queue, one rate that may change, a
//! fixed delay, and Reno's windows, which grow and are halved by loss.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

use super::{Pacer, RateSample};

/// Bytes per packet.
pub(super) const PACKET: u64 = 1448;
const TICK: Duration = Duration::from_micros(100);
const TICKS_A_MILLI: u64 = 10;
/// Mean opportunities per millisecond to deliver ACKs: 5 Mbit/s of full packets.
const CHANCES_BACK: f64 = 0.42;

/// A sender of unlimited data.
struct Sender {
    pace: Option<Pacer>,
    cwnd: f64,
    slow_start: bool,
    in_flight: u64,
    acknowledged: u64,
    srtt: Duration,
    deviation: Duration,
    credit: u64,
    deaf_until: Instant,
}

impl Sender {
    fn new(pace: Option<Pacer>) -> Self {
        Self {
            pace,
            cwnd: 10.0,
            slow_start: true,
            in_flight: 0,
            acknowledged: 0,
            srtt: Duration::ZERO,
            deviation: Duration::ZERO,
            credit: 0,
            deaf_until: Instant::from_nanos(0),
        }
    }

    fn on_acknowledged(&mut self, rtt: Duration) {
        self.in_flight -= 1;
        self.acknowledged += PACKET;
        self.deviation = (self.deviation * 3 + rtt.abs_diff(self.srtt)) / 4;
        self.srtt = if self.srtt.is_zero() { rtt } else { (self.srtt * 7 + rtt) / 8 };
        // A window that is not used does not grow.
        if (self.in_flight as f64) * 2.0 > self.cwnd {
            self.cwnd += if self.slow_start { 1.0 } else { 1.0 / self.cwnd };
        }
    }

    fn on_lost(&mut self, now: Instant) {
        self.in_flight -= 1;
        if now > self.deaf_until {
            self.cwnd = (self.cwnd / 2.0).max(2.0);
            self.slow_start = false;
            self.deaf_until = now + self.srtt;
        }
    }
}

enum Fate {
    Acknowledged,
    Lost,
}

struct News {
    at: Instant,
    of: usize,
    sent: Instant,
    fate: Fate,
}

pub(super) struct Path {
    now: Instant,
    base: Duration,
    limit: usize,
    /// Bytes per second.
    pub(super) rate: u64,
    served: u64,
    weather: Option<Weather>,
    /// Variation of the reverse path.
    back: Option<Weather>,
    /// Bytes that the path could have carried since the measurement began.
    offered: u64,
    queue: VecDeque<(usize, Instant)>,
    /// Ordered by time: the delay is the same for all.
    news: VecDeque<News>,
    senders: Vec<Sender>,
    /// Queue length in packets, summed over ticks.
    waiting: u64,
    ticks: u64,
    pub(super) drops: u64,
}

/// Results of a measurement.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Bytes per second of each sender.
    pub(super) rates: Vec<u64>,
    /// Bytes per second that the path offered.
    pub(super) offered: u64,
    /// Mean queueing delay.
    pub(super) queue: Duration,
}

impl Path {
    pub(super) fn new(rate: u64, base: Duration, limit: usize) -> Self {
        Self {
            now: Instant::from_nanos(1_000_000_000),
            base,
            limit,
            rate,
            served: 0,
            weather: None,
            back: None,
            offered: 0,
            queue: VecDeque::new(),
            news: VecDeque::new(),
            senders: Vec::new(),
            waiting: 0,
            ticks: 0,
            drops: 0,
        }
    }

    /// Lets the rate vary around its value from now on, with Poisson departures, as on a cellular link.
    pub(super) fn vary(&mut self, seed: u64) {
        self.weather = Some(Weather { state: seed, level: 1.0, outage: false });
        self.back = Some(Weather { state: seed + 1, level: 1.0, outage: false });
    }

    /// Adds a paced sender.
    pub(super) fn add_paced(&mut self) {
        let pace = Pacer::begin(self.now, self.base);
        self.senders.push(Sender::new(Some(pace)));
    }

    /// Adds a sender without pacing.
    pub(super) fn add_plain(&mut self) {
        self.senders.push(Sender::new(None));
    }

    /// Removes the last sender.
    pub(super) fn remove(&mut self) {
        let gone = self.senders.len() - 1;
        self.senders.pop();
        self.queue.retain(|&(of, _)| of != gone);
        self.news.retain(|news| news.of != gone);
    }

    pub(super) fn run(&mut self, time: Duration) -> Stretch {
        let before: Vec<u64> = self.senders.iter().map(|sender| sender.acknowledged).collect();
        (self.waiting, self.ticks, self.offered) = (0, 0, 0);
        let end = self.now + time;
        while self.now < end {
            self.tick();
        }
        let rate = |(sender, before): (&Sender, u64)| {
            ((sender.acknowledged - before) as f64 / time.as_secs_f64()) as u64
        };
        let packet = PACKET as f64 / self.rate as f64;
        Stretch {
            rates: self.senders.iter().zip(before).map(rate).collect(),
            offered: (self.offered as f64 / time.as_secs_f64()) as u64,
            queue: Duration::from_secs_f64(self.waiting as f64 / self.ticks as f64 * packet),
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        self.hear();
        for of in 0..self.senders.len() {
            self.measure(of);
            self.send(of);
        }
        self.serve();
        self.waiting += self.queue.len() as u64;
        self.ticks += 1;
    }

    fn hear(&mut self) {
        if let Some(back) = &mut self.back
            && (!self.ticks.is_multiple_of(TICKS_A_MILLI) || back.packets(CHANCES_BACK) == 0)
        {
            return;
        }
        while let Some(news) = self.news.front()
            && news.at <= self.now
        {
            let rtt = self.now.saturating_duration_since(news.sent);
            match news.fate {
                Fate::Acknowledged => self.senders[news.of].on_acknowledged(rtt),
                Fate::Lost => self.senders[news.of].on_lost(self.now),
            }
            self.news.pop_front();
        }
    }

    fn measure(&mut self, of: usize) {
        let sender = &mut self.senders[of];
        let Some(pace) = &mut sender.pace else { return };
        if !pace.is_due(self.now) {
            return;
        }
        if sender.srtt.is_zero() {
            pace.on_silence(self.now);
            return;
        }
        let reading = RateSample {
            acknowledged: sender.acknowledged,
            sent: sender.acknowledged + sender.in_flight * PACKET,
            rtt: sender.srtt,
            deviation: sender.deviation,
            in_flight: sender.in_flight * PACKET,
            base: self.base,
            packet: PACKET as u32,
        };
        pace.on_reading(self.now, reading);
    }

    fn send(&mut self, of: usize) {
        let sender = &mut self.senders[of];
        let cap = sender.pace.as_ref().map_or(u64::MAX, Pacer::cap);
        let more = u128::from(cap) * TICK.as_nanos() / 1_000_000_000;
        sender.credit = sender.credit.saturating_add(more as u64).min(2 * PACKET);
        while sender.credit >= PACKET && (sender.in_flight as f64) < sender.cwnd {
            if cap < u64::MAX {
                sender.credit -= PACKET;
            }
            sender.in_flight += 1;
            if self.queue.len() < self.limit {
                self.queue.push_back((of, self.now));
            } else {
                self.drops += 1;
                let at = self.now + self.base;
                self.news.push_back(News { at, of, sent: self.now, fate: Fate::Lost });
            }
        }
    }

    fn serve(&mut self) {
        let steady = (u128::from(self.rate) * TICK.as_nanos() / 1_000_000_000) as u64;
        let more = match &mut self.weather {
            None => steady,
            Some(weather) if self.ticks.is_multiple_of(TICKS_A_MILLI) => {
                let packets = (steady * TICKS_A_MILLI) as f64 / PACKET as f64;
                weather.packets(packets) * PACKET
            }
            Some(_) => 0,
        };
        self.offered += more;
        self.served += more;
        while self.served >= PACKET
            && let Some((of, sent)) = self.queue.pop_front()
        {
            self.served -= PACKET;
            let at = self.now + self.base;
            self.news.push_back(News { at, of, sent, fate: Fate::Acknowledged });
        }
        self.served = if self.weather.is_some() { 0 } else { self.served.min(PACKET) };
    }
}

/// A rate that varies: a random walk that reverts to its mean, with Poisson departures.
struct Weather {
    state: u64,
    level: f64,
    outage: bool,
}

impl Weather {
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
        let (least, mut product, mut packets) = ((-mean * self.level).exp(), self.uniform(), 0);
        while product > least {
            product *= self.uniform();
            packets += 1;
        }
        packets
    }

    fn uniform(&mut self) -> f64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }
}
