//! Handles the engines' events, and checks that each has a cause.

use smig_proto::{Cause, ErrorCode, Event, Initiator, Instant, Mover, StreamError, StreamKey};

use crate::mesh::link::{CloseCause, Side};
use crate::mesh::net::EngineEvent;
use crate::mesh::plan::number_of;
use crate::mesh::world::World;

impl World {
    /// Handles all queued events, and checks each.
    pub(crate) fn handle_events(&mut self) {
        while let Some(event) = self.mesh.next_event() {
            self.on_engine_event(event);
        }
        for (number, side, text) in core::mem::take(&mut self.unconfirmed_ends) {
            if self.exchanges[number].side(side).error.is_none() {
                self.report_violation(format!(
                    "exchange {number} at {side:?}: {text}, but there was no event"
                ));
            }
        }
        let violations = core::mem::take(&mut self.mesh.inspector.violations);
        self.violations.extend(violations);
    }

    fn find_exchange(&self, side: Side, session: usize, key: StreamKey) -> Option<usize> {
        self.exchanges.iter().position(|exchange| {
            let model = exchange.side(side);
            model.key == Some(key) && model.session == session
        })
    }

    fn on_engine_event(&mut self, EngineEvent { side, session, event }: EngineEvent) {
        match event {
            Event::Request { stream, head, end, .. } => {
                let Some(number) = number_of(&head.headers).filter(|&at| at < self.exchanges.len())
                else {
                    return self.report_violation("a request that no application sent".to_owned());
                };
                let plan = self.exchanges[number].plan;
                let model = self.exchanges[number].side_mut(Side::Server);
                if model.key.is_some() || plan.is_head_only(Side::Client) != end.is_end() {
                    self.report_violation(format!("request {number} arrived twice or changed"));
                    return;
                }
                let model = self.exchanges[number].side_mut(Side::Server);
                (model.key, model.session) = (Some(stream), session);
                (model.head_received, model.is_readable) = (true, true);
                if plan.responds_at_once {
                    self.send_head(number);
                }
            }
            Event::Pushed { stream, head, .. } => {
                let Some(number) = number_of(&head.headers).filter(|&at| at < self.exchanges.len())
                else {
                    return self.report_violation("a push that no application sent".to_owned());
                };
                self.exchanges[number].side_mut(Side::Client).key = Some(stream);
            }
            Event::Closed { error: Some(error), .. } => {
                let has_expected_cause = error.cause.is_some_and(|cause| self.is_expected(cause));
                if error.initiator == Initiator::Local && !has_expected_cause {
                    self.report_violation(format!("{side:?} found a connection error: {error}"));
                }
            }
            Event::LimitHit { limit, .. } => self.on_limit(side, limit),
            Event::Resumed { .. } => self.add_case(match side {
                Side::Client => "resumed at the client",
                Side::Server => "resumed at the server",
            }),
            event => self.on_stream_event(side, session, event),
        }
    }

    fn on_limit(&mut self, side: Side, limit: &'static str) {
        let time_limits = [
            Cause::SlowHeaders.describe(),
            Cause::SlowPreface.describe(),
            Cause::SettingsTimeout.describe(),
            Cause::JoinTimeout.describe(),
            "drain PING answer time",
        ];
        let may_time_out = self.mesh.inspector.timeouts_expected && time_limits.contains(&limit);
        match limit {
            "migrations"
            | "unbound carriers"
            | "unbound carrier time"
            | "migration answer time"
            | "stalled stream"
            | "time to resume a stream" => self.add_case(limit),
            _ if may_time_out => self.add_case("a time limit of a connection"),
            other => self.report_violation(format!("{side:?} hit the limit of {other}")),
        }
    }

    fn on_stream_event(&mut self, side: Side, session: usize, event: Event) {
        let stream = match &event {
            Event::Response { stream, .. }
            | Event::Informational { stream, .. }
            | Event::Readable { stream }
            | Event::Writable { stream }
            | Event::Failed { stream, .. }
            | Event::Migrated { stream, .. }
            | Event::MigrationOffered { stream }
            | Event::MigrationDeclined { stream } => *stream,
            _ => return,
        };
        let Some(number) = self.find_exchange(side, session, stream) else {
            return self
                .report_violation(format!("{side:?}: an event for an unknown stream: {event:?}"));
        };
        let plan = self.exchanges[number].plan;
        let model = self.exchanges[number].side_mut(side);
        match event {
            Event::Response { head, end, .. } => {
                let is_repeated = core::mem::replace(&mut model.head_received, true);
                model.is_readable = true;
                let is_correct = number_of(&head.headers) == Some(number) && head.status == 200;
                if is_repeated
                    || !is_correct
                    || end.is_end() && !plan.body_of(Side::Server).is_empty()
                {
                    self.report_violation(format!(
                        "response {number} arrived twice or changed: {head:?} {end:?}"
                    ));
                }
            }
            Event::Informational { .. } => {
                model.informational_count += 1;
                if model.head_received || model.informational_count > plan.informational_count {
                    self.report_violation(format!("1xx of {number} arrived too often or too late"));
                }
            }
            Event::Readable { .. } => model.is_readable = true,
            Event::Writable { .. } => model.is_writable = true,
            Event::Failed { error, .. } => {
                model.error = Some(error.clone());
                self.exchanges[number].has_open_offer &= side == Side::Server;
                self.check_error(number, side, &error);
            }
            Event::MigrationOffered { .. } => self.exchanges[number].has_open_offer = true,
            Event::Migrated { mover, .. } => self.add_case(match (side, mover) {
                (Side::Client, Mover::Local) => "migration completed by client",
                (Side::Client, Mover::Peer) => "followed by client",
                (Side::Server, Mover::Local) => "migration completed by server",
                (Side::Server, Mover::Peer) => "followed by server",
            }),
            _ => {}
        }
    }

    fn is_expected(&self, cause: Cause) -> bool {
        match cause {
            Cause::ConnectionLost | Cause::GoingAway | Cause::TooManyStreams => true,
            Cause::AnswerTimeout => {
                let elapsed = self.mesh.now.saturating_duration_since(Instant::from_nanos(0));
                elapsed >= self.mesh.setup.answer_timeout()
            }
            Cause::Lingered => self.slept_ms >= 1000 * u32::from(self.mesh.setup.linger_s),
            Cause::NotKept | Cause::SessionForgotten => self.mesh.setup.linger_s > 0,
            Cause::Stalled
            | Cause::SlowPreface
            | Cause::SlowHeaders
            | Cause::SettingsTimeout
            | Cause::JoinTimeout => self.mesh.inspector.timeouts_expected,
            _ => false,
        }
    }

    fn check_error(&mut self, number: usize, side: Side, error: &StreamError) {
        let was_abandoned =
            Side::BOTH.iter().any(|&side| self.exchanges[number].side(side).is_abandoned);
        let has_expected_cause = error.cause.is_none_or(|cause| self.is_expected(cause));
        let has_expected_code = matches!(
            error.code,
            ErrorCode::NoError
                | ErrorCode::InternalError
                | ErrorCode::RefusedStream
                | ErrorCode::Cancel
                | ErrorCode::SettingsTimeout
        ) || self.mesh.inspector.timeouts_expected
            && error.code == ErrorCode::EnhanceYourCalm;
        if !self.failures_expected && error.code != ErrorCode::RefusedStream {
            self.report_violation(format!(
                "exchange {number} failed at {side:?} without a cause: {error}"
            ));
        }
        let by_user = error.initiator == Initiator::User;
        let is_stop = error.code == ErrorCode::NoError && error.initiator == Initiator::Peer;
        if side == Side::Client && is_stop {
            // NO_ERROR means that the response is complete (RFC 9113 section 8.1), migrated or not.
            self.report_violation(format!("exchange {number}: a complete response was discarded"));
        }
        if !has_expected_cause || !has_expected_code || (by_user && !was_abandoned) {
            self.report_violation(format!(
                "exchange {number} failed at {side:?} unexpectedly: {error}"
            ));
        }
        if error.cause == Some(Cause::ConnectionLost) {
            self.check_loss(number, side, error);
        }
        let peer = self.exchanges[number].side(side.other());
        let by_peer = error.initiator == Initiator::Peer && error.code != ErrorCode::RefusedStream;
        // A carrier that stays unbound until the timeout is reset, while its stream continues at that end.
        let has_timed_out = self.slept_ms >= 1000 * u32::from(self.mesh.setup.unbound_timeout_s);
        if by_peer && peer.is_alive() && !was_abandoned && !has_timed_out {
            let text = "by an end that continues it";
            self.report_violation(format!(
                "exchange {number} was reset at {side:?} {text}: {error}"
            ));
        }
    }

    /// Checks a stream lost with its connection: there must be a cause. If the client closed the connection
    /// to cancel another stream, this one must not have depended on it (SMIG-8.4/cancel-by-close).
    fn check_loss(&mut self, number: usize, side: Side, error: &StreamError) {
        let session = self.exchanges[number].side(side).session;
        match self.mesh.close_cause_of(side, session, error.connection) {
            Some(CloseCause::Step) => {}
            Some(CloseCause::Cancel) if !self.was_in_progress(number, side) => {}
            // It answered no RESUME, and promised streams are not resumed; or LOST has come before the GOAWAY of the end that
            // gave it up after a timeout.
            Some(CloseCause::Cancel)
                if self.mesh.setup.linger_s > 0
                    && (self.exchanges[number].is_push
                        || self.mesh.inspector.timeouts_expected) => {}
            Some(CloseCause::Cancel) => {
                let text = "the client closed its connection to cancel another";
                self.report_violation(format!(
                    "exchange {number} failed at {side:?}, for {text}: {error}"
                ));
            }
            None if self.mesh.inspector.timeouts_expected => {}
            None => {
                let text = "its connection ended without a cause";
                self.report_violation(format!(
                    "exchange {number} failed at {side:?}, for {text}: {error}"
                ));
            }
        }
    }

    /// Returns whether the client still waited for a part of the exchange that neither end had abandoned.
    fn was_in_progress(&self, number: usize, side: Side) -> bool {
        let exchange = &self.exchanges[number];
        let [client, server] = &exchange.sides;
        let waits = match side {
            Side::Client => true,
            Side::Server => client.is_alive(),
        };
        waits && !client.is_abandoned && !server.is_abandoned
    }
}
