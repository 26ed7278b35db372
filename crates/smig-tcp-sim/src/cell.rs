//! One run: a link, a session with small responses and a download, others' traffic; and what was measured.

use std::time::Duration;

use smig_link::{SpecError, Time};
use smig_pace::{ConnSample, Pacer};

use crate::congestion::Algorithm;
use crate::cross::{CrossSource, CrossTraffic};
use crate::network::{Network, PathSpec};
use crate::process::Schedule;
use crate::session::{BulkConnection, BulkLimit, Session};

/// Small responses during a run.
#[derive(Clone, Copy, Debug)]
pub struct Responses {
    /// Bytes of each.
    pub bytes: u64,
    /// Between two.
    pub every: Duration,
}

/// A path and what uses it.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// The link.
    pub path: PathSpec,
    /// Congestion control of the session's connections.
    pub algorithm: Algorithm,
    /// Their initial window in packets.
    pub initial_window: u32,
    /// Others.
    pub cross: Vec<CrossTraffic>,
    /// Small responses.
    pub responses: Responses,
    /// The round trip that the handshakes measured; `None` for that of the path without a queue.
    pub handshake_rtt: Option<Duration>,
    /// When the first small response is requested.
    pub first_response: Duration,
    /// When the download is requested.
    pub bulk_start: Duration,
    /// Bytes of the download; `None` for one that does not end.
    pub bulk_bytes: Option<u64>,
    /// The server's process; `None` for one that always runs.
    pub schedule: Option<Schedule>,
    /// From when on small responses and rates count, and the end of the run.
    pub measured: (Duration, Duration),
}

/// How the session sends bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Whether there is a download.
    pub has_bulk: bool,
    /// Its connection.
    pub connection: BulkConnection,
    /// What limits it.
    pub limit: BulkLimit,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Times of the small responses, from request to last byte, sorted.
    pub response_times: Vec<Duration>,
    /// Responses that were requested more than a second before the end and did not arrive.
    pub missing: usize,
    /// Bytes per second of the download while it was measured.
    pub bulk_rate: f64,
    /// From the request to the last byte.
    pub bulk_time: Option<Duration>,
    /// Bytes per second of others' [`CrossTraffic::Download`]s. Short flows and datagrams are not counted.
    pub cross_rate: f64,
    /// Mean queue in packets, over the whole run.
    pub queue: f64,
}

impl Measurement {
    /// Returns the mean of the small responses in milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        let sum: Duration = self.response_times.iter().sum();
        sum.as_secs_f64() * 1e3 / self.response_times.len().max(1) as f64
    }

    /// Returns a quantile of the small responses in milliseconds.
    #[must_use]
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        let last = self.response_times.len().saturating_sub(1);
        let index = (quantile * last as f64).round() as usize;
        self.response_times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// Returns the share of others' downloads in what both have.
    #[must_use]
    pub fn cross_share(&self) -> f64 {
        self.cross_rate / (self.cross_rate + self.bulk_rate).max(1.0)
    }
}

impl Cell {
    /// Runs it.
    ///
    /// # Errors
    /// When a link is invalid.
    pub fn run(&self, sending: Sending, seed: u64) -> Result<Measurement, SpecError> {
        self.trace(sending, seed, |_, _, _| {})
    }

    /// Returns it with a download that begins so much later, and is measured later: at another point of others' traffic.
    #[must_use]
    pub fn later(mut self, by: Duration) -> Self {
        self.bulk_start += by;
        self.measured = (self.measured.0 + by, self.measured.1 + by);
        self
    }

    /// Runs it, and passes each millisecond the time, the pacer and the queue in packets to `observe`.
    ///
    /// # Errors
    /// When a link is invalid.
    pub fn trace(
        &self,
        sending: Sending,
        seed: u64,
        mut observe: impl FnMut(Duration, Option<&Pacer>, usize),
    ) -> Result<Measurement, SpecError> {
        self.observe(sending, seed, |now, session, network| {
            observe(now, session.pacer(), network.queue_packets());
        })
    }

    /// Runs it, and passes each millisecond the time and what TCP_INFO shows of bulk's connection to `observe`.
    ///
    /// # Errors
    /// When a link is invalid.
    pub fn sample(
        &self,
        sending: Sending,
        seed: u64,
        mut observe: impl FnMut(Duration, ConnSample),
    ) -> Result<Measurement, SpecError> {
        self.observe(sending, seed, |now, session, network| {
            observe(now, session.bulk_sample(network));
        })
    }

    fn observe(
        &self,
        sending: Sending,
        seed: u64,
        observe: impl FnMut(Duration, &Session, &Network),
    ) -> Result<Measurement, SpecError> {
        let mut network = Network::new(&self.path, seed)?;
        let rtt = self.path.forward.delay + self.path.reverse.delay;
        let handshake = self.handshake_rtt.unwrap_or(rtt);
        let interactive = network.connect(self.algorithm, self.initial_window, handshake);
        let bulk = match sending.connection {
            BulkConnection::Shared => interactive,
            BulkConnection::Own | BulkConnection::Moved { .. } => {
                network.connect(self.algorithm, self.initial_window, handshake)
            }
        };
        let (bytes, flows) = (self.responses.bytes, [interactive, bulk]);
        let session = Session::new(flows, sending.connection, sending.limit, self.schedule, bytes);
        let cross = self.cross.iter().map(|&spec| CrossSource::new(spec, rtt)).collect();
        let mut run = Run {
            cell: self,
            network,
            session,
            cross,
            has_bulk: sending.has_bulk,
            requested: Vec::new(),
            next_tick: Time::ZERO,
            queue_sum: 0,
            before: [0; 2],
        };
        Ok(run.measure(observe))
    }
}

struct Run<'a> {
    cell: &'a Cell,
    network: Network,
    session: Session,
    cross: Vec<CrossSource>,
    has_bulk: bool,
    requested: Vec<Time>,
    next_tick: Time,
    queue_sum: usize,
    /// Bytes of the download and of others' at the begin of the measurement.
    before: [u64; 2],
}

const TICK: Duration = Duration::from_millis(1);

impl Run<'_> {
    fn measure(&mut self, mut observe: impl FnMut(Duration, &Session, &Network)) -> Measurement {
        let (begin, end) = self.cell.measured;
        let mut next_request = self.cell.first_response;
        let mut bulk_start = self.has_bulk.then_some(self.cell.bulk_start);
        let mut has_begun = false;
        while self.now() < end {
            let at = [Some(next_request), bulk_start, Some(end)].into_iter().flatten().min();
            self.advance(at.unwrap_or(end));
            if self.network.now() >= self.next_tick {
                self.next_tick = self.next_tick + TICK;
                self.queue_sum += self.network.queue_packets();
                observe(self.now(), &self.session, &self.network);
            }
            if !has_begun && self.now() >= begin {
                has_begun = true;
                self.before = self.bytes();
            }
            if self.now() >= next_request {
                self.network.send_request(0, self.requested.len());
                self.requested.push(self.network.now());
                next_request += self.cell.responses.every;
            }
            if bulk_start.is_some_and(|at| self.now() >= at) {
                bulk_start = None;
                self.session.start_bulk(self.cell.bulk_bytes.unwrap_or(1 << 40));
            }
            self.session.poll(&mut self.network);
            if self.session.bulk_completed.is_some() {
                break;
            }
        }
        self.result()
    }

    fn now(&self) -> Duration {
        self.network.now().since(Time::ZERO)
    }

    fn advance(&mut self, latest: Duration) {
        let now = self.network.now();
        let cross = self.cross.iter().filter_map(CrossSource::deadline).min();
        let events = [self.network.next_event(), self.session.deadline(&self.network), cross];
        let latest = (Time::ZERO + latest).min(self.next_tick);
        let next = events.into_iter().flatten().min().map_or(latest, |at| at.min(latest));
        self.network.advance(next.max(now));
        for source in &mut self.cross {
            source.poll(&mut self.network);
        }
    }

    fn bytes(&self) -> [u64; 2] {
        let flows = self.cross.iter().filter_map(CrossSource::flow);
        let cross = flows.map(|flow| self.network.delivered(flow)).sum();
        [self.session.bulk_delivered(), cross]
    }

    fn result(&self) -> Measurement {
        let (begin, _) = self.cell.measured;
        let elapsed = self.now().saturating_sub(begin).as_secs_f64().max(1e-3);
        let [bulk_rate, cross_rate] =
            [0, 1].map(|index| (self.bytes()[index] - self.before[index]) as f64 / elapsed);
        let counts = |&at: &Time| at >= Time::ZERO + begin;
        let mut response_times: Vec<_> = (self.session.completed.iter())
            .map(|&(id, at)| (self.requested[id], at))
            .filter(|(requested, _)| counts(requested))
            .map(|(requested, at)| at.since(requested))
            .collect();
        response_times.sort();
        let recent = self.network.now();
        let grace = Duration::from_secs(1);
        let is_due = |&at: &Time| counts(&at) && recent.since(at) > grace;
        let arrived = self.session.completed.iter().filter(|&&(id, _)| is_due(&self.requested[id]));
        let missing =
            self.requested.iter().filter(|&at| is_due(at)).count().saturating_sub(arrived.count());
        Measurement {
            missing,
            response_times,
            bulk_rate,
            bulk_time: (self.session.bulk_completed)
                .map(|at| at.since(Time::ZERO + self.cell.bulk_start)),
            cross_rate,
            queue: self.queue_sum as f64 / (self.now().as_secs_f64() * 1e3).max(1.0),
        }
    }
}
