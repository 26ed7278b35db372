//! An upload beside small requests in virtual time: two engines, and a link with a long queue between them. The client
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

use super::*;

const RATE: u64 = 1_250_000;
const ONE_WAY: Duration = Duration::from_millis(25);
const STEP: Duration = Duration::from_millis(1);
const PACKET_BYTES: usize = 1_448;
/// The target, the credit beside the window of three uploads, and what a rate over one round trip is too high.
const MAX_QUEUE: Duration = Duration::from_millis(45);

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

struct World {
    now: Instant,
    client: Host,
    server: Host,
    up: Wire,
    down: Wire,
    /// When the last byte that the client has sent leaves the link's queue.
    up_is_free_at: Instant,
    uploads: Vec<StreamKey>,
    /// At the server: the uploads, and when the last request without a body arrived.
    received: Vec<StreamKey>,
    small_at: Option<Instant>,
    pacer: Option<ReceivePacer>,
    demand: PacingDemand,
    /// Whether the server reads the uploads.
    is_reading: bool,
}

impl World {
    fn new(pacer: Option<ReceivePacer>) -> Self {
        let start = Instant::from_nanos(0);
        let plain = |config| Config { smig: None, bulk: None, ..config };
        Self {
            now: start,
            client: Host::new(Session::client(plain(Config::client()), AppId::new(1), start)),
            server: Host::new(Session::server(plain(Config::server()), start)),
            up: Wire::default(),
            down: Wire::default(),
            up_is_free_at: start,
            uploads: Vec::new(),
            received: Vec::new(),
            small_at: None,
            pacer,
            demand: PacingDemand::Shared,
            is_reading: true,
        }
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

    fn upload(&mut self) {
        let key = self.request(Some(1 << 40));
        self.uploads.push(key);
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.now = self.now + STEP;
            self.run_server();
            self.run_client();
        }
    }

    fn run_server(&mut self) {
        let Self { server, now, .. } = self;
        server.receive(*now, &mut self.up);
        while let Some(event) = server.session.poll_event() {
            match event {
                Event::Request { stream, end: EndStream::No, .. } => self.received.push(stream),
                Event::Request { .. } => self.small_at = Some(*now),
                _ => {}
            }
        }
        if self.is_reading {
            for &key in &self.received {
                while let ReadResult::Data(_) = server.session.read(key) {}
            }
        }
        let received = server.session.connection(server.conn).unwrap().data_bytes_received;
        let windows = self.received.iter().filter_map(|&key| server.session.stream(key));
        let granted = windows.map(|view| u64::try_from(view.recv_window).unwrap()).sum();
        let path = || ReceivePath { min_rtt: ONE_WAY * 2, out_of_order: 0, granted };
        let window = self
            .pacer
            .as_mut()
            .and_then(|pacer| pacer.on_progress(*now, received, self.demand, path));
        if let Some(window) = window {
            let credit = match window {
                ReceiveWindow::Bytes(bytes) => Some(stream_credit(bytes, self.received.len())),
                ReceiveWindow::Unlimited => None,
            };
            for &key in &self.received {
                server.session.limit_receive_credit(key, credit);
            }
        }
        let output = server.output(*now);
        self.down.0.push_back((*now + ONE_WAY, output));
    }

    fn run_client(&mut self) {
        let Self { client, now, .. } = self;
        client.receive(*now, &mut self.down);
        while client.session.poll_event().is_some() {}
        loop {
            for &key in &self.uploads {
                let room = client.session.send_capacity(key);
                client.session.send_data(key, Bytes::from(vec![0; room]), EndStream::No).unwrap();
            }
            let output = client.output(*now);
            if output.is_empty() {
                break;
            }
            for packet in output.chunks(PACKET_BYTES) {
                let nanos = packet.len() as u64 * 1_000_000_000 / RATE;
                self.up_is_free_at = self.up_is_free_at.max(*now) + Duration::from_nanos(nanos);
                self.up.0.push_back((self.up_is_free_at + ONE_WAY, packet.to_vec()));
            }
        }
    }

    /// Returns how long a small request takes to arrive.
    fn small_request(&mut self) -> Duration {
        let started_at = self.now;
        let _ = self.request(None);
        self.small_at = None;
        for _ in 0..5_000 {
            self.run(STEP);
            if let Some(at) = self.small_at {
                return at.saturating_duration_since(started_at);
            }
        }
        panic!("the small request has not arrived within five seconds");
    }

    /// Runs, and returns the rate at which bodies arrived.
    fn rate_in(&mut self, time: Duration) -> u64 {
        let received = |world: &Self| {
            let server = &world.server;
            server.session.connection(server.conn).unwrap().data_bytes_received
        };
        let before = received(self);
        self.run(time);
        bytes_per_s(received(self) - before, time)
    }
}

#[test]
fn small_requests_do_not_wait_behind_an_upload() {
    for uploads in [1, 3] {
        let mut unpaced = World::new(None);
        (0..uploads).for_each(|_| unpaced.upload());
        unpaced.run(Duration::from_secs(5));
        let delay = unpaced.small_request();
        assert!(delay > Duration::from_millis(400), "{delay:?} without pacing");

        let mut paced = World::new(Some(ReceivePacer::default()));
        (0..uploads).for_each(|_| paced.upload());
        paced.run(Duration::from_secs(5));
        for _ in 0..20 {
            let delay = paced.small_request();
            assert!(delay < ONE_WAY + MAX_QUEUE, "{delay:?} beside {uploads} uploads");
            paced.run(Duration::from_millis(170));
        }
        let rate = paced.rate_in(Duration::from_secs(5));
        assert!(rate > RATE * 97 / 100, "{rate} of {RATE} with {uploads} uploads");
    }
}

#[test]
fn a_lone_upload_keeps_its_window() {
    let mut world = World::new(Some(ReceivePacer::default()));
    world.demand = PacingDemand::BulkAlone;
    world.upload();
    world.run(Duration::from_secs(5));
    assert!(world.small_request() > Duration::from_millis(400));
    // From the first small request on it is paced: what has been granted is used up first.
    world.demand = PacingDemand::Shared;
    world.run(Duration::from_secs(2));
    assert!(world.small_request() < ONE_WAY + MAX_QUEUE);
}

#[test]
fn an_upload_that_nobody_reads_for_some_time_continues() {
    let mut world = World::new(Some(ReceivePacer::default()));
    world.upload();
    world.run(Duration::from_secs(5));
    world.is_reading = false;
    assert!(world.rate_in(Duration::from_secs(3)) < RATE / 2, "the window is used up");
    assert_eq!(world.rate_in(Duration::from_secs(1)), 0);
    world.is_reading = true;
    world.run(Duration::from_secs(2));
    let rate = world.rate_in(Duration::from_secs(20));
    assert!(rate > RATE * 95 / 100, "{rate} of {RATE}");
    assert!(world.server.session.check_invariants().is_empty());
}
