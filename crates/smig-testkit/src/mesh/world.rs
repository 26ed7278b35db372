//! A mesh with applications at both ends: applies steps, handles events, and records faults.

use bytes::Bytes;
use smig_proto::{Session, StreamKey};

use crate::mesh::link::Side;
use crate::mesh::net::Mesh;
use crate::mesh::op::Op;
use crate::mesh::rng::Rng;
use crate::mesh::setup::Setup;
use crate::mesh::talk::ExchangeModel;

/// No limit.
pub(crate) const ALL: usize = 1 << 24;

/// Both ends, their applications, and the faults found.
#[derive(Debug)]
pub struct World {
    pub(crate) mesh: Mesh,
    pub(crate) talks: Vec<ExchangeModel>,
    pub(crate) faults: Vec<String>,
    pub(crate) rng: Rng,
    /// Sessions that were shut down gracefully.
    pub(crate) shut: Vec<(Side, usize)>,
    /// An event occurred that may fail streams: a failure, a reset, a long pause.
    pub(crate) troubled: bool,
    /// Total time slept, in milliseconds.
    pub(crate) slept: u32,
    /// Streams that an engine reported as ended by an error return; an event must confirm it.
    pub(crate) unconfirmed_ends: Vec<(usize, Side, String)>,
}

impl World {
    /// Creates two ends and their first connection.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut world = Self {
            mesh: Mesh::new(setup),
            talks: Vec::new(),
            faults: Vec::new(),
            rng: Rng::new(setup.seed ^ 0x776f_726c),
            shut: Vec::new(),
            troubled: false,
            slept: 0,
            unconfirmed_ends: Vec::new(),
        };
        world.mesh.connect();
        world
    }

    pub(crate) fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    pub(crate) fn seen(&mut self, case: &'static str) {
        self.mesh.watch.seen.insert(case);
    }

    /// Records that the engine reported the stream as ended.
    pub(crate) fn doubt(&mut self, at: usize, side: Side, text: String) {
        self.unconfirmed_ends.push((at, side, text));
    }

    /// Applies one step.
    pub fn apply(&mut self, op: Op) {
        self.mesh.now = self.mesh.now + core::time::Duration::from_micros(300);
        self.step(op);
        self.react();
        self.audit();
    }

    /// Checks the invariants inside each engine.
    pub(crate) fn audit(&mut self) {
        let mut wrong = self.mesh.client.check_invariants();
        for server in &self.mesh.servers {
            wrong.extend(server.check_invariants());
        }
        self.faults.extend(wrong);
    }

    pub(crate) fn link(&self, link: u8) -> usize {
        usize::from(link) % self.mesh.links.len()
    }

    pub(crate) fn on_talk(&mut self, talk: u8, act: impl FnOnce(&mut Self, usize)) {
        let runs = |talk: &ExchangeModel| {
            talk.parts.iter().any(|part| part.is_alive() && !part.is_complete())
        };
        let running = || self.talks.iter().enumerate().filter(|(_, talk)| runs(talk));
        let at = match running().count() {
            0 => (!self.talks.is_empty()).then(|| usize::from(talk) % self.talks.len()),
            count => running().nth(usize::from(talk) % count).map(|(at, _)| at),
        };
        if let Some(at) = at {
            act(self, at);
        }
    }

    pub(crate) fn on_conn(
        &mut self,
        link: u8,
        side: Side,
        act: impl FnOnce(&mut Session, smig_proto::ConnId),
    ) {
        let end = self.mesh.links[self.link(link)].ends[side.index()];
        if let Some(conn) = end.conn {
            act(self.mesh.session(side, end.session), conn);
        }
        self.mesh.pump_events();
    }

    pub(crate) fn on_stream<T>(
        &mut self,
        at: usize,
        side: Side,
        act: impl FnOnce(&mut Session, StreamKey) -> T,
    ) -> Option<T> {
        let part = self.talks[at].part_at(side);
        let key = part.live_key()?;
        let result = act(self.mesh.session(side, part.session), key);
        self.mesh.pump_events();
        Some(result)
    }

    /// Delivers everything, and lets the applications act as `zeal` specifies, until no progress is made.
    pub(crate) fn settle(&mut self, zeal: AppActivity) {
        for _round in 0..20_000 {
            let mut moved = self.run_network();
            self.react();
            for at in 0..self.talks.len() {
                moved += self.run_applications(at, zeal);
            }
            self.react();
            self.mesh.now = self.mesh.now + core::time::Duration::from_micros(100);
            if moved == 0 || !self.faults.is_empty() {
                return;
            }
        }
        self.fault("the mesh does not come to rest".to_owned());
    }

    fn run_network(&mut self) -> usize {
        let mut moved = 0;
        let links = self.mesh.links.len();
        let first = self.rng.below(12) as usize;
        let piece = |rng: &mut Rng| {
            if rng.chance(30) { 1 + rng.length(4000) as usize } else { ALL }
        };
        for turn in 0..links {
            let link = (first + turn) % links;
            for side in Side::BOTH {
                let bytes = piece(&mut self.rng);
                moved += self.mesh.transmit(link, side, bytes);
                let bytes = piece(&mut self.rng);
                moved += self.mesh.deliver(link, side.other(), bytes);
            }
        }
        moved
    }

    fn run_applications(&mut self, at: usize, zeal: AppActivity) -> usize {
        let mut moved = 0;
        if zeal == AppActivity::Finishing {
            if self.talks[at].offered {
                self.decline_offer(at);
                moved += 1;
            }
            let server = self.talks[at].part_at(Side::Server);
            if server.is_alive() && !server.head_sent {
                self.send_head(at);
                moved += 1;
            }
        }
        for side in Side::BOTH {
            let part = self.talks[at].part_at(side);
            if part.is_alive() && part.readable && (zeal == AppActivity::Finishing || !part.paused)
            {
                moved += self.read(at, side, usize::MAX);
            }
            let part = self.talks[at].part_at(side);
            let ready = part.head_sent && part.writable && !part.finished;
            if zeal == AppActivity::Finishing && part.is_alive() && ready {
                moved += self.write(at, side, usize::MAX);
            }
            self.react();
        }
        moved
    }
}

/// What the applications do while the mesh settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppActivity {
    /// They read what the engine reports as readable, unless paused.
    Idle,
    /// They complete all exchanges.
    Finishing,
}

/// Returns the empty chunk that ends an empty body.
pub(crate) const fn nothing() -> Bytes {
    Bytes::new()
}
