//! Which streams move to other connections and which are offered, within what the configuration, the engine and the client allow.

use std::time::Duration;

use smig_proto::{
    ConnId, DEFAULT_MIGRATIONS_PER_SECOND, Instant, MIGRATION_BURST_SECONDS, MigrateError,
    MigrationTarget, OfferState, SmigConfig, StreamKey, StreamView, TokenBucket,
};

use super::reach::{Offering, Reach};
use crate::migration::Offers;
use crate::migration::balance::{BalancedStream, Mobility, plan};

/// Moves of one stream, if the session allows so many: fewer than a client follows by default.
const MAX_MOVES_PER_STREAM: u8 = 2;
/// Moves of a session at once, and per second: below what a client follows by default, whose clock is another.
const MAX_MOVES: u32 = DEFAULT_MIGRATIONS_PER_SECOND * MIGRATION_BURST_SECONDS / 10 * 9;
const MOVES_PER_S: u32 = DEFAULT_MIGRATIONS_PER_SECOND / 5 * 4;

/// Returns how often a stream may move in all.
pub(super) fn max_moves_per_stream(smig: &SmigConfig) -> u8 {
    smig.max_migrations_per_stream.min(MAX_MOVES_PER_STREAM)
}

/// The connections over which streams are spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes<'a> {
    /// Those that are there.
    pub(super) open: &'a [ConnId],
    /// How many there may be.
    pub(super) reach: Reach,
    /// Whether the client may still add to them in time.
    pub(super) growth: Growth,
}

/// Whether connections may still be added to those over which streams are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Awaited,
    Over,
}

/// An offer that the client has not answered.
#[derive(Clone, Copy, Debug)]
struct Offer {
    stream: StreamKey,
    /// When it was first seen.
    since: Instant,
    by: OfferedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedBy {
    Spread,
    /// The rules, or the application.
    Other,
}

/// The moves and offers of a session, and what the client has declined.
#[derive(Debug)]
pub(super) struct StreamMoves {
    /// Unanswered offers, also those of others: the client opens a connection for each.
    offers: Vec<Offer>,
    /// How long the client is expected to answer one.
    answer_timeout: Duration,
    /// Unanswered moves of streams that are spread.
    moving: Vec<StreamKey>,
    /// Streams that the client would not follow since streams are spread.
    declined: Vec<StreamKey>,
    /// Whether it has declined an offer since then: it opens no more connections.
    has_declined_offer: bool,
    budget: TokenBucket,
}

impl StreamMoves {
    pub(super) const fn new(now: Instant, answer_timeout: Duration) -> Self {
        Self {
            offers: Vec::new(),
            answer_timeout,
            moving: Vec::new(),
            declined: Vec::new(),
            has_declined_offer: false,
            budget: TokenBucket::new(MAX_MOVES, MOVES_PER_S, now),
        }
    }

    /// Forgets what the client has declined: it may do more in another trial. Offers and moves that it has not answered stay.
    pub(super) fn forget_declined(&mut self) {
        self.declined.clear();
        self.has_declined_offer = false;
    }

    /// Records that the client has declined an offer or a move, which may be one of the rules or of the application: that says
    /// nothing here. Other offers would only cost it as much; and it may follow too many streams, so that others wait a moment.
    pub(super) fn on_declined(&mut self, now: Instant, stream: StreamKey) {
        if let Some(index) = self.offers.iter().position(|offer| offer.stream == stream) {
            self.has_declined_offer |= self.offers.swap_remove(index).by == OfferedBy::Spread;
        } else if let Some(index) = self.moving.iter().position(|&moving| moving == stream) {
            self.moving.swap_remove(index);
            self.declined.push(stream);
            self.budget.empty(now);
        }
    }

    /// Returns whether the client would not follow the stream.
    pub(super) fn has_declined(&self, stream: StreamKey) -> bool {
        self.declined.contains(&stream)
    }

    /// Forgets what was answered, and streams that have ended; and records the offers of others.
    pub(super) fn settle(&mut self, now: Instant, streams: &[(StreamKey, StreamView)]) {
        let view = |stream| streams.iter().find(|(key, _)| *key == stream).map(|(_, view)| view);
        let is_offered = |view: &StreamView| view.offer == OfferState::Unanswered;
        self.offers.retain(|offer| view(offer.stream).is_some_and(is_offered));
        let is_moving = |view: &StreamView| view.is_migrating && !is_offered(view);
        self.moving.retain(|&stream| view(stream).is_some_and(is_moving));
        self.declined.retain(|&stream| view(stream).is_some());
        for &(stream, _) in streams.iter().filter(|(_, view)| is_offered(view)) {
            if !self.offers.iter().any(|offer| offer.stream == stream) {
                self.offers.push(Offer { stream, since: now, by: OfferedBy::Other });
            }
        }
    }

    /// Returns how many offers the client may still open a connection for. One that has not answered for long does not.
    pub(super) fn open_offers(&self, now: Instant) -> usize {
        let is_recent =
            |offer: &&Offer| now.saturating_duration_since(offer.since) < self.answer_timeout;
        self.offers.iter().filter(is_recent).count()
    }

    /// Returns whether streams may be offered.
    pub(super) fn offering(&self, offers: Offers) -> Offering {
        match offers {
            Offers::WhenNoSpare if !self.has_declined_offer => Offering::Allowed,
            _ => Offering::Ended,
        }
    }

    /// Moves streams from the busiest connection to the others, and offers some where there are too few; `migrate` returns why
    /// the engine does not.
    pub(super) fn balance(
        &mut self,
        now: Instant,
        streams: &[BalancedStream],
        lanes: Lanes<'_>,
        mut migrate: impl FnMut(StreamKey, MigrationTarget) -> Result<(), MigrateError>,
    ) {
        // Connections that the client may open soon have their share as well, or what moves now would have to move again.
        let planned_lanes = match lanes.growth {
            Growth::Awaited => lanes.reach.lanes().max(lanes.open.len()),
            Growth::Over => lanes.open.len(),
        };
        let max_moves = self.budget.available(now) as usize;
        for (key, to) in plan(planned_lanes, streams, max_moves) {
            let Some(&to) = lanes.open.get(to) else { continue };
            match migrate(key, MigrationTarget::Connection(to)) {
                Ok(()) => {
                    self.budget.take_up_to(1);
                    self.moving.push(key);
                }
                // It is all that the client tolerates at once. Other errors are about this stream or connection.
                Err(MigrateError::TooManyOpen) => return,
                Err(_) => {}
            }
        }
        if lanes.growth == Growth::Awaited && lanes.reach.may_offer() {
            self.offer(now, streams, lanes, migrate);
        }
    }

    fn offer(
        &mut self,
        now: Instant,
        streams: &[BalancedStream],
        lanes: Lanes<'_>,
        mut migrate: impl FnMut(StreamKey, MigrationTarget) -> Result<(), MigrateError>,
    ) {
        // The last ones wait longest: an answer takes a handshake.
        for stream in streams.iter().rev().filter(|it| it.mobility == Mobility::Mobile) {
            let lane_count = lanes.open.len() + self.open_offers(now);
            let is_enough = lane_count >= lanes.reach.max_lanes.min(streams.len());
            if is_enough || self.budget.available(now) == 0 {
                return;
            }
            match migrate(stream.key, MigrationTarget::Offer) {
                Ok(()) => {
                    self.budget.take_up_to(1);
                    let by = OfferedBy::Spread;
                    self.offers.push(Offer { stream: stream.key, since: now, by });
                }
                Err(MigrateError::TooManyOpen) => return,
                // It was offered before, or moves now.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
