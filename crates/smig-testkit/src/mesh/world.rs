//! A mesh with applications at both ends: applies steps, reacts to events, and notes every fault.

use bytes::Bytes;
use smig_proto::{
    Cause, EndStream, ErrorCode, Event, Initiator, Mover, Priority, Session, StreamError,
    StreamKey, Target,
};

use crate::mesh::link::Side;
use crate::mesh::net::{Happening, Mesh};
use crate::mesh::op::{Op, Whither};
use crate::mesh::plan::{Plan, number_of};
use crate::mesh::rng::Rng;
use crate::mesh::setup::Setup;
use crate::mesh::talk::Talk;

/// All of an amount.
pub(crate) const ALL: usize = 1 << 24;

/// Both ends, their applications, and what was found wrong.
#[derive(Debug)]
pub struct World {
    pub(crate) mesh: Mesh,
    pub(crate) talks: Vec<Talk>,
    pub(crate) faults: Vec<String>,
    pub(crate) rng: Rng,
    /// Milliseconds.
    slept: u32,
    /// Streams that an engine says are over; an event must say so, too.
    doubts: Vec<(usize, Side, String)>,
}

impl World {
    /// Two ends and their first connection.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut world = Self {
            mesh: Mesh::new(setup),
            talks: Vec::new(),
            faults: Vec::new(),
            rng: Rng::new(setup.seed ^ 0x776f_726c),
            slept: 0,
            doubts: Vec::new(),
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

    /// The engine says that the stream is over.
    pub(crate) fn doubt(&mut self, at: usize, side: Side, text: String) {
        self.doubts.push((at, side, text));
    }

    /// Takes one step.
    pub fn apply(&mut self, op: Op) {
        self.mesh.now = self.mesh.now + core::time::Duration::from_micros(300);
        self.step(op);
        self.react();
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Connect => {
                self.mesh.connect();
            }
            Op::Open { on, plan } => self.open(on, plan),
            Op::Transmit { link, side, octets } => {
                let link = self.link(link);
                self.mesh.transmit(link, side, octets as usize);
            }
            Op::Deliver { link, to, octets } => {
                let link = self.link(link);
                self.mesh.deliver(link, to, octets as usize);
            }
            Op::Exchange { link } => {
                let link = self.link(link);
                for side in Side::BOTH {
                    self.mesh.transmit(link, side, ALL);
                    self.mesh.deliver(link, side.other(), ALL);
                }
            }
            Op::Respond { talk } => self.on_talk(talk, |world, at| world.send_head(at)),
            Op::Write { talk, side, octets } => {
                self.on_talk(talk, |world, at| _ = world.write(at, side, octets as usize));
            }
            Op::Read { talk, side, pieces } => {
                self.on_talk(talk, |world, at| _ = world.read(at, side, pieces.into()));
            }
            Op::Pause { talk, side } => {
                self.on_talk(talk, |world, at| world.talks[at].part(side).paused = true);
            }
            Op::Reset { talk, side } => self.on_talk(talk, |world, at| world.reset(at, side)),
            Op::Release { talk, side } => self.on_talk(talk, |world, at| world.release(at, side)),
            Op::Migrate { talk, side, to } => {
                self.on_talk(talk, |world, at| world.migrate(at, side, to));
            }
            Op::TakeOffer { talk, to } => self.on_talk(talk, |world, at| {
                if world.talks[at].offered {
                    world.migrate(at, Side::Client, to);
                }
            }),
            Op::DeclineOffer { talk } => self.on_talk(talk, Self::decline_offer),
            Op::Push { talk, plan } => self.on_talk(talk, |world, at| world.push(at, plan)),
            Op::Reprioritize { talk, side, urgency } => self.on_talk(talk, |world, at| {
                let priority = match urgency % 2 {
                    0 => Priority::incremental(urgency),
                    _ => Priority::sequential(urgency),
                };
                world.on_stream(at, side, |session, key| session.reprioritize(key, priority));
            }),
            Op::Ping { link, side } => self.on_conn(link, side, |session, conn| session.ping(conn)),
            Op::Drain { link, side } => {
                self.seen("drain");
                self.on_conn(link, side, |session, conn| session.drain(conn));
            }
            Op::Shutdown { side } => {
                self.seen("shutdown");
                self.shutdown(side);
            }
            Op::Close { link, side } => self.on_conn(link, side, |session, conn| {
                session.close(conn, ErrorCode::NoError, "the test says so");
            }),
            Op::Cut { link, keep } => {
                let link = self.link(link);
                self.seen("cut");
                self.mesh.cut(link, keep);
            }
            Op::RefuseJoin => self.mesh.refusals.push_back(smig_proto::JoinRefusal::NotHere),
            Op::Sleep { millis } => self.sleep(millis),
            Op::Settle => {
                self.settle(Zeal::Idle);
                self.check_still();
            }
        }
    }

    fn link(&self, link: u8) -> usize {
        usize::from(link) % self.mesh.links.len()
    }

    fn on_talk(&mut self, talk: u8, act: impl FnOnce(&mut Self, usize)) {
        let runs = |talk: &Talk| talk.parts.iter().any(|part| part.is_alive() && !part.is_complete());
        let running = || self.talks.iter().enumerate().filter(|(_, talk)| runs(talk));
        let at = match running().count() {
            0 => (!self.talks.is_empty()).then(|| usize::from(talk) % self.talks.len()),
            count => running().nth(usize::from(talk) % count).map(|(at, _)| at),
        };
        if let Some(at) = at {
            act(self, at);
        }
    }

    fn on_conn(
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

    fn open(&mut self, on: Option<u8>, plan: Plan) {
        if self.talks.len() >= 60 {
            return;
        }
        let at = self.talks.len();
        let conn = match on.map(|link| self.mesh.links[self.link(link)].ends[0].conn) {
            Some(None) => return,
            Some(conn) => conn,
            None => None,
        };
        let bare = plan.is_bare(Side::Client);
        let end = if bare { EndStream::Yes } else { EndStream::No };
        let now = self.mesh.now;
        let Ok(key) = self.mesh.client.open(now, conn, &plan.request(at), end) else {
            self.mesh.pump_events();
            return;
        };
        let mut talk = Talk::new(plan);
        let part = talk.part(Side::Client);
        (part.key, part.head_sent, part.finished) = (Some(key), true, bare);
        self.talks.push(talk);
        self.mesh.pump_events();
    }

    fn reset(&mut self, at: usize, side: Side) {
        if self.talks[at].part_at(side).is_alive() {
            self.talks[at].part(side).gave_up = true;
            self.on_stream(at, side, |session, key| session.reset(key, ErrorCode::Cancel));
        }
    }

    pub(crate) fn release(&mut self, at: usize, side: Side) {
        let part = self.talks[at].part(side);
        let (Some(key), false, session) = (part.key, part.released, part.session) else { return };
        part.gave_up |= !part.is_complete();
        part.released = true;
        self.mesh.session(side, session).release(key);
        self.mesh.pump_events();
    }

    fn migrate(&mut self, at: usize, side: Side, to: Whither) {
        let session = self.talks[at].part_at(side).session;
        let target = match to {
            Whither::Spare => Target::Spare,
            Whither::Offer => Target::Offer,
            Whither::Link(link) => {
                let end = self.mesh.links[self.link(link)].ends[side.index()];
                match end.conn.filter(|_| end.session == session) {
                    Some(conn) => Target::Connection(conn),
                    None => return,
                }
            }
        };
        let now = self.mesh.now;
        let moved = self.on_stream(at, side, |session, key| session.migrate(now, key, target));
        if moved == Some(Ok(())) && side == Side::Client {
            self.talks[at].offered = false;
        }
        if moved == Some(Ok(())) {
            self.talks[at].moved = true;
            let talk = &self.talks[at];
            if talk.pushed {
                self.seen("move of a push");
            } else if talk.plan.kind == crate::mesh::plan::Kind::Connect {
                self.seen("move of a tunnel");
            }
        }
    }

    fn decline_offer(&mut self, at: usize) {
        if self.talks[at].offered {
            self.talks[at].offered = false;
            self.on_stream(at, Side::Client, |session, key| session.decline_offer(key));
        }
    }

    fn push(&mut self, parent: usize, plan: Plan) {
        if self.talks.len() >= 60 {
            return;
        }
        let at = self.talks.len();
        let session = self.talks[parent].part_at(Side::Server).session;
        let (now, head) = (self.mesh.now, plan.request(at));
        let pushed = self.on_stream(parent, Side::Server, |session, key| {
            session.push(now, key, &head)
        });
        let Some(Ok(key)) = pushed else { return };
        self.seen("push");
        let mut talk = Talk::new(plan);
        talk.pushed = true;
        let part = talk.part(Side::Server);
        (part.key, part.session, part.ended) = (Some(key), session, true);
        talk.part(Side::Client).finished = true;
        self.talks.push(talk);
    }

    fn shutdown(&mut self, side: Side) {
        match side {
            Side::Client => self.mesh.client.shutdown(),
            Side::Server => self.mesh.servers.iter_mut().for_each(Session::shutdown),
        }
        self.mesh.pump_events();
    }

    pub(crate) fn sleep(&mut self, millis: u32) {
        self.slept += millis;
        self.mesh.watch.slept_long |= self.slept >= 4000;
        self.mesh.now = self.mesh.now + core::time::Duration::from_millis(millis.into());
        self.mesh.wake(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.mesh.wake(Side::Server, session);
        }
    }

    /// Handles what the engines told the applications.
    pub(crate) fn react(&mut self) {
        while let Some(happening) = self.mesh.next_happening() {
            self.on_happening(happening);
        }
        for (at, side, text) in core::mem::take(&mut self.doubts) {
            if self.talks[at].part_at(side).failed.is_none() {
                self.fault(format!("exchange {at} at {side:?}: {text}, and no event says so"));
            }
        }
        for side in core::mem::take(&mut self.mesh.watch.flow_resets) {
            // A carrier of a stream that is over here holds more than any window (SMIG-5.22).
            let is_over = |talk: &Talk| talk.part_at(side).key.is_none() || !talk.part_at(side).is_alive();
            if !self.talks.iter().any(is_over) {
                self.fault(format!("{side:?} resets with FLOW_CONTROL_ERROR"));
            }
            self.seen("carrier of a stream that is over");
        }
        let faults = core::mem::take(&mut self.mesh.watch.faults);
        self.faults.extend(faults);
    }

    fn find(&self, side: Side, session: usize, key: StreamKey) -> Option<usize> {
        self.talks.iter().position(|talk| {
            let part = talk.part_at(side);
            part.key == Some(key) && part.session == session
        })
    }

    fn on_happening(&mut self, Happening { side, session, event }: Happening) {
        match event {
            Event::Request { stream, head, end, .. } => {
                let Some(at) = number_of(&head.headers).filter(|&at| at < self.talks.len()) else {
                    return self.fault("a request that nobody sent".to_owned());
                };
                let plan = self.talks[at].plan;
                let part = self.talks[at].part(Side::Server);
                if part.key.is_some() || plan.is_bare(Side::Client) != end.is_end() {
                    self.fault(format!("request {at} came twice or changed"));
                    return;
                }
                let part = self.talks[at].part(Side::Server);
                (part.key, part.session) = (Some(stream), session);
                (part.head_got, part.readable) = (true, true);
                if plan.prompt {
                    self.send_head(at);
                }
            }
            Event::Pushed { stream, head, .. } => {
                let Some(at) = number_of(&head.headers).filter(|&at| at < self.talks.len()) else {
                    return self.fault("a push that nobody sent".to_owned());
                };
                self.talks[at].part(Side::Client).key = Some(stream);
            }
            Event::Closed { error: Some(error), .. } => {
                let caused = error.cause.is_some_and(|cause| self.is_expected(cause));
                if error.initiator == Initiator::Local && !caused {
                    self.fault(format!("{side:?} found a connection error: {error}"));
                }
            }
            Event::LimitHit { limit, .. } => self.on_limit(side, limit),
            event => self.on_stream_event(side, session, event),
        }
    }

    fn on_limit(&mut self, side: Side, limit: &'static str) {
        match limit {
            "migrations" | "unbound carriers" | "unbound carrier time"
            | "migration answer time" | "stalled stream" => self.seen(limit),
            "header block not finished in time" if self.mesh.watch.slept_long => self.seen(limit),
            other => self.fault(format!("{side:?} hit the limit of {other}")),
        }
    }

    fn on_stream_event(&mut self, side: Side, session: usize, event: Event) {
        let stream = match &event {
            Event::Response { stream, .. }
            | Event::Informational { stream, .. }
            | Event::Readable { stream }
            | Event::Writable { stream }
            | Event::Reset { stream, .. }
            | Event::Migrated { stream, .. }
            | Event::MigrationOffered { stream }
            | Event::MigrationDeclined { stream } => *stream,
            _ => return,
        };
        let Some(at) = self.find(side, session, stream) else {
            return self.fault(format!("{side:?}: an event for a stream that nobody has: {event:?}"));
        };
        let plan = self.talks[at].plan;
        let part = self.talks[at].part(side);
        match event {
            Event::Response { head, end, .. } => {
                let again = core::mem::replace(&mut part.head_got, true);
                part.readable = true;
                let right = number_of(&head.headers) == Some(at) && head.status == 200;
                if again || !right || end.is_end() && !plan.flow_of(Side::Server).is_bare() {
                    self.fault(format!("response {at} came twice or changed: {head:?} {end:?}"));
                }
            }
            Event::Informational { .. } => {
                part.hints_got += 1;
                if part.head_got || part.hints_got > plan.informational {
                    self.fault(format!("1xx of {at} came too often or too late"));
                }
            }
            Event::Readable { .. } => part.readable = true,
            Event::Writable { .. } => part.writable = true,
            Event::Reset { error, .. } => {
                part.failed = Some(error.clone());
                self.talks[at].offered &= side == Side::Server;
                self.check_error(at, side, &error);
            }
            Event::MigrationOffered { .. } => self.talks[at].offered = true,
            Event::Migrated { mover, .. } => self.seen(match (side, mover) {
                (Side::Client, Mover::Local) => "moved by client",
                (Side::Client, Mover::Peer) => "followed by client",
                (Side::Server, Mover::Local) => "moved by server",
                (Side::Server, Mover::Peer) => "followed by server",
            }),
            _ => {}
        }
    }

    fn is_expected(&self, cause: Cause) -> bool {
        match cause {
            Cause::ConnectionLost | Cause::GoingAway | Cause::TooManyStreams => true,
            Cause::Stalled
            | Cause::CarrierTimeout
            | Cause::SlowPreface
            | Cause::SlowHeaders
            | Cause::SettingsTimeout => self.mesh.watch.slept_long,
            _ => false,
        }
    }

    fn check_error(&mut self, at: usize, side: Side, error: &StreamError) {
        let gave_up = Side::BOTH.iter().any(|&side| self.talks[at].part_at(side).gave_up);
        let cause = error.cause.is_none_or(|cause| self.is_expected(cause));
        let code = matches!(
            error.code,
            ErrorCode::NoError
                | ErrorCode::InternalError
                | ErrorCode::RefusedStream
                | ErrorCode::Cancel
                | ErrorCode::SettingsTimeout
        ) || self.mesh.watch.slept_long && error.code == ErrorCode::EnhanceYourCalm;
        let user = error.initiator == Initiator::User;
        let talk = &self.talks[at];
        let over_there = !talk.part_at(side.other()).is_alive();
        if over_there && error.code == ErrorCode::FlowControlError {
            return;
        }
        let whole = error.code == ErrorCode::NoError && error.initiator == Initiator::Peer;
        if side == Side::Client && whole && !talk.moved {
            // NO_ERROR means that the response is whole (RFC 9113 section 8.1).
            self.fault(format!("exchange {at}: a whole response was thrown away"));
        }
        if !cause || !code || (user && !gave_up) {
            self.fault(format!("exchange {at} failed at {side:?} without need: {error}"));
        }
    }

    /// Lets everything arrive, and applications do what `zeal` says, until nothing happens any more.
    pub(crate) fn settle(&mut self, zeal: Zeal) {
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
                let octets = piece(&mut self.rng);
                moved += self.mesh.transmit(link, side, octets);
                let octets = piece(&mut self.rng);
                moved += self.mesh.deliver(link, side.other(), octets);
            }
        }
        moved
    }

    fn run_applications(&mut self, at: usize, zeal: Zeal) -> usize {
        let mut moved = 0;
        if zeal == Zeal::Finishing {
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
            if part.is_alive() && part.readable && (zeal == Zeal::Finishing || !part.paused) {
                moved += self.read(at, side, usize::MAX);
            }
            let part = self.talks[at].part_at(side);
            let ready = part.head_sent && part.writable && !part.finished;
            if zeal == Zeal::Finishing && part.is_alive() && ready {
                moved += self.write(at, side, usize::MAX);
            }
            self.react();
        }
        moved
    }
}

/// What applications do while the mesh settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeal {
    /// They read what the engine tells them of, unless they pause.
    Idle,
    /// They do all that is left to do.
    Finishing,
}

/// An empty body's end.
pub(crate) const fn nothing() -> Bytes {
    Bytes::new()
}
