//! The server's session: small responses and a download, on one connection or on two, and what bounds the download.

use std::collections::VecDeque;
use std::time::Duration;

use smig_link::Time;
use smig_pace::{Bounds, BulkBucket, Pacer, RateSample};
use smig_proto::Instant;

use crate::network::Network;
use crate::packet::MSS;
use crate::sender::TcpInfo;

/// How bulk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// As much as the socket's send buffer takes.
    Unbounded,
    /// At most a few milliseconds' worth waits in the socket (TCP_NOTSENT_LOWAT).
    LowUnsent,
    /// As above, at a rate that the kernel limits (SO_MAX_PACING_RATE).
    Rate,
    /// In pieces, as [`BulkBucket`] allows within the pacer's bounds: as `smig`'s driver does.
    Bounded,
}

/// Which connection carries bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkConnection {
    /// The one that carries the small responses.
    Shared,
    /// Its own.
    Own,
    /// The shared one, until this number of bytes is written: then a new one of its own.
    Moved {
        /// Bytes.
        after: u64,
    },
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
/// The resolution of the process's timer.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Bulk,
    Response(usize),
}

#[derive(Debug)]
pub(crate) struct Session {
    pacer: Option<Pacer>,
    bucket: BulkBucket,
    release: Release,
    schedule: Option<Schedule>,
    /// The connection with small responses, and the second one; they may be the same.
    flows: [usize; 2],
    /// The one that carries bulk now.
    bulk: usize,
    /// Bytes of bulk after which it migrates to the second one.
    move_after: u64,
    bulk_written: u64,
    /// The connection that it left, then.
    pub(crate) info_at_move: Option<TcpInfo>,
    /// Bytes of bulk that are still to be written; `None` before the download is requested.
    bulk_left: Option<u64>,
    bulk_delivered: u64,
    /// What was written and has not arrived: the number of the last byte, by connection.
    written: [VecDeque<(u64, Content)>; 2],
    arrived: [u64; 2],
    response_bytes: u64,
    acknowledged: u64,
    last_acknowledged: [u64; 2],
    /// Responses that have arrived.
    pub(crate) completed: Vec<(usize, Time)>,
    pub(crate) bulk_completed: Option<Time>,
}

impl Session {
    pub(crate) fn new(
        flows: [usize; 2],
        connection: BulkConnection,
        release: Release,
        schedule: Option<Schedule>,
        response_bytes: u64,
    ) -> Self {
        let (bulk, move_after) = match connection {
            BulkConnection::Shared => (flows[0], u64::MAX),
            BulkConnection::Own => (flows[1], u64::MAX),
            BulkConnection::Moved { after } => (flows[0], after),
        };
        Self {
            pacer: None,
            bucket: BulkBucket::new(instant(Time::ZERO), Bounds::NONE, MAX_DEFERRAL),
            release,
            schedule,
            flows,
            bulk,
            move_after,
            bulk_written: 0,
            info_at_move: None,
            bulk_left: None,
            bulk_delivered: 0,
            written: [VecDeque::new(), VecDeque::new()],
            arrived: [0; 2],
            response_bytes,
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

    pub(crate) const fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_ref()
    }

    /// The session's connections.
    fn connections(&self) -> &[usize] {
        let count = if self.flows[0] == self.flows[1] { 1 } else { 2 };
        &self.flows[..count]
    }

    /// The index of a connection's state.
    fn index(&self, flow: usize) -> usize {
        usize::from(flow != self.flows[0])
    }

    /// Returns when it must run next.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        let sample = self.pacer.as_ref().and_then(Pacer::deadline).map(time);
        let piece = self.bucket.deadline().map(|at| {
            let resolution = TIMER_RESOLUTION.as_nanos() as u64;
            Time::from_nanos(at.as_nanos().div_ceil(resolution) * resolution)
        });
        let next = [sample, piece].into_iter().flatten().min()?;
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
            let end = network.write(self.flows[0], self.response_bytes);
            self.written[0].push_back((end, Content::Response(id)));
            sent += self.response_bytes;
        }
        if self.bulk_left.is_none() {
            return;
        }
        let instant = instant(now);
        if self.release >= Release::Rate && self.pacer.is_none() {
            let pacer = Pacer::new(instant, network.info(self.flows[0]).min_rtt);
            self.bucket = BulkBucket::new(instant, pacer.bounds(), MAX_DEFERRAL);
            self.pacer = Some(pacer);
        }
        if self.pacer.as_ref().is_some_and(|pacer| pacer.is_due(instant)) {
            self.sample(network);
        }
        match self.release {
            Release::Unbounded => self.fill(network, u64::MAX),
            Release::LowUnsent => self.fill(network, UNSENT_MS[0]),
            Release::Rate => {
                let bounds = self.bounds();
                network.set_pacing_cap(self.bulk, bounds.rate);
                self.fill(network, UNSENT_MS[self.index(self.bulk)]);
            }
            Release::Bounded => self.release_pieces(network, sent),
        }
    }

    fn bounds(&self) -> Bounds {
        self.pacer.as_ref().map_or(Bounds::NONE, Pacer::bounds)
    }

    /// What the client's application has received.
    fn receive(&mut self, network: &Network) {
        for index in 0..self.connections().len() {
            let delivered = network.delivered(self.flows[index]);
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
        let mut written = self.written.iter().flatten();
        if is_written && !written.any(|(_, content)| *content == Content::Bulk) {
            self.bulk_completed = Some(network.now());
        }
    }

    fn sample(&mut self, network: &Network) {
        let now = instant(network.now());
        let infos: Vec<_> = self.connections().iter().map(|&flow| network.info(flow)).collect();
        let (mut in_flight, mut min_rtt) = (0, Duration::MAX);
        for (index, info) in infos.iter().enumerate() {
            self.acknowledged += info.acknowledged - self.last_acknowledged[index];
            self.last_acknowledged[index] = info.acknowledged;
            in_flight += info.in_flight;
            min_rtt = min_rtt.min(info.min_rtt);
        }
        // Those that have carried bulk.
        let (first, last) = match self.move_after {
            u64::MAX => (self.index(self.bulk), self.index(self.bulk)),
            _ => (0, self.index(self.bulk)),
        };
        let with_bulk = infos.get(first..=last).unwrap_or_default();
        let sending = with_bulk.iter().filter(|info| info.in_flight > 0);
        let measured = sending.min_by_key(|info| info.rtt).or_else(|| with_bulk.last());
        let bulk_in_flight = with_bulk.iter().map(|info| info.in_flight).sum();
        let (Some(pacer), Some(measured)) = (&mut self.pacer, measured) else { return };
        if bulk_in_flight == 0 && self.bulk_left == Some(0) {
            pacer.on_idle(now);
            return;
        }
        pacer.on_sample(
            now,
            RateSample {
                acknowledged: self.acknowledged,
                sent: self.acknowledged + in_flight,
                rtt: measured.rtt,
                in_flight: bulk_in_flight,
                rtt_deviation: measured.rtt_deviation,
                min_rtt,
                retransmitted: infos.iter().map(|info| info.retransmitted).sum(),
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
        if self.bulk_written >= self.move_after && self.info_at_move.is_none() {
            self.info_at_move = Some(network.info(self.bulk));
            self.bulk = self.flows[1];
        }
        self.bulk_written += bytes;
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

    fn release_pieces(&mut self, network: &mut Network, sent: u64) {
        let bounds = self.bounds();
        // What is written ahead must not leave at once.
        let cap = if bounds.write_ahead > 0 { bounds.rate } else { u64::MAX };
        network.set_pacing_cap(self.bulk, cap);
        self.bucket.refill(instant(network.now()), bounds, MSS as u32);
        self.bucket.on_interactive(sent);
        if bounds.rate == u64::MAX {
            return self.fill(network, UNSENT_MS[self.index(self.bulk)]);
        }
        // The kernel takes no more than the window lets it send soon.
        let max_unsent = MIN_UNSENT_BYTES + bounds.write_ahead;
        let mut may_write = true;
        while may_write && self.bulk_left > Some(0) {
            if self.bucket.is_full() {
                self.bucket.set_outstanding(self.outstanding(network));
            }
            let Some(piece) = self.bucket.piece() else { break };
            may_write = network.unsent(self.bulk) < max_unsent;
            if may_write {
                self.write_bulk(network, piece);
                self.bucket.consume(piece);
            }
        }
        self.bucket.set_waiting(may_write && self.bulk_left > Some(0));
    }

    /// Returns the bytes that were written to both connections and not acknowledged.
    fn outstanding(&self, network: &Network) -> u64 {
        let infos = self.connections().iter().map(|&flow| network.info(flow));
        infos.map(|info| info.in_flight + info.unsent).sum()
    }
}

fn instant(at: Time) -> Instant {
    Instant::from_nanos(at.as_nanos())
}

fn time(at: Instant) -> Time {
    Time::from_nanos(at.as_nanos())
}
