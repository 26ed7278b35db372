//! A mesh with applications at both ends: applies steps, handles events, and records violations.

use bytes::Bytes;
use smig_proto::{Session, StreamKey, TransmitLimits};

use crate::mesh::exchange::ExchangeModel;
use crate::mesh::link::Side;
use crate::mesh::net::Mesh;
use crate::mesh::op::Op;
use crate::mesh::rng::Rng;
use crate::mesh::setup::Setup;

/// More bytes than any transfer has.
pub(crate) const UNLIMITED_BYTES: usize = 1 << 24;

/// Both ends, their applications, and the violations found.
#[derive(Debug)]
pub struct World {
    pub(crate) mesh: Mesh,
    pub(crate) exchanges: Vec<ExchangeModel>,
    pub(crate) violations: Vec<String>,
    pub(crate) rng: Rng,
    /// Sessions that were shut down gracefully.
    pub(crate) shut_down_sessions: Vec<(Side, usize)>,
    /// A step occurred that may fail streams: a failure, a reset, a long pause.
    pub(crate) failures_expected: bool,
    /// Total time slept, in milliseconds.
    pub(crate) slept_ms: u32,
    /// Streams that an engine reported as ended by an error return; an event must confirm it.
    pub(crate) unconfirmed_ends: Vec<(usize, Side, String)>,
}

impl World {
    /// Creates two ends and their first connection.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut world = Self {
            mesh: Mesh::new(setup),
            exchanges: Vec::new(),
            violations: Vec::new(),
            rng: Rng::new(setup.seed ^ 0x776f_726c),
            shut_down_sessions: Vec::new(),
            failures_expected: false,
            slept_ms: 0,
            unconfirmed_ends: Vec::new(),
        };
        world.mesh.connect();
        world
    }

    pub(crate) fn report_violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(crate) fn add_case(&mut self, case: &'static str) {
        self.mesh.inspector.cases.insert(case);
    }

    /// Records that a call reported the stream as ended: an event must confirm it.
    pub(crate) fn expect_end_event(&mut self, number: usize, side: Side, text: String) {
        self.unconfirmed_ends.push((number, side, text));
    }

    /// Applies one step.
    pub fn apply(&mut self, op: Op) {
        self.mesh.now = self.mesh.now + core::time::Duration::from_micros(300);
        self.step(op);
        self.handle_events();
        self.check_engines();
    }

    /// Checks the invariants inside each engine.
    pub(crate) fn check_engines(&mut self) {
        let mut violations = self.mesh.client.check_invariants();
        for server in &self.mesh.servers {
            violations.extend(server.check_invariants());
        }
        self.violations.extend(violations);
    }

    pub(crate) fn link_index(&self, link: u8) -> usize {
        usize::from(link) % self.mesh.links.len()
    }

    pub(crate) fn with_exchange(&mut self, index: u8, act: impl FnOnce(&mut Self, usize)) {
        let is_running = |exchange: &ExchangeModel| {
            exchange.sides.iter().any(|model| model.is_alive() && !model.is_complete())
        };
        let running_exchanges =
            || self.exchanges.iter().enumerate().filter(|(_, exchange)| is_running(exchange));
        let number = match running_exchanges().count() {
            0 => (!self.exchanges.is_empty()).then(|| usize::from(index) % self.exchanges.len()),
            count => running_exchanges().nth(usize::from(index) % count).map(|(at, _)| at),
        };
        if let Some(number) = number {
            act(self, number);
        }
    }

    pub(crate) fn with_conn(
        &mut self,
        link: u8,
        side: Side,
        act: impl FnOnce(&mut Session, smig_proto::ConnId),
    ) {
        let end = self.mesh.links[self.link_index(link)].ends[side.index()];
        if let Some(conn) = end.conn {
            act(self.mesh.session_mut(side, end.session), conn);
        }
        self.mesh.pump_events();
    }

    pub(crate) fn with_stream<T>(
        &mut self,
        number: usize,
        side: Side,
        act: impl FnOnce(&mut Session, StreamKey) -> T,
    ) -> Option<T> {
        let model = self.exchanges[number].side(side);
        let key = model.live_key()?;
        let result = act(self.mesh.session_mut(side, model.session), key);
        self.mesh.pump_events();
        Some(result)
    }

    /// Delivers everything, and lets the applications act as `activity` specifies, until no
    /// progress is made.
    pub(crate) fn settle(&mut self, activity: AppActivity) {
        for _round in 0..20_000 {
            let mut progress = self.run_network();
            self.handle_events();
            for number in 0..self.exchanges.len() {
                progress += self.run_applications(number, activity);
            }
            self.handle_events();
            self.mesh.now = self.mesh.now + core::time::Duration::from_micros(100);
            if progress == 0 || !self.violations.is_empty() {
                return;
            }
        }
        self.report_violation("the mesh does not become quiescent".to_owned());
    }

    fn run_network(&mut self) -> usize {
        let mut progress = 0;
        let links = self.mesh.links.len();
        let first_link = self.rng.below(12) as usize;
        let chunk_size = |rng: &mut Rng| {
            if rng.chance(30) { 1 + rng.log_uniform(4000) as usize } else { UNLIMITED_BYTES }
        };
        for turn in 0..links {
            let link = (first_link + turn) % links;
            for side in Side::BOTH {
                let bytes = chunk_size(&mut self.rng);
                progress += self.mesh.transmit(link, side, TransmitLimits::any(bytes));
                let bytes = chunk_size(&mut self.rng);
                progress += self.mesh.deliver(link, side.other(), bytes);
            }
        }
        progress
    }

    fn run_applications(&mut self, number: usize, activity: AppActivity) -> usize {
        let mut progress = 0;
        if activity == AppActivity::Finishing {
            if self.exchanges[number].has_open_offer {
                self.decline_offer(number);
                progress += 1;
            }
            let server = self.exchanges[number].side(Side::Server);
            if server.is_alive() && !server.head_sent {
                self.send_head(number);
                progress += 1;
            }
        }
        for side in Side::BOTH {
            let model = self.exchanges[number].side(side);
            if model.is_alive()
                && model.is_readable
                && (activity == AppActivity::Finishing || !model.is_paused)
            {
                progress += self.read(number, side, usize::MAX);
            }
            let model = self.exchanges[number].side(side);
            let ready = model.head_sent && model.is_writable && !model.end_sent;
            if activity == AppActivity::Finishing && model.is_alive() && ready {
                progress += self.write(number, side, usize::MAX);
            }
            self.handle_events();
        }
        progress
    }
}

/// What the applications do while the mesh settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppActivity {
    /// They read what the engine reports as readable, unless paused.
    ReadOnly,
    /// They complete all exchanges.
    Finishing,
}

/// Returns the empty chunk that ends an empty body.
pub(crate) const fn empty_chunk() -> Bytes {
    Bytes::new()
}
