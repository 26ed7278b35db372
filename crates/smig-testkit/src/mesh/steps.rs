//! Implements each step of a sequence.

use smig_proto::{EndStream, ErrorCode, MigrationTarget, Priority};

use crate::mesh::link::{Doom, Side};
use crate::mesh::op::{MigrateTo, Op};
use crate::mesh::plan::Plan;
use crate::mesh::talk::ExchangeModel;
use crate::mesh::world::{ALL, AppActivity, World};

impl World {
    pub(crate) fn step(&mut self, op: Op) {
        self.troubled |=
            matches!(op, Op::Cut { .. } | Op::Close { .. } | Op::Reset { .. } | Op::Release { .. });
        match op {
            Op::Connect => {
                if !self.shut.contains(&(Side::Client, 0)) {
                    self.mesh.connect();
                }
            }
            Op::Open { on, plan } => self.open(on, plan),
            Op::Transmit { link, side, bytes } => {
                let link = self.link(link);
                self.mesh.transmit(link, side, bytes as usize);
            }
            Op::Deliver { link, to, bytes } => {
                let link = self.link(link);
                self.mesh.deliver(link, to, bytes as usize);
            }
            Op::Exchange { link } => {
                let link = self.link(link);
                for side in Side::BOTH {
                    self.mesh.transmit(link, side, ALL);
                    self.mesh.deliver(link, side.other(), ALL);
                }
            }
            Op::Respond { talk } => self.on_talk(talk, |world, at| world.send_head(at)),
            Op::Write { talk, side, bytes } => {
                self.on_talk(talk, |world, at| _ = world.write(at, side, bytes as usize));
            }
            Op::Read { talk, side, pieces } => {
                self.on_talk(talk, |world, at| _ = world.read(at, side, pieces.into()));
            }
            Op::Pause { talk, side } => {
                self.on_talk(talk, |world, at| world.talks[at].part(side).paused = true);
            }
            Op::Stop { talk } => self.on_talk(talk, Self::stop),
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
                let now = self.mesh.now;
                self.on_conn(link, side, |session, conn| session.drain(now, conn));
            }
            Op::Shutdown { side } => {
                self.seen("shutdown");
                self.shutdown(side);
            }
            Op::Close { link, side } => self.close(link, side),
            Op::Cut { link, keep } => {
                let link = self.link(link);
                self.seen("cut");
                self.mesh.cut(link, keep);
            }
            Op::RefuseJoin(reason) => self.mesh.refusals.push_back(reason),
            Op::Sleep { millis } => self.sleep(millis),
            Op::Settle => {
                self.settle(AppActivity::Idle);
                self.check_still();
            }
        }
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
        let mut talk = ExchangeModel::new(plan);
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

    /// Sends the complete response at the server, then stops the upload.
    fn stop(&mut self, at: usize) {
        let talk = &self.talks[at];
        if talk.pushed || talk.plan.kind == crate::mesh::plan::Kind::Connect {
            return;
        }
        while self.write(at, Side::Server, ALL) > 0 {}
        let part = self.talks[at].part(Side::Server);
        if part.is_alive() && part.finished {
            (part.gave_up, part.stopped) = (true, true);
            self.troubled = true;
            self.on_stream(at, Side::Server, |s, key| s.reset(key, ErrorCode::NoError));
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

    fn migrate(&mut self, at: usize, side: Side, to: MigrateTo) {
        let session = self.talks[at].part_at(side).session;
        let target = match to {
            MigrateTo::Spare => MigrationTarget::Spare,
            MigrateTo::Offer => MigrationTarget::Offer,
            MigrateTo::Link(link) => {
                let end = self.mesh.links[self.link(link)].ends[side.index()];
                match end.conn.filter(|_| end.session == session) {
                    Some(conn) => MigrationTarget::Connection(conn),
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
            let talk = &self.talks[at];
            if talk.pushed {
                self.seen("move of a push");
            } else if talk.plan.kind == crate::mesh::plan::Kind::Connect {
                self.seen("move of a tunnel");
            }
        }
    }

    pub(crate) fn decline_offer(&mut self, at: usize) {
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
        let pushed =
            self.on_stream(parent, Side::Server, |session, key| session.push(now, key, &head));
        let Some(Ok(key)) = pushed else { return };
        self.seen("push");
        let mut talk = ExchangeModel::new(plan);
        talk.pushed = true;
        let part = talk.part(Side::Server);
        (part.key, part.session, part.ended) = (Some(key), session, true);
        talk.part(Side::Client).finished = true;
        self.talks.push(talk);
    }

    fn close(&mut self, link: u8, side: Side) {
        let now = self.mesh.now;
        let at = self.link(link);
        self.mesh.links[at].doom.get_or_insert(Doom::Step);
        self.on_conn(link, side, |session, conn| {
            session.close(now, conn, ErrorCode::NoError, "the test says so");
        });
    }

    fn shutdown(&mut self, side: Side) {
        let now = self.mesh.now;
        match side {
            Side::Client => {
                self.mesh.client.shutdown(now);
                self.shut.push((side, 0));
            }
            Side::Server => {
                self.mesh.servers.iter_mut().for_each(|session| session.shutdown(now));
                self.shut.extend((0..self.mesh.servers.len()).map(|session| (side, session)));
            }
        }
        self.mesh.pump_events();
    }

    pub(crate) fn sleep(&mut self, millis: u32) {
        self.slept += millis;
        self.mesh.watch.slept_long |= self.slept >= 4000;
        self.troubled |= self.slept >= 1000 * u32::from(self.mesh.setup.patience).min(4);
        self.mesh.now = self.mesh.now + core::time::Duration::from_millis(millis.into());
        self.mesh.wake(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.mesh.wake(Side::Server, session);
        }
    }
}
