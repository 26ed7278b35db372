//! Handles the engines' events, and checks that each has a cause.

use smig_proto::{Cause, ErrorCode, Event, Initiator, Mover, StreamError, StreamKey};

use crate::mesh::link::{Doom, Side};
use crate::mesh::net::DriverEvent;
use crate::mesh::plan::number_of;
use crate::mesh::world::World;

impl World {
    /// Handles the events for the applications.
    pub(crate) fn react(&mut self) {
        while let Some(happening) = self.mesh.next_happening() {
            self.on_happening(happening);
        }
        for (at, side, text) in core::mem::take(&mut self.unconfirmed_ends) {
            if self.talks[at].part_at(side).failed.is_none() {
                self.fault(format!("exchange {at} at {side:?}: {text}, and no event says so"));
            }
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

    fn on_happening(&mut self, DriverEvent { side, session, event }: DriverEvent) {
        match event {
            Event::Request { stream, head, end, .. } => {
                let Some(at) = number_of(&head.headers).filter(|&at| at < self.talks.len()) else {
                    return self.fault("a request that no application sent".to_owned());
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
                    return self.fault("a push that no application sent".to_owned());
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
        let times = [
            Cause::SlowHeaders.describe(),
            Cause::SlowPreface.describe(),
            Cause::SettingsTimeout.describe(),
            Cause::JoinTimeout.describe(),
            "drain PING answer time",
        ];
        let late = self.mesh.watch.slept_long && times.contains(&limit);
        match limit {
            "migrations"
            | "unbound carriers"
            | "unbound carrier time"
            | "migration answer time"
            | "stalled stream" => self.seen(limit),
            _ if late => self.seen("a time limit of a connection"),
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
            return self.fault(format!("{side:?}: an event for an unknown stream: {event:?}"));
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
            Cause::CarrierTimeout => self.slept >= 1000 * u32::from(self.mesh.setup.patience),
            Cause::Stalled
            | Cause::SlowPreface
            | Cause::SlowHeaders
            | Cause::SettingsTimeout
            | Cause::JoinTimeout => self.mesh.watch.slept_long,
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
        if !self.troubled && error.code != ErrorCode::RefusedStream {
            self.fault(format!("exchange {at} failed at {side:?}, and nothing happened: {error}"));
        }
        let user = error.initiator == Initiator::User;
        let whole = error.code == ErrorCode::NoError && error.initiator == Initiator::Peer;
        if side == Side::Client && whole {
            // NO_ERROR means that the response is complete (RFC 9113 section 8.1), migrated or not.
            self.fault(format!("exchange {at}: a complete response was discarded"));
        }
        if !cause || !code || (user && !gave_up) {
            self.fault(format!("exchange {at} failed at {side:?} without need: {error}"));
        }
        if error.cause == Some(Cause::ConnectionLost) {
            self.check_loss(at, side, error);
        }
        let other = self.talks[at].part_at(side.other());
        let by_peer = error.initiator == Initiator::Peer && error.code != ErrorCode::RefusedStream;
        // A carrier that stays unbound until the timeout is reset, while its stream continues at that end.
        let late = self.slept >= 1000 * u32::from(self.mesh.setup.patience);
        if by_peer && other.is_alive() && !gave_up && !late {
            let text = "by an end that continues it";
            self.fault(format!("exchange {at} was reset at {side:?} {text}: {error}"));
        }
    }

    /// Checks a stream lost with its connection: there must be a cause. If the client closed the connection
    /// to cancel another stream, this one must not have depended on it (SMIG-8.4/cancel-by-close).
    fn check_loss(&mut self, at: usize, side: Side, error: &StreamError) {
        let session = self.talks[at].part_at(side).session;
        match self.mesh.doom_of(side, session, error.connection) {
            Some(Doom::Step) => {}
            Some(Doom::Cancel) if !self.was_at_work(at, side) => {}
            Some(Doom::Cancel) => {
                let text = "the client closed its connection to cancel another";
                self.fault(format!("exchange {at} failed at {side:?}, for {text}: {error}"));
            }
            None if self.mesh.watch.slept_long => {}
            None => {
                let text = "its connection ended without a cause";
                self.fault(format!("exchange {at} failed at {side:?}, for {text}: {error}"));
            }
        }
    }

    /// Returns whether the client still waited for a part of the exchange that neither end had abandoned.
    fn was_at_work(&self, at: usize, side: Side) -> bool {
        let talk = &self.talks[at];
        let [client, server] = &talk.parts;
        let waits = match side {
            Side::Client => true,
            Side::Server => client.is_alive(),
        };
        waits && !client.gave_up && !server.gave_up
    }
}
