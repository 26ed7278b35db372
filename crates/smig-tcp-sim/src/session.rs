//! The server's session: small responses and a download, on one connection or on two, and what bounds the download.

use std::collections::VecDeque;
use std::time::Duration;

use smig_link::Time;
use smig_pace::{Bounds, ConnSample, PacedConn, PacedConns, Pacer, SessionPacer, UnsentLimit};
use smig_proto::Instant;

use crate::network::Network;
use crate::packet::MSS;
use crate::process::{Process, Schedule};
use crate::sender::TcpInfo;

/// What limits bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkLimit {
    /// As much as the socket's send buffer takes.
    Unbounded,
    /// At most a few milliseconds' worth waits in the socket (TCP_NOTSENT_LOWAT).
    LowUnsent,
    /// As above, at a rate that the kernel limits (SO_MAX_PACING_RATE).
    Rate,
    /// In pieces within the pacer's bounds, as `smig`'s driver does ([`SessionPacer::release`]).
    Bounded,
    /// With this many bytes in flight, checked each millisecond: what a bound that is known beforehand would give.
    Window(u64),
}

impl BulkLimit {
    const fn is_paced(self) -> bool {
        matches!(self, Self::Rate | Self::Bounded)
    }
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

/// Unsent data in the socket, in milliseconds at the delivery rate: beside small responses, and on its own.
const UNSENT_MS: [u64; 2] = [4, 24];
const MIN_UNSENT_BYTES: u64 = 16 << 10;
const BATCH_BYTES: u64 = 16 << 10;
const WINDOW_CHECK_INTERVAL: Duration = Duration::from_millis(1);
const MAX_DEFERRAL: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Bulk,
    Response(usize),
}

#[derive(Debug)]
pub(crate) struct Session {
    pacer: SessionPacer,
    limit: BulkLimit,
    process: Process,
    conns: Connections,
    response_bytes: u64,
    bulk_delivered: u64,
    /// Responses that have arrived.
    pub(crate) completed: Vec<(usize, Time)>,
    pub(crate) bulk_completed: Option<Time>,
}

/// The session's connections, and what is written to them.
#[derive(Debug)]
struct Connections {
    /// The connection with small responses, and the second one; they may be the same.
    flows: [usize; 2],
    /// The index of the one that carries bulk now.
    bulk: usize,
    /// Bytes of bulk after which it migrates to the second one.
    move_after: u64,
    bulk_written: u64,
    /// Bytes of bulk that are still to be written; `None` before the download is requested.
    bulk_left: Option<u64>,
    /// What was written and has not arrived: the number of the last byte, by connection.
    written: [VecDeque<(u64, Content)>; 2],
    arrived: [u64; 2],
    paced: [PacedConn; 2],
    /// The connection of bulk takes no more while it has this unsent (TCP_NOTSENT_LOWAT).
    max_unsent: u64,
    /// That limit as the driver sets it for bounded bulk, by connection; and the bounds.
    unsent: [UnsentLimit; 2],
    bounds: Option<Bounds>,
    /// It took no more: the process runs when half of that is left.
    is_blocked: bool,
    /// The download was requested, and the process has not run since.
    is_requested: bool,
}

impl Connections {
    /// Returns the number of connections.
    fn count(&self) -> usize {
        if self.flows[0] == self.flows[1] { 1 } else { 2 }
    }

    fn has_bulk(&self) -> bool {
        self.bulk_left.is_some_and(|left| left > 0)
    }

    /// Returns whether a socket that took no more does now: Linux wakes its owner when half of the limit is unsent.
    fn is_writable(&self, network: &Network) -> bool {
        network.unsent(self.flows[self.bulk]) * 2 < self.max_unsent
    }

    /// Writes bulk; returns the bytes.
    fn write_bulk(&mut self, network: &mut Network, bytes: u64) -> u64 {
        let left = self.bulk_left.unwrap_or(0);
        let bytes = bytes.min(left);
        if bytes == 0 {
            return 0;
        }
        self.bulk_left = Some(left - bytes);
        if self.bulk_written >= self.move_after && self.bulk == 0 {
            (self.bulk, self.is_blocked) = (1, false);
            self.paced[1].set_for_bulk(true);
        }
        self.bulk_written += bytes;
        let end = network.write(self.flows[self.bulk], bytes);
        let written = &mut self.written[self.bulk];
        match written.back_mut() {
            Some((last, Content::Bulk)) => *last = end,
            _ => written.push_back((end, Content::Bulk)),
        }
        bytes
    }
}

/// The session's connections while they send.
struct ConnTurn<'a> {
    conns: &'a mut Connections,
    network: &'a mut Network,
}

impl PacedConns for ConnTurn<'_> {
    fn count(&self) -> usize {
        self.conns.count()
    }

    fn conn(&mut self, index: usize) -> &mut PacedConn {
        &mut self.conns.paced[index]
    }

    fn measure(&mut self, index: usize) -> ConnSample {
        let info = self.network.info(self.conns.flows[index]);
        let is_for_bulk = self.conns.paced[index].is_for_bulk();
        self.conns.unsent[index].update(info.delivery_rate, is_for_bulk, self.conns.bounds);
        conn_sample(&info)
    }

    fn can_write(&self, index: usize) -> bool {
        index == self.conns.bulk && self.conns.has_bulk() && !self.conns.is_blocked
    }

    fn write(&mut self, _: usize, piece_bytes: u64) -> u64 {
        let unsent = self.network.unsent(self.conns.flows[self.conns.bulk]);
        self.conns.max_unsent = self.conns.unsent[self.conns.bulk].bytes().into();
        self.conns.is_blocked = unsent >= self.conns.max_unsent;
        if self.conns.is_blocked { 0 } else { self.conns.write_bulk(self.network, piece_bytes) }
    }
}

impl Session {
    pub(crate) fn new(
        flows: [usize; 2],
        connection: BulkConnection,
        limit: BulkLimit,
        schedule: Option<Schedule>,
        response_bytes: u64,
    ) -> Self {
        let (bulk, move_after) = match connection {
            BulkConnection::Shared => (0, u64::MAX),
            BulkConnection::Own => (1, u64::MAX),
            BulkConnection::Moved { after } => (0, after),
        };
        let mut paced = [PacedConn::default(), PacedConn::default()];
        paced[1].set_for_bulk(bulk == 1);
        Self {
            pacer: SessionPacer::new(MAX_DEFERRAL),
            limit,
            process: Process::new(schedule),
            conns: Connections {
                flows,
                bulk,
                move_after,
                bulk_written: 0,
                bulk_left: None,
                written: [VecDeque::new(), VecDeque::new()],
                arrived: [0; 2],
                paced,
                max_unsent: MIN_UNSENT_BYTES,
                unsent: [UnsentLimit::new(MIN_UNSENT_BYTES as u32); 2],
                bounds: None,
                is_blocked: false,
                is_requested: false,
            },
            response_bytes,
            bulk_delivered: 0,
            completed: Vec::new(),
            bulk_completed: None,
        }
    }

    pub(crate) const fn start_bulk(&mut self, bytes: u64) {
        self.conns.bulk_left = Some(bytes);
        self.conns.is_requested = true;
    }

    pub(crate) const fn bulk_delivered(&self) -> u64 {
        self.bulk_delivered
    }

    /// What TCP_INFO shows of the connection of bulk.
    pub(crate) fn bulk_sample(&self, network: &Network) -> ConnSample {
        conn_sample(&network.info(self.conns.flows[self.conns.bulk]))
    }

    pub(crate) fn pacer(&self) -> Option<&Pacer> {
        self.pacer.pacer()
    }

    /// Returns when it must run next.
    pub(crate) fn deadline(&self, network: &Network) -> Option<Time> {
        self.process.next_run(network.now(), self.has_event(network))
    }

    /// Returns whether an event wakes the process: a request, or a socket that takes more.
    fn has_event(&self, network: &Network) -> bool {
        let conns = &self.conns;
        let is_writable = conns.is_blocked && conns.is_writable(network);
        conns.is_requested || is_writable || network.has_requests()
    }

    /// Notes what the client has received, and runs the process if it is woken.
    pub(crate) fn poll(&mut self, network: &mut Network) {
        self.receive(network);
        if self.process.begin_run(network.now(), self.has_event(network)) {
            self.run(network);
            let check = matches!(self.limit, BulkLimit::Window(_))
                .then(|| network.now() + WINDOW_CHECK_INTERVAL);
            self.process.arm(network.now(), self.pacer.deadline().map(time).or(check));
        }
    }

    /// Does what can be done now.
    fn run(&mut self, network: &mut Network) {
        self.conns.is_requested = false;
        if self.conns.is_writable(network) {
            self.conns.is_blocked = false;
        }
        let mut interactive_bytes = 0;
        for id in network.take_requests() {
            let end = network.write(self.conns.flows[0], self.response_bytes);
            self.conns.written[0].push_back((end, Content::Response(id)));
            interactive_bytes += self.response_bytes;
        }
        if self.conns.bulk_left.is_none() {
            return;
        }
        let now = instant(network.now());
        let (has_bulk, bulk) = (self.conns.has_bulk(), self.conns.bulk);
        for (index, paced) in self.conns.paced.iter_mut().enumerate() {
            paced.set_has_bulk(now, has_bulk && index == bulk);
        }
        let mut turn = ConnTurn { conns: &mut self.conns, network };
        if self.limit.is_paced() {
            self.pacer.start(now, &mut turn);
        }
        self.pacer.update(now, &mut turn, interactive_bytes);
        self.send_bulk(now, network);
    }

    fn send_bulk(&mut self, now: Instant, network: &mut Network) {
        let bounds = self.pacer.bounds();
        let flow = self.conns.flows[self.conns.bulk];
        let is_own = self.conns.bulk != 0;
        match self.limit {
            BulkLimit::Unbounded => self.fill(network, u64::MAX),
            BulkLimit::LowUnsent => self.fill(network, UNSENT_MS[0]),
            BulkLimit::Rate => {
                network.set_pacing_cap(flow, bounds.rate);
                self.fill(network, UNSENT_MS[usize::from(is_own)]);
            }
            BulkLimit::Window(bytes) => {
                let info = network.info(flow);
                let free = bytes.saturating_sub(info.in_flight + info.unsent);
                self.conns.write_bulk(network, free);
            }
            BulkLimit::Bounded => {
                network.set_pacing_cap(flow, kernel_rate(bounds));
                self.conns.bounds = (bounds.rate != u64::MAX).then_some(bounds);
                if self.conns.bounds.is_none() {
                    for unsent in &mut self.conns.unsent {
                        unsent.reset();
                    }
                    return self.fill(network, UNSENT_MS[usize::from(is_own)]);
                }
                let mut turn = ConnTurn { conns: &mut self.conns, network };
                self.pacer.release(now, &mut turn);
            }
        }
    }

    /// What the client's application has received.
    fn receive(&mut self, network: &Network) {
        let conns = &mut self.conns;
        for index in 0..conns.count() {
            let delivered = network.delivered(conns.flows[index]);
            while conns.arrived[index] < delivered
                && let Some(&(end, content)) = conns.written[index].front()
            {
                let until = end.min(delivered);
                match content {
                    Content::Bulk => self.bulk_delivered += until - conns.arrived[index],
                    Content::Response(id) if until == end => {
                        self.completed.push((id, network.now()));
                    }
                    Content::Response(_) => {}
                }
                conns.arrived[index] = until;
                if until == end {
                    conns.written[index].pop_front();
                }
            }
        }
        let is_written = conns.bulk_left == Some(0) && self.bulk_completed.is_none();
        let mut written = conns.written.iter().flatten();
        if is_written && !written.any(|(_, content)| *content == Content::Bulk) {
            self.bulk_completed = Some(network.now());
        }
    }

    /// Keeps the socket filled: with so many milliseconds' worth, or with what its send buffer takes.
    fn fill(&mut self, network: &mut Network, unsent_ms: u64) {
        if self.conns.is_blocked {
            return;
        }
        let flow = self.conns.flows[self.conns.bulk];
        let info = network.info(flow);
        let max = if unsent_ms == u64::MAX {
            info.cwnd.max(64 << 10)
        } else {
            (info.delivery_rate / 1000 * unsent_ms).max(MIN_UNSENT_BYTES)
        };
        while self.conns.has_bulk() && network.unsent(flow) < max {
            self.conns.write_bulk(network, BATCH_BYTES);
        }
        (self.conns.is_blocked, self.conns.max_unsent) = (self.conns.has_bulk(), max);
    }
}

fn conn_sample(info: &TcpInfo) -> ConnSample {
    ConnSample {
        acknowledged: info.acknowledged,
        in_flight: info.in_flight,
        outstanding: info.in_flight + info.unsent,
        rtt: info.rtt,
        rtt_deviation: info.rtt_deviation,
        min_rtt: info.min_rtt,
        retransmitted: info.retransmitted,
        congestion_window: info.cwnd,
        delivery_rate: info.delivery_rate,
        mss: MSS as u32,
    }
}

/// What the kernel paces: what is written ahead must not leave at once.
fn kernel_rate(bounds: Bounds) -> u64 {
    if bounds.write_ahead > 0 { bounds.rate.max(bounds.path_rate) } else { u64::MAX }
}

fn instant(at: Time) -> Instant {
    Instant::from_nanos(at.as_nanos())
}

fn time(at: Instant) -> Time {
    Time::from_nanos(at.as_nanos())
}
