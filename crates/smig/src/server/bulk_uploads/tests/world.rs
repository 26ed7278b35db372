//! Uploads beside small requests in virtual time: two engines, and a link with a long queue between them. The client
//! paces nothing: what its windows allow is in the link's queue at once.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap};
use smig_proto::{
    AppId, Config, ConnId, ConnectionSpec, EndStream, Event, Identity, Instant, OutputBuffer,
    ReadResult, RequestHead, Security, Session, StreamKey, TransmitLimits,
};

use super::{BulkUploads, UploadProgress};
use crate::driver::{ReceivePath, bytes_per_s};
use crate::mailbox::Slot;

pub(super) const RATE: u64 = 1_250_000;
pub(super) const ONE_WAY: Duration = Duration::from_millis(25);
const STEP: Duration = Duration::from_millis(1);
const PACKET_BYTES: usize = 1_448;

/// What a path and its users do. Times are since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) rate: u64,
    /// Another rate, from a time on.
    pub(super) later_rate: Option<(Duration, u64)>,
    /// A round trip that the kernel does not see, from a time on.
    pub(super) hidden_rtt: (Duration, Duration),
    /// Every so many-th packet is lost, and arrives a round trip later. All behind it waits.
    pub(super) packets_per_loss: Option<u64>,
    /// What another flow keeps in flight, between two times.
    pub(super) foreign: Option<(Duration, Duration, u64)>,
    /// Packets arrive only at multiples of this.
    pub(super) burst: Duration,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            rate: RATE,
            later_rate: None,
            hidden_rtt: (Duration::ZERO, Duration::ZERO),
            packets_per_loss: None,
            foreign: None,
            burst: Duration::ZERO,
        }
    }
}

/// How fast a client produces a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Fast,
    /// Bytes per second, as one piece each half second.
    Slow(u64),
    /// Nothing between two times.
    PausedBetween(Duration, Duration),
}

/// One direction of the link: packets with the times at which they arrive.
#[derive(Default)]
struct Wire(VecDeque<(Instant, Vec<u8>)>);

impl Wire {
    fn take_arrived(&mut self, now: Instant, input: &mut BytesMut) {
        while let Some((_, packet)) = self.0.pop_front_if(|(at, _)| *at <= now) {
            input.extend_from_slice(&packet);
        }
    }
}

struct Host {
    session: Session,
    conn: ConnId,
    input: BytesMut,
}

impl Host {
    fn new(mut session: Session) -> Self {
        let spec = ConnectionSpec { security: Security::Ineligible, identity: Identity([0; 32]) };
        let conn = session.add_connection(Instant::from_nanos(0), spec);
        Self { session, conn, input: BytesMut::new() }
    }

    fn receive(&mut self, now: Instant, wire: &mut Wire) {
        wire.take_arrived(now, &mut self.input);
        self.session.handle_input(now, self.conn, &mut self.input);
    }

    /// Returns what the engine sends now.
    fn output(&mut self, now: Instant) -> Vec<u8> {
        let mut out = OutputBuffer::new();
        while self
            .session
            .poll_transmit(now, self.conn, TransmitLimits::any(1 << 20), &mut out)
            .bytes
            > 0
        {}
        let mut bytes = Vec::new();
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = out.chunks(&mut slices);
            bytes.extend(slices[..count].iter().flat_map(|slice| slice.iter().copied()));
            let length = slices[..count].iter().map(|slice| slice.len()).sum();
            out.advance(length);
        }
        bytes
    }
}

struct Upload {
    key: StreamKey,
    source: Source,
    sent: u64,
}

pub(super) struct World {
    conditions: Conditions,
    now: Instant,
    client: Host,
    server: Host,
    up: Wire,
    down: Wire,
    /// When the last byte that was sent leaves the link's queue, and when the last packet arrives.
    up_is_free_at: Instant,
    last_arrival: Instant,
    packets: u64,
    out_of_order: u32,
    /// When the other flow's packets are sent again.
    foreign: VecDeque<Instant>,
    uploads: Vec<Upload>,
    /// At the server: the uploads, and when the last request without a body arrived.
    received: Vec<StreamKey>,
    small_at: Option<Instant>,
    /// `None`: nothing is paced.
    pub(super) paced: Option<BulkUploads>,
    /// Whether other streams are open.
    pub(super) has_others: bool,
    /// Whether the server reads the uploads.
    pub(super) is_reading: bool,
}

impl World {
    pub(super) fn new(conditions: Conditions, is_paced: bool) -> Self {
        let start = Instant::from_nanos(0);
        let plain = |config| Config { smig: None, bulk: None, ..config };
        Self {
            conditions,
            now: start,
            client: Host::new(Session::client(plain(Config::client()), AppId::new(1), start)),
            server: Host::new(Session::server(plain(Config::server()), start)),
            up: Wire::default(),
            down: Wire::default(),
            up_is_free_at: start,
            last_arrival: start,
            packets: 0,
            out_of_order: 0,
            foreign: VecDeque::new(),
            uploads: Vec::new(),
            received: Vec::new(),
            small_at: None,
            paced: is_paced.then(BulkUploads::default),
            has_others: true,
            is_reading: true,
        }
    }

    pub(super) fn time(&self) -> Duration {
        self.now.saturating_duration_since(Instant::from_nanos(0))
    }

    fn hidden_one_way(&self) -> Duration {
        let (since, rtt) = self.conditions.hidden_rtt;
        if self.time() >= since { rtt / 2 } else { Duration::ZERO }
    }

    fn request(&mut self, length: Option<u64>) -> StreamKey {
        let (method, end) = match length {
            Some(_) => (Method::POST, EndStream::No),
            None => (Method::GET, EndStream::Yes),
        };
        let headers: HeaderMap =
            length.map(|bytes| (CONTENT_LENGTH, bytes.into())).into_iter().collect();
        let uri = "https://localhost/".parse().unwrap();
        let head = RequestHead { method, uri, protocol: None, headers };
        self.client.session.open(self.now, Some(self.client.conn), &head, end).unwrap()
    }

    pub(super) fn upload(&mut self, source: Source) {
        let key = self.request(Some(1 << 40));
        self.uploads.push(Upload { key, source, sent: 0 });
    }

    pub(super) fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.now = self.now + STEP;
            self.send_foreign();
            self.run_server();
            self.run_client();
        }
    }

    fn run_server(&mut self) {
        let now = self.now;
        self.server.receive(now, &mut self.up);
        let server = &mut self.server.session;
        while let Some(event) = server.poll_event() {
            match event {
                Event::Request { stream, end: EndStream::No, .. } => {
                    if let Some(paced) = &mut self.paced {
                        let slot = Slot(self.received.len() as u32);
                        paced.add(slot, progress(server, stream).unwrap());
                    }
                    self.received.push(stream);
                }
                Event::Request { .. } => self.small_at = Some(now),
                _ => {}
            }
        }
        if self.is_reading {
            for &key in &self.received {
                while let ReadResult::Data(_) = server.read(key) {}
            }
        }
        if let Some(paced) = &mut self.paced {
            let received = server.connection(self.server.conn).unwrap().data_bytes_received;
            let key = |slot: Slot| self.received[slot.0 as usize];
            paced.observe(now, |slot| progress(server, key(slot)));
            let path = ReceivePath { min_rtt: ONE_WAY * 2, out_of_order: self.out_of_order };
            if paced.is_round_over(now, received)
                && paced.end_round(now, received, self.has_others, path)
            {
                for (slot, credit) in paced.credits() {
                    server.limit_receive_credit(key(slot), credit);
                }
            }
        }
        let output = self.server.output(now);
        let at = now + ONE_WAY + self.hidden_one_way();
        self.down.0.push_back((at, output));
    }

    fn run_client(&mut self) {
        self.client.receive(self.now, &mut self.down);
        while self.client.session.poll_event().is_some() {}
        let time = self.time();
        loop {
            for upload in &mut self.uploads {
                let produced = match upload.source {
                    Source::Fast => u64::MAX,
                    Source::Slow(rate) => rate / 2 * (1 + time.as_millis() as u64 / 500),
                    Source::PausedBetween(from, to) if time < from || time >= to => u64::MAX,
                    Source::PausedBetween(..) => 0,
                };
                let room = self.client.session.send_capacity(upload.key) as u64;
                let bytes = room.min(produced.saturating_sub(upload.sent));
                upload.sent += bytes;
                let data = Bytes::from(vec![0; bytes as usize]);
                self.client.session.send_data(upload.key, data, EndStream::No).unwrap();
            }
            let output = self.client.output(self.now);
            if output.is_empty() {
                break;
            }
            for packet in output.chunks(PACKET_BYTES) {
                self.send_packet(packet);
            }
        }
    }

    fn send_packet(&mut self, packet: &[u8]) {
        let mut at = self.occupy_link(packet.len()) + ONE_WAY + self.hidden_one_way();
        self.packets += 1;
        if self.conditions.packets_per_loss.is_some_and(|every| self.packets.is_multiple_of(every))
        {
            at = at + ONE_WAY * 2 + self.hidden_one_way() * 2;
            self.out_of_order += 1;
        }
        let burst = self.conditions.burst.as_nanos() as u64;
        if burst > 0 {
            at = Instant::from_nanos(at.as_nanos().div_ceil(burst) * burst);
        }
        self.last_arrival = self.last_arrival.max(at);
        self.up.0.push_back((self.last_arrival, packet.to_vec()));
    }

    /// Returns when the link has sent so many bytes.
    fn occupy_link(&mut self, bytes: usize) -> Instant {
        let starts_at = self.up_is_free_at.max(self.now);
        let rate = match self.conditions.later_rate {
            Some((since, rate)) if starts_at >= Instant::from_nanos(0) + since => rate,
            _ => self.conditions.rate,
        };
        let nanos = bytes as u64 * 1_000_000_000 / rate;
        self.up_is_free_at = starts_at + Duration::from_nanos(nanos);
        self.up_is_free_at
    }

    fn send_foreign(&mut self) {
        let Some((from, to, bytes)) = self.conditions.foreign else { return };
        if self.time() == from {
            self.foreign = vec![self.now; bytes as usize / PACKET_BYTES].into();
        } else if self.time() >= to {
            self.foreign.clear();
        }
        while self.foreign.pop_front_if(|at| *at <= self.now).is_some() {
            let again_at = self.occupy_link(PACKET_BYTES) + ONE_WAY * 2;
            self.foreign.push_back(again_at);
        }
    }

    /// Returns how long a small request takes to arrive.
    pub(super) fn small_request(&mut self) -> Duration {
        let started_at = self.now;
        let _ = self.request(None);
        self.small_at = None;
        for _ in 0..60_000 {
            self.run(STEP);
            if let Some(at) = self.small_at {
                return at.saturating_duration_since(started_at);
            }
        }
        panic!("the small request has not arrived within a minute");
    }

    /// Returns the bytes that have arrived of an upload.
    pub(super) fn received_of(&self, upload: usize) -> u64 {
        self.received
            .get(upload)
            .map_or(0, |&key| progress(&self.server.session, key).unwrap().received)
    }

    pub(super) fn is_consistent(&self) -> bool {
        self.server.session.check_invariants().is_empty()
    }

    pub(super) fn received(&self) -> u64 {
        self.server.session.connection(self.server.conn).unwrap().data_bytes_received
    }

    /// Runs, and returns the rate at which bodies arrived.
    pub(super) fn rate_in(&mut self, time: Duration) -> u64 {
        let before = self.received();
        self.run(time);
        bytes_per_s(self.received() - before, time)
    }
}

fn progress(server: &Session, key: StreamKey) -> Option<UploadProgress> {
    let view = server.stream(key)?;
    let window = u64::try_from(view.recv_window).unwrap_or(0);
    Some(UploadProgress { received: view.received_bytes, window })
}
