//! Connections from one server to one client over a link: what happens next, and when.

use std::time::Duration;

use smig_link::{DirectionSpec, Link, SpecError, Time};

use crate::congestion::Algorithm;
use crate::packet::{Ack, Payload, SimPacket};
use crate::receiver::Receiver;
use crate::sender::{Sender, TcpInfo};

/// A token bucket without a queue: what exceeds it is dropped.
#[derive(Clone, Copy, Debug)]
pub struct PathPolicerSpec {
    /// Bytes per second.
    pub rate: u64,
    /// Depth of the bucket in bytes.
    pub burst: u64,
}

/// What lies between server and client.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// From the server to the client.
    pub forward: DirectionSpec,
    /// From the client to the server.
    pub reverse: DirectionSpec,
    /// A policer in front of the forward link.
    pub policer: Option<PathPolicerSpec>,
    /// Acknowledgements leave the network at multiples of this interval only, one for each connection.
    pub ack_interval: Option<Duration>,
}

#[derive(Debug)]
struct Connection {
    sender: Sender,
    receiver: Receiver,
    /// When sender or receiver must run again.
    deadline: Option<Time>,
}

#[derive(Debug)]
pub(crate) struct Network {
    now: Time,
    forward: Link<SimPacket>,
    reverse: Link<SimPacket>,
    policer: Option<(PathPolicerSpec, f64, Time)>,
    ack_interval: Option<Duration>,
    /// Acknowledgements that wait for the next multiple of the interval.
    held_acks: Vec<(usize, Ack)>,
    connections: Vec<Connection>,
    /// Requests that have arrived at the server.
    requests: Vec<usize>,
}

impl Network {
    pub(crate) fn new(spec: &PathSpec, seed: u64) -> Result<Self, SpecError> {
        Ok(Self {
            now: Time::ZERO,
            forward: Link::new(&spec.forward, seed)?,
            reverse: Link::new(&spec.reverse, seed ^ 0x5eed)?,
            policer: spec.policer.map(|policer| (policer, policer.burst as f64, Time::ZERO)),
            ack_interval: spec.ack_interval,
            held_acks: Vec::new(),
            connections: Vec::new(),
            requests: Vec::new(),
        })
    }

    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// Opens a connection whose handshake measured `rtt`.
    pub(crate) fn connect(&mut self, algorithm: Algorithm, window: u32, rtt: Duration) -> usize {
        let mut sender = Sender::new(algorithm, window);
        sender.on_handshake(rtt);
        let receiver = Receiver::default();
        self.connections.push(Connection { sender, receiver, deadline: None });
        self.connections.len() - 1
    }

    /// Writes to a connection; returns the number of the last byte.
    pub(crate) fn write(&mut self, flow: usize, bytes: u64) -> u64 {
        let last = self.connections[flow].sender.write(bytes);
        self.transmit(flow);
        last
    }

    /// The application closes: what was not sent never will be.
    pub(crate) fn discard_unsent(&mut self, flow: usize) {
        self.connections[flow].sender.discard_unsent();
    }

    pub(crate) fn set_pacing_cap(&mut self, flow: usize, bytes_per_s: u64) {
        self.connections[flow].sender.set_pacing_cap(bytes_per_s);
        self.transmit(flow);
    }

    pub(crate) fn info(&self, flow: usize) -> TcpInfo {
        self.connections[flow].sender.info()
    }

    pub(crate) fn unsent(&self, flow: usize) -> u64 {
        self.connections[flow].sender.unsent()
    }

    /// Returns the bytes that the client's application has received.
    pub(crate) fn delivered(&self, flow: usize) -> u64 {
        self.connections[flow].receiver.delivered()
    }

    pub(crate) const fn queue_packets(&self) -> usize {
        self.forward.queue_packets()
    }

    pub(crate) fn send_request(&mut self, flow: usize, id: usize) {
        self.send_reverse(SimPacket { flow, payload: Payload::Request { id } });
    }

    pub(crate) const fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(crate) fn take_requests(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn send_datagram(&mut self) {
        self.send_forward(SimPacket { flow: usize::MAX, payload: Payload::Datagram });
    }

    fn send_forward(&mut self, packet: SimPacket) {
        if let Some((policer, tokens, at)) = &mut self.policer {
            let more = policer.rate as f64 * self.now.since(*at).as_secs_f64();
            *at = self.now;
            *tokens = (*tokens + more).min(policer.burst as f64);
            let size = smig_link::Packet::wire_size(&packet) as f64;
            if *tokens < size {
                return;
            }
            *tokens -= size;
        }
        // A packet that is dropped is the sender's to notice.
        let _ = self.forward.enqueue(self.now, packet);
    }

    fn send_reverse(&mut self, packet: SimPacket) {
        // A packet that is dropped is the sender's to notice.
        let _ = self.reverse.enqueue(self.now, packet);
    }

    /// Returns when something happens next.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let deadlines = self.connections.iter().filter_map(|connection| connection.deadline).min();
        let links = [self.forward.next_pop_at(), self.reverse.next_pop_at()];
        let acks = self.next_ack_time().filter(|_| !self.held_acks.is_empty());
        links.into_iter().chain([deadlines, acks]).flatten().min()
    }

    fn next_ack_time(&self) -> Option<Time> {
        let interval = self.ack_interval?.as_nanos() as u64;
        Some(Time::from_nanos((self.now.as_nanos() / interval + 1) * interval))
    }

    /// Advances to `to`, which is not after the next event.
    pub(crate) fn advance(&mut self, to: Time) {
        let releases_acks = self.next_ack_time().is_some_and(|at| at <= to);
        self.now = self.now.max(to);
        if releases_acks {
            for (flow, ack) in std::mem::take(&mut self.held_acks) {
                self.on_ack(flow, &ack);
            }
        }
        while let Some(delivery) = self.forward.pop(self.now) {
            if let Payload::Segment(range) = delivery.packet.payload {
                let flow = delivery.packet.flow;
                let ack = self.connections[flow].receiver.on_segment(self.now, range);
                self.acknowledge(flow, ack);
                self.update_deadline(flow);
            }
        }
        while let Some(delivery) = self.reverse.pop(self.now) {
            self.on_reverse_packet(delivery.packet);
        }
        for flow in 0..self.connections.len() {
            if self.connections[flow].deadline.is_some_and(|at| at <= self.now) {
                let ack = self.connections[flow].receiver.on_deadline(self.now);
                self.acknowledge(flow, ack);
                self.connections[flow].sender.on_deadline(self.now);
                self.transmit(flow);
            }
        }
    }

    fn acknowledge(&mut self, flow: usize, ack: Option<Ack>) {
        if let Some(ack) = ack {
            self.send_reverse(SimPacket { flow, payload: Payload::Ack(ack) });
        }
    }

    fn on_reverse_packet(&mut self, packet: SimPacket) {
        match packet.payload {
            Payload::Ack(ack) if self.ack_interval.is_some() => {
                self.held_acks.retain(|&(flow, _)| flow != packet.flow);
                self.held_acks.push((packet.flow, ack));
            }
            Payload::Ack(ack) => self.on_ack(packet.flow, &ack),
            Payload::Request { id } => self.requests.push(id),
            Payload::Segment(_) | Payload::Datagram => {}
        }
    }

    fn on_ack(&mut self, flow: usize, ack: &Ack) {
        self.connections[flow].sender.on_ack(self.now, ack);
        self.transmit(flow);
    }

    fn transmit(&mut self, flow: usize) {
        while let Some(range) = self.connections[flow].sender.poll_transmit(self.now) {
            self.send_forward(SimPacket { flow, payload: Payload::Segment(range) });
        }
        self.update_deadline(flow);
    }

    fn update_deadline(&mut self, flow: usize) {
        let connection = &mut self.connections[flow];
        let deadlines = [connection.sender.deadline(), connection.receiver.deadline()];
        connection.deadline = deadlines.into_iter().flatten().min();
    }
}
