//! Limits all bulk of a session together, near the measured rate of the path that its connections share.
//!
//! Bulk is released piece by piece ([`SessionPacer`]), so that nothing else waits behind it, on connections that carry
//! both and on those that streams have migrated to. Where some is written ahead, because this process may not run when it is
//! due, the kernel paces that connection.

use std::sync::Arc;
use std::task::Context;

use smig_pace::{Bounds, BulkBucket, ConnSample, PacedConn, PacedConns, Pacer, SessionPacer};
use smig_proto::policy::Interference;
use smig_proto::{Config, Instant, Session};

use super::conn::{DriverConn, Progress, Release};
use super::conn_set::ConnOptions;
use crate::socket::RttCheck;

/// Whether bulk is limited to the measured rate of the path. What is sent on a path with a round-trip time below 2 ms, or
/// with more than 1 Gbit/s, is never paced: such a path has no queue that a person notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// It is sent as fast as congestion control allows; a bulk upload gets the credit of any stream
    /// ([`upload_pacing`](crate::ServerBuilder::upload_pacing)).
    Off,
    /// It is limited, on connections that carry other data too and on those that streams have migrated to.
    #[default]
    On,
}

impl Pacing {
    /// Returns the engine's configuration: without pacing, bulk takes turns with everything else.
    pub(crate) fn apply_to(self, mut config: Config) -> Config {
        if self == Self::Off {
            config.bulk = None;
        }
        config
    }
}

/// Whether what pacing has found is not applied for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PacingLift {
    /// It is applied.
    #[default]
    None,
    /// The path is measured, and bulk sent as congestion control allows.
    Lifted,
}

/// The pacing of one session.
#[derive(Debug)]
pub(super) struct BulkPacing {
    lift: PacingLift,
    options: Arc<ConnOptions>,
    pacer: SessionPacer,
    rtt_check: RttCheck,
}

impl BulkPacing {
    pub(super) fn new(options: Arc<ConnOptions>) -> Self {
        let pacer = SessionPacer::new(options.max_bulk_deferral);
        Self { lift: PacingLift::None, options, pacer, rtt_check: RttCheck::default() }
    }

    /// Returns whether bulk must wait for the bucket.
    pub(super) fn is_limiting(&self) -> bool {
        self.lift == PacingLift::None && self.pacer.is_limiting()
    }

    pub(super) const fn set_lift(&mut self, lift: PacingLift) {
        self.lift = lift;
    }

    /// Returns whether bulk is paced, or will be when there is some. Also true while it has no limit for a moment, beside
    /// other users of the path.
    fn is_paced(&self) -> bool {
        let is_too_fast = self.pacer.pacer().is_some_and(Pacer::is_path_too_fast);
        self.options.pacing == Pacing::On && !is_too_fast
    }

    /// Returns how bulk affects the other streams of its connection: unpaced, they wait in its queue.
    pub(super) fn interference(&self) -> Interference {
        if self.is_paced() { self.pacer.interference() } else { Interference::Queue }
    }

    pub(super) const fn bucket(&mut self) -> &mut BulkBucket {
        self.pacer.bucket()
    }

    /// Records that there is bulk: pacing starts, if it is enabled and the path's RTT is long enough.
    pub(super) fn on_bulk(&mut self, now: Instant, conns: &mut ConnTurn<'_, '_>) {
        let needs_start = self.options.pacing == Pacing::On && self.pacer.needs_start(now);
        if needs_start && self.rtt_check.is_due(now) {
            self.pacer.start(now, conns);
        }
    }

    /// Updates the limit, after `interactive_bytes` of other data were sent. Ends pacing if there has been no bulk for
    /// some time.
    pub(super) fn update(
        &mut self,
        now: Instant,
        conns: &mut ConnTurn<'_, '_>,
        interactive_bytes: u64,
    ) {
        if let Some(bounds) = self.pacer.update(now, conns, interactive_bytes) {
            let bounds = match self.lift {
                PacingLift::None => bounds,
                PacingLift::Lifted => Bounds::NONE,
            };
            conns.conns.iter_mut().for_each(|conn| conn.set_bounds(bounds));
        }
    }

    /// Sends the bulk that is allowed now.
    pub(super) fn release(&mut self, now: Instant, conns: &mut ConnTurn<'_, '_>) {
        self.pacer.release(now, conns);
    }

    /// Returns when the driver must run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pacer.deadline()
    }
}

/// The connections of a session while they send.
#[derive(Debug)]
pub(super) struct ConnTurn<'a, 'cx> {
    pub(super) conns: &'a mut [DriverConn],
    pub(super) session: &'a mut Session,
    pub(super) now: Instant,
    pub(super) cx: &'a mut Context<'cx>,
    /// Whether any bulk was sent.
    pub(super) progress: Progress,
}

/// Indices are of existing connections: the pacer counts them.
#[expect(clippy::indexing_slicing, reason = "as above")]
impl PacedConns for ConnTurn<'_, '_> {
    fn count(&self) -> usize {
        self.conns.len()
    }

    fn conn(&mut self, index: usize) -> &mut PacedConn {
        &mut self.conns[index].pacing.paced
    }

    fn measure(&mut self, index: usize) -> ConnSample {
        self.conns[index].measure()
    }

    fn can_write(&self, index: usize) -> bool {
        self.conns[index].has_bulk_to_write()
    }

    fn write(&mut self, index: usize, piece_bytes: u64) -> u64 {
        let mut written = 0;
        let release = Release::Piece { bytes: piece_bytes, written: &mut written };
        let sent = self.conns[index].transmit(self.session, self.now, self.cx, release);
        self.progress = self.progress.or(sent);
        written
    }
}
