//! Implements each step of a sequence.

use smig_proto::{
    BulkHint, EndStream, ErrorCode, JoinRefusal, MigrationTarget, Priority, TransmitLimits,
};

use crate::mesh::exchange::ExchangeModel;
use crate::mesh::link::{CloseCause, Side};
use crate::mesh::op::{MigrateTo, Op};
use crate::mesh::plan::Plan;
use crate::mesh::world::{AppActivity, UNLIMITED_BYTES, World};

impl World {
    pub(crate) fn step(&mut self, op: Op) {
        self.failures_expected |= self.may_fail_streams(op);
        match op {
            Op::Connect => self.connect(),
            Op::Open { on, plan } => self.open(on, plan),
            Op::Transmit { link, side, bytes } => {
                self.transmit(link, side, TransmitLimits::any(bytes as usize));
            }
            Op::TransmitInteractive { link, side, bytes } => {
                self.transmit(link, side, TransmitLimits::interactive(bytes as usize));
            }
            Op::Deliver { link, to, bytes } => {
                let link = self.link_index(link);
                self.mesh.deliver(link, to, bytes as usize);
            }
            Op::Flush { link } => self.flush(link),
            Op::Respond { exchange } => {
                self.with_exchange(exchange, |world, number| world.send_head(number))
            }
            Op::Write { exchange, side, bytes } => {
                self.with_exchange(exchange, |world, number| {
                    _ = world.write(number, side, bytes as usize)
                });
            }
            Op::Read { exchange, side, chunks } => {
                self.with_exchange(exchange, |world, number| {
                    _ = world.read(number, side, chunks.into())
                });
            }
            Op::Pause { exchange, side } => {
                self.with_exchange(exchange, |world, number| {
                    world.exchanges[number].side_mut(side).is_paused = true
                });
            }
            Op::StopUpload { exchange } => self.with_exchange(exchange, Self::stop_upload),
            Op::Reset { exchange, side } => {
                self.with_exchange(exchange, |world, number| world.reset(number, side))
            }
            Op::Release { exchange, side } => {
                self.with_exchange(exchange, |world, number| world.release(number, side))
            }
            Op::Migrate { exchange, side, to } => {
                self.with_exchange(exchange, |world, number| world.migrate(number, side, to));
            }
            Op::Pull { exchange, to } => {
                self.with_exchange(exchange, |world, number| world.pull(number, to));
            }
            Op::AcceptOffer { exchange, to } => self.with_exchange(exchange, |world, number| {
                if world.exchanges[number].has_open_offer {
                    world.migrate(number, Side::Client, to);
                }
            }),
            Op::DeclineOffer { exchange } => self.with_exchange(exchange, Self::decline_offer),
            Op::Push { exchange, plan } => {
                self.with_exchange(exchange, |world, number| world.push(number, plan))
            }
            Op::Reprioritize { exchange, side, urgency } => self
                .with_exchange(exchange, |world, number| world.reprioritize(number, side, urgency)),
            Op::SetBulkHint { exchange, side, hint } => {
                self.with_exchange(exchange, |world, number| {
                    world.set_bulk_hint(number, side, hint)
                });
            }
            Op::Ping { link, side } => {
                self.with_conn(link, side, |session, conn| session.ping(conn))
            }
            Op::Drain { link, side } => self.drain(link, side),
            Op::Shutdown { side } => {
                self.add_case("shutdown");
                self.shutdown(side);
            }
            Op::Close { link, side } => self.close(link, side),
            Op::Cut { link, delivered_permille } => self.cut(link, delivered_permille),
            Op::RefuseJoin(reason) => self.mesh.join_refusals.push_back(reason),
            Op::Sleep { millis } => self.sleep(millis),
            Op::Settle => {
                self.settle(AppActivity::ReadOnly);
                self.check_quiescent();
            }
        }
    }

    const fn may_fail_streams(&self, op: Op) -> bool {
        match op {
            Op::Cut { .. } | Op::Close { .. } | Op::Reset { .. } | Op::Release { .. } => true,
            // What is being resumed fails with its session.
            Op::RefuseJoin(JoinRefusal::UnknownSession) => self.mesh.setup.linger_s > 0,
            _ => false,
        }
    }

    fn transmit(&mut self, link: u8, side: Side, limits: TransmitLimits) {
        let link = self.link_index(link);
        self.mesh.transmit(link, side, limits);
    }

    fn cut(&mut self, link: u8, delivered_permille: [u16; 2]) {
        let link = self.link_index(link);
        self.add_case("cut");
        self.mesh.cut(link, delivered_permille);
    }

    fn drain(&mut self, link: u8, side: Side) {
        self.add_case("drain");
        let now = self.mesh.now;
        self.with_conn(link, side, |session, conn| session.drain(now, conn));
    }

    fn set_bulk_hint(&mut self, number: usize, side: Side, hint: BulkHint) {
        self.with_stream(number, side, |session, key| session.set_bulk_hint(key, hint));
    }

    fn reprioritize(&mut self, number: usize, side: Side, urgency: u8) {
        let priority = match urgency % 2 {
            0 => Priority::incremental(urgency),
            _ => Priority::sequential(urgency),
        };
        self.with_stream(number, side, |session, key| session.reprioritize(key, priority));
    }

    pub(crate) fn connect(&mut self) {
        if !self.shut_down_sessions.contains(&(Side::Client, 0)) {
            self.mesh.connect();
        }
    }

    fn flush(&mut self, link: u8) {
        let link = self.link_index(link);
        for side in Side::BOTH {
            self.mesh.transmit(link, side, TransmitLimits::any(UNLIMITED_BYTES));
            self.mesh.deliver(link, side.other(), UNLIMITED_BYTES);
        }
    }

    fn open(&mut self, on: Option<u8>, plan: Plan) {
        if self.exchanges.len() >= 60 {
            return;
        }
        let number = self.exchanges.len();
        let conn = match on.map(|link| self.mesh.links[self.link_index(link)].ends[0].conn) {
            Some(None) => return,
            Some(conn) => conn,
            None => None,
        };
        let is_head_only = plan.is_head_only(Side::Client);
        let end = if is_head_only { EndStream::Yes } else { EndStream::No };
        let now = self.mesh.now;
        let Ok(key) = self.mesh.client.open(now, conn, &plan.request(number), end) else {
            self.mesh.pump_events();
            return;
        };
        let mut exchange = ExchangeModel::new(plan);
        let model = exchange.side_mut(Side::Client);
        (model.key, model.head_sent, model.end_sent) = (Some(key), true, is_head_only);
        self.exchanges.push(exchange);
        self.mesh.pump_events();
    }

    fn reset(&mut self, number: usize, side: Side) {
        if self.exchanges[number].side(side).is_alive() {
            self.exchanges[number].side_mut(side).is_abandoned = true;
            self.with_stream(number, side, |session, key| session.reset(key, ErrorCode::Cancel));
        }
    }

    /// Sends the complete response at the server, then stops the upload.
    fn stop_upload(&mut self, number: usize) {
        let exchange = &self.exchanges[number];
        if exchange.is_push || exchange.plan.kind == crate::mesh::plan::ExchangeKind::Connect {
            return;
        }
        while self.write(number, Side::Server, UNLIMITED_BYTES) > 0 {}
        let model = self.exchanges[number].side_mut(Side::Server);
        if model.is_alive() && model.end_sent {
            (model.is_abandoned, model.upload_stopped) = (true, true);
            self.failures_expected = true;
            self.with_stream(number, Side::Server, |s, key| s.reset(key, ErrorCode::NoError));
        }
    }

    pub(crate) fn release(&mut self, number: usize, side: Side) {
        let model = self.exchanges[number].side_mut(side);
        let (Some(key), false, session) = (model.key, model.is_released, model.session) else {
            return;
        };
        model.is_abandoned |= !model.is_complete();
        model.is_released = true;
        self.mesh.session_mut(side, session).release(key);
        self.mesh.pump_events();
    }

    fn migrate(&mut self, number: usize, side: Side, to: MigrateTo) {
        let session = self.exchanges[number].side(side).session;
        let target = match to {
            MigrateTo::Spare => MigrationTarget::Spare,
            MigrateTo::Offer => MigrationTarget::Offer,
            MigrateTo::Link(link) => {
                let link_end = self.mesh.links[self.link_index(link)].ends[side.index()];
                match link_end.conn.filter(|_| link_end.session == session) {
                    Some(conn) => MigrationTarget::Connection(conn),
                    None => return,
                }
            }
        };
        let now = self.mesh.now;
        let result =
            self.with_stream(number, side, |session, key| session.migrate(now, key, target));
        if result == Some(Ok(())) && side == Side::Client {
            self.exchanges[number].has_open_offer = false;
        }
        if result == Some(Ok(())) {
            let exchange = &self.exchanges[number];
            if exchange.is_push {
                self.add_case("migration of a push");
            } else if exchange.plan.kind == crate::mesh::plan::ExchangeKind::Connect {
                self.add_case("migration of a tunnel");
            }
        }
    }

    fn pull(&mut self, number: usize, to: u8) {
        let Some(conn) = self.mesh.links[self.link_index(to)].ends[0].conn else { return };
        let pulled = self.with_stream(number, Side::Client, |session, key| session.pull(key, conn));
        if pulled == Some(Ok(())) {
            // What was offered is void.
            self.exchanges[number].has_open_offer = false;
            self.add_case("pull");
        }
    }

    pub(crate) fn decline_offer(&mut self, number: usize) {
        if self.exchanges[number].has_open_offer {
            self.exchanges[number].has_open_offer = false;
            self.with_stream(number, Side::Client, |session, key| session.decline_offer(key));
        }
    }

    fn push(&mut self, parent: usize, plan: Plan) {
        if self.exchanges.len() >= 60 {
            return;
        }
        let number = self.exchanges.len();
        let session = self.exchanges[parent].side(Side::Server).session;
        let (now, head) = (self.mesh.now, plan.request(number));
        let pushed =
            self.with_stream(parent, Side::Server, |session, key| session.push(now, key, &head));
        let Some(Ok(key)) = pushed else { return };
        self.add_case("push");
        let mut exchange = ExchangeModel::new(plan);
        exchange.is_push = true;
        let model = exchange.side_mut(Side::Server);
        (model.key, model.session, model.end_received) = (Some(key), session, true);
        exchange.side_mut(Side::Client).end_sent = true;
        self.exchanges.push(exchange);
    }

    fn close(&mut self, link: u8, side: Side) {
        let now = self.mesh.now;
        let index = self.link_index(link);
        self.mesh.links[index].close_cause.get_or_insert(CloseCause::Step);
        self.with_conn(link, side, |session, conn| {
            session.close(now, conn, ErrorCode::NoError, "closed by the test");
        });
    }

    fn shutdown(&mut self, side: Side) {
        let now = self.mesh.now;
        match side {
            Side::Client => {
                self.mesh.client.shutdown(now);
                self.shut_down_sessions.push((side, 0));
            }
            Side::Server => {
                self.mesh.servers.iter_mut().for_each(|session| session.shutdown(now));
                self.shut_down_sessions
                    .extend((0..self.mesh.servers.len()).map(|session| (side, session)));
            }
        }
        self.mesh.pump_events();
    }

    pub(crate) fn sleep(&mut self, millis: u32) {
        self.slept_ms += millis;
        self.mesh.inspector.timeouts_expected |= self.slept_ms >= 4000;
        self.failures_expected |=
            self.slept_ms >= 1000 * u32::from(self.mesh.setup.unbound_timeout_s).min(4);
        self.mesh.now = self.mesh.now + core::time::Duration::from_millis(millis.into());
        self.mesh.handle_timeout(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.mesh.handle_timeout(Side::Server, session);
        }
    }
}
