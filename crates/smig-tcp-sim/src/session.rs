//! The server's session: small responses and a download, on one connection or on two, and what bounds the download.

use std::collections::VecDeque;
use std::time::Duration;

use smig_link::Time;
use smig_pace::{BulkDeferral, DEFERRED_RATE_DIVISOR, RateSample};
use smig_proto::Instant;

use crate::limit::BulkLimit;
use crate::network::Network;
use crate::packet::MSS;

/// How bulk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// As much as the socket's send buffer takes.
    Unbounded,
    /// At most a few milliseconds' worth waits in the socket (TCP_NOTSENT_LOWAT).
    LowUnsent,
    /// As above, at a rate that the kernel limits (SO_MAX_PACING_RATE).
    Rate,
    /// As above, and below a bound in flight that the session keeps.
    Kernel,
    /// In pieces, at a rate and below a bound in flight that the session keeps.
    Session,
}

/// Which connection carries bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkConnection {
    /// The one that carries the small responses.
    Shared,
    /// Its own.
    Own,
}

/// A process that does not always run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// It runs this long...
    pub run: Duration,
    /// ...of each such period.
    pub period: Duration,
}

/// Unsent data in the socket, in milliseconds at the delivery rate: beside small responses, and on its own.
const UNSENT_MS: [u64; 2] = [4, 24];
const MIN_UNSENT_BYTES: u64 = 16 << 10;
const BATCH_BYTES: u64 = 16 << 10;
const MAX_DEFERRAL: Duration = Duration::from_millis(25);
/// Between two pieces of bulk that the session releases.
const RELEASE_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Bulk,
    Response(usize),
}

#[derive(Debug)]
pub(crate) struct Session<L> {
    limit: Option<L>,
    make_limit: fn(Instant, Duration) -> L,
    release: Release,
    schedule: Option<Schedule>,
    interactive: usize,
    bulk: usize,
    /// Bytes of bulk that are still to be written; `None` before the download is requested.
    bulk_left: Option<u64>,
    bulk_delivered: u64,
    /// What was written and has not arrived: the number of the last byte, by connection.
    written: [VecDeque<(u64, Content)>; 2],
    arrived: [u64; 2],
    response_bytes: u64,
    deferral: BulkDeferral,
    /// Bytes that may be released now, and since when that has not been updated.
    budget: f64,
    released_at: Time,
    release_at: Option<Time>,
    acknowledged: u64,
    last_acknowledged: [u64; 2],
    /// Responses that have arrived.
    pub(crate) completed: Vec<(usize, Time)>,
    pub(crate) bulk_completed: Option<Time>,
}

impl<L: BulkLimit> Session<L> {
    pub(crate) fn new(
        flows: [usize; 2],
        release: Release,
        schedule: Option<Schedule>,
        response_bytes: u64,
        make_limit: fn(Instant, Duration) -> L,
    ) -> Self {
        Self {
            limit: None,
            make_limit,
            release,
            schedule,
            interactive: flows[0],
            bulk: flows[1],
            bulk_left: None,
            bulk_delivered: 0,
            written: [VecDeque::new(), VecDeque::new()],
            arrived: [0; 2],
            response_bytes,
            deferral: BulkDeferral::new(MAX_DEFERRAL),
            budget: 0.0,
            released_at: Time::ZERO,
            release_at: None,
            acknowledged: 0,
            last_acknowledged: [0; 2],
            completed: Vec::new(),
            bulk_completed: None,
        }
    }

    pub(crate) const fn start_bulk(&mut self, bytes: u64) {
        self.bulk_left = Some(bytes);
    }

    pub(crate) const fn bulk_delivered(&self) -> u64 {
        self.bulk_delivered
    }

    pub(crate) const fn limit(&self) -> Option<&L> {
        self.limit.as_ref()
    }

    fn is_shared(&self) -> bool {
        self.interactive == self.bulk
    }

    /// The index of a connection's state.
    fn index(&self, flow: usize) -> usize {
        usize::from(flow != self.interactive)
    }

    /// Returns when it must run next.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let limit = self.limit.as_ref().and_then(BulkLimit::deadline).map(time);
        let deferral = self.deferral.deadline().map(time);
        let next = [limit, self.release_at, deferral].into_iter().flatten().min()?;
        // Not before the process runs.
        Some(next.max(now).max(self.next_run(next.max(now))))
    }

    fn next_run(&self, at: Time) -> Time {
        let Some(Schedule { run, period }) = self.schedule else { return at };
        let offset = at.as_nanos() % period.as_nanos() as u64;
        if offset < run.as_nanos() as u64 {
            return at;
        }
        Time::from_nanos(at.as_nanos() - offset + period.as_nanos() as u64)
    }

    /// Does what can be done now.
    pub(crate) fn poll(&mut self, network: &mut Network) {
        self.receive(network);
        let now = network.now();
        if self.next_run(now) > now {
            return;
        }
        let mut sent = 0;
        for id in network.take_requests() {
            let end = network.write(self.interactive, self.response_bytes);
            self.written[0].push_back((end, Content::Response(id)));
            sent += self.response_bytes;
        }
        if self.bulk_left.is_none() {
            return;
        }
        let instant = instant(now);
        if self.release >= Release::Rate && self.limit.is_none() {
            let min_rtt = network.info(self.interactive).min_rtt;
            self.limit = Some((self.make_limit)(instant, min_rtt));
            self.released_at = now;
        }
        if self.limit.as_ref().is_some_and(|limit| limit.is_due(instant)) {
            self.sample(network);
        }
        match self.release {
            Release::Unbounded => self.fill(network, u64::MAX),
            Release::LowUnsent => self.fill(network, UNSENT_MS[0]),
            Release::Rate | Release::Kernel => self.release_by_kernel(network, sent),
            Release::Session => self.release_pieces(network, sent),
        }
    }

    /// What the client's application has received.
    fn receive(&mut self, network: &Network) {
        let count = if self.is_shared() { 1 } else { 2 };
        for (index, flow) in [self.interactive, self.bulk].into_iter().take(count).enumerate() {
            let delivered = network.delivered(flow);
            while self.arrived[index] < delivered
                && let Some(&(end, content)) = self.written[index].front()
            {
                let until = end.min(delivered);
                match content {
                    Content::Bulk => self.bulk_delivered += until - self.arrived[index],
                    Content::Response(id) if until == end => {
                        self.completed.push((id, network.now()));
                    }
                    Content::Response(_) => {}
                }
                self.arrived[index] = until;
                if until == end {
                    self.written[index].pop_front();
                }
            }
        }
        let is_written = self.bulk_left == Some(0) && self.bulk_completed.is_none();
        let index = self.index(self.bulk);
        if is_written && !self.written[index].iter().any(|(_, content)| *content == Content::Bulk) {
            self.bulk_completed = Some(network.now());
        }
    }

    fn sample(&mut self, network: &Network) {
        let now = instant(network.now());
        let flows = if self.is_shared() { 1 } else { 2 };
        let infos = [network.info(self.interactive), network.info(self.bulk)];
        let (mut in_flight, mut min_rtt) = (0, Duration::MAX);
        for (index, info) in infos[..flows].iter().enumerate() {
            self.acknowledged += info.acknowledged - self.last_acknowledged[index];
            self.last_acknowledged[index] = info.acknowledged;
            in_flight += info.in_flight;
            min_rtt = min_rtt.min(info.min_rtt);
        }
        let Some(limit) = &mut self.limit else { return };
        let bulk = infos[flows - 1];
        if bulk.in_flight == 0 && self.bulk_left == Some(0) {
            limit.on_idle(now);
            return;
        }
        limit.on_sample(
            now,
            RateSample {
                acknowledged: self.acknowledged,
                sent: self.acknowledged + in_flight,
                rtt: bulk.rtt,
                in_flight: bulk.in_flight,
                rtt_deviation: bulk.rtt_deviation,
                min_rtt,
                retransmitted: infos[..flows].iter().map(|info| info.retransmitted).sum(),
                mss: MSS as u32,
            },
        );
    }

    fn write_bulk(&mut self, network: &mut Network, bytes: u64) {
        let left = self.bulk_left.unwrap_or(0);
        let bytes = bytes.min(left);
        if bytes == 0 {
            return;
        }
        self.bulk_left = Some(left - bytes);
        let end = network.write(self.bulk, bytes);
        let index = self.index(self.bulk);
        let written = &mut self.written[index];
        match written.back_mut() {
            Some((last, Content::Bulk)) => *last = end,
            _ => written.push_back((end, Content::Bulk)),
        }
    }

    /// Keeps the socket filled: with so many milliseconds' worth, or with what its send buffer takes.
    fn fill(&mut self, network: &mut Network, unsent_ms: u64) {
        let info = network.info(self.bulk);
        let max = if unsent_ms == u64::MAX {
            info.cwnd.max(64 << 10)
        } else {
            (info.delivery_rate / 1000 * unsent_ms).max(MIN_UNSENT_BYTES)
        };
        while self.bulk_left > Some(0) && network.unsent(self.bulk) < max {
            self.write_bulk(network, BATCH_BYTES);
        }
    }

    fn release_by_kernel(&mut self, network: &mut Network, sent: u64) {
        let Some(limit) = &self.limit else { return };
        let now = instant(network.now());
        let (mut cap, capacity, max) = (limit.cap(), limit.capacity(), limit.max_in_flight());
        if !self.is_shared() {
            self.deferral.on_interactive(now, sent, capacity);
            if self.deferral.is_active(now) {
                cap = cap.min(capacity / DEFERRED_RATE_DIVISOR);
            }
        }
        network.set_pacing_cap(self.bulk, cap);
        let unsent_ms = UNSENT_MS[self.index(self.bulk)];
        if max == u64::MAX || self.release == Release::Rate {
            self.release_at = None;
            self.fill(network, unsent_ms);
            return;
        }
        let info = network.info(self.bulk);
        let room = max.saturating_sub(info.in_flight + info.unsent);
        let lowat = (cap.min(1 << 40) / 1000 * unsent_ms).max(MIN_UNSENT_BYTES);
        if info.unsent < lowat {
            self.write_bulk(network, room.min(lowat + BATCH_BYTES - info.unsent));
        }
        self.release_at = (self.bulk_left > Some(0)).then(|| network.now() + RELEASE_INTERVAL);
    }

    fn release_pieces(&mut self, network: &mut Network, sent: u64) {
        let Some(limit) = &self.limit else { return };
        let now = network.now();
        let (cap, max, ahead) = (limit.cap(), limit.max_in_flight(), limit.write_ahead());
        // What is written ahead must not leave at once.
        network.set_pacing_cap(self.bulk, if ahead > 0 { cap } else { u64::MAX });
        if cap == u64::MAX {
            self.release_at = None;
            self.fill(network, UNSENT_MS[self.index(self.bulk)]);
            self.released_at = now;
            return;
        }
        let rate = cap as f64;
        let elapsed = now.since(self.released_at).as_secs_f64();
        self.released_at = now;
        let max_budget = (rate * 0.004).max(3.0 * MSS as f64) + ahead as f64;
        let least = -rate * MAX_DEFERRAL.as_secs_f64();
        self.budget = (self.budget + rate * elapsed - sent as f64).clamp(least, max_budget);
        let info = network.info(self.bulk);
        let others = if self.is_shared() { 0 } else { network.info(self.interactive).in_flight };
        let room = max.saturating_sub(info.in_flight + info.unsent + others);
        let whole = |bytes: u64| bytes - bytes % MSS;
        let bytes = whole(room.min(self.budget.max(0.0) as u64));
        // The kernel takes no more than the window lets it send soon.
        let max_unsent = MIN_UNSENT_BYTES + ahead;
        if bytes > 0 && info.unsent < max_unsent {
            self.write_bulk(network, bytes);
            self.budget -= bytes as f64;
        }
        self.release_at = (self.bulk_left > Some(0)).then(|| now + RELEASE_INTERVAL);
    }
}

fn instant(at: Time) -> Instant {
    Instant::from_nanos(at.as_nanos())
}

fn time(at: Instant) -> Time {
    Time::from_nanos(at.as_nanos())
}
