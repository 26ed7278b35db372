//! What pacing needs of a session's connections, and what it remembers of each.

use std::time::Duration;

use smig_proto::Instant;

use super::sample::ConnSample;

/// How long a connection that carries other data, too, counts as carrying bulk after its last bulk. A session whose bulk
/// pauses for longer begins anew.
pub(crate) const KEEP_TIME: Duration = Duration::from_secs(5);
/// A connection whose peer acknowledges nothing for four round trips, and for this time, does not count for the bounds
/// of the others.
const MIN_UNDELIVERED_TIME: Duration = Duration::from_secs(1);

/// The connections of a session, by index, as its owner writes to them and measures them.
pub trait PacedConns {
    /// Returns the number of connections.
    fn count(&self) -> usize;
    /// Returns what pacing remembers of a connection.
    fn conn(&mut self, index: usize) -> &mut PacedConn;
    /// Measures a connection's socket now.
    fn measure(&mut self, index: usize) -> ConnSample;
    /// Returns whether a connection has bulk to write, and its socket takes some as far as is known.
    fn can_write(&self, index: usize) -> bool;
    /// Writes a piece of bulk of about this size. Returns the bytes written, with all framing; zero if there are none,
    /// or the socket takes none.
    fn write(&mut self, index: usize, piece_bytes: u64) -> u64;
}

/// What pacing remembers of a connection.
#[derive(Debug, Default)]
pub struct PacedConn {
    sample: ConnSample,
    /// When a sample last showed a delivery, and the bytes acknowledged then.
    delivered_at: Option<(Instant, u64)>,
    /// Acknowledged bytes at the last call of [`Self::take_acknowledged`].
    last_acknowledged: Option<u64>,
    /// Packets retransmitted at the last call of [`Self::take_retransmitted`].
    last_retransmitted: Option<u64>,
    /// When the connection last had bulk to send, and whether it still has some.
    last_bulk_at: Option<Instant>,
    has_bulk: bool,
    is_for_bulk: bool,
}

impl PacedConn {
    /// Records whether the connection has bulk to send.
    pub fn set_has_bulk(&mut self, now: Instant, has_bulk: bool) {
        self.has_bulk = has_bulk;
        if has_bulk {
            self.last_bulk_at = Some(now);
        }
    }

    /// Returns whether the connection has bulk to send.
    pub const fn has_bulk(&self) -> bool {
        self.has_bulk
    }

    /// Sets whether the connection is one for bulk: one that a stream has migrated to always counts as carrying some.
    pub const fn set_for_bulk(&mut self, is_for_bulk: bool) {
        self.is_for_bulk = is_for_bulk;
    }

    /// Returns whether the connection is one for bulk.
    pub const fn is_for_bulk(&self) -> bool {
        self.is_for_bulk
    }

    /// Returns whether the connection carries bulk, or has until recently.
    pub(crate) fn carries_bulk(&self, now: Instant) -> bool {
        let is_recent = |at| now.saturating_duration_since(at) < KEEP_TIME;
        self.is_for_bulk || self.last_bulk_at.is_some_and(is_recent)
    }

    /// Returns the last measurement.
    pub(crate) const fn sample(&self) -> &ConnSample {
        &self.sample
    }

    /// Records a measurement.
    pub(crate) fn on_sample(&mut self, now: Instant, sample: ConnSample) {
        // Data that waits for a closed window is not in flight, but outstanding. The first data after a pause is new.
        let is_idle = sample.outstanding == 0 || self.sample.outstanding == 0;
        self.sample = sample;
        if is_idle || self.delivered_at.is_none_or(|(_, bytes)| bytes != sample.acknowledged) {
            self.delivered_at = Some((now, sample.acknowledged));
        }
    }

    /// Returns the bytes acknowledged between the samples of the previous call and of this one.
    pub(crate) fn take_acknowledged(&mut self) -> u64 {
        let total = self.sample.acknowledged;
        let last = self.last_acknowledged.unwrap_or(total);
        self.last_acknowledged = Some(total.max(last));
        total.saturating_sub(last)
    }

    /// Returns the packets retransmitted between the samples of the previous call and of this one.
    pub(crate) fn take_retransmitted(&mut self) -> u64 {
        let total = self.sample.retransmitted;
        let last = self.last_retransmitted.replace(total).unwrap_or(total);
        total.saturating_sub(last)
    }

    /// Returns whether the peer has acknowledged nothing for so long that the connection's bytes do not show the path.
    pub(crate) fn is_undelivered(&self, now: Instant) -> bool {
        let limit = (self.sample.rtt * 4).max(MIN_UNDELIVERED_TIME);
        self.delivered_at.is_some_and(|(at, _)| now.saturating_duration_since(at) > limit)
    }
}
