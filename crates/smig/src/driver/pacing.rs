//! Limits all bulk of a session together, near the measured rate of the path that its connections share.
//!
//! Bulk is released piece by piece ([`BulkBucket`]), so that nothing else waits behind it, on connections that carry
//! both and on those that streams have migrated to. The kernel paces only what must be written before it is due.

use std::sync::Arc;
use std::time::Duration;

use smig_pace::{Bounds, BulkBucket, MIN_PACED_RTT, Pacer, RateSample};
use smig_proto::{Config, ConnectionRole, Instant};

use super::conn::DriverConn;
use super::conn_set::ConnOptions;
use crate::socket::RttCheck;

/// How long a connection that carries other data, too, counts as carrying bulk after its last bulk.
const KEEP_TIME: Duration = Duration::from_secs(5);

/// Whether bulk is limited to the measured rate of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// It is sent as fast as congestion control allows.
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

/// The pacing of one session.
#[derive(Debug)]
pub(super) struct BulkPacing {
    options: Arc<ConnOptions>,
    /// The limit; `None` while there is no bulk, or the path's RTT is short.
    pacer: Option<Box<Pacer>>,
    bucket: BulkBucket,
    /// Bytes acknowledged on all connections.
    acknowledged: u64,
    rtt_check: RttCheck,
}

impl BulkPacing {
    pub(super) fn new(options: Arc<ConnOptions>) -> Self {
        let max_deferral = options.max_bulk_deferral;
        Self {
            options,
            pacer: None,
            bucket: BulkBucket::new(Instant::from_nanos(0), Bounds::NONE, max_deferral),
            acknowledged: 0,
            rtt_check: RttCheck::default(),
        }
    }

    fn bounds(&self) -> Bounds {
        self.pacer.as_deref().map_or(Bounds::NONE, Pacer::bounds)
    }

    /// Returns whether bulk must wait for the bucket.
    pub(super) fn is_limiting(&self) -> bool {
        self.bounds().rate != u64::MAX
    }

    /// Returns whether bulk is limited, or will be when there is some.
    pub(super) fn may_limit(&self) -> bool {
        let is_lifted = self.pacer.is_some() && !self.is_limiting();
        self.options.pacing == Pacing::On && !is_lifted
    }

    /// Returns whether a piece of bulk may be sent now. Measures the bytes in flight if they are what prevents it.
    pub(super) fn allows_piece(&mut self, now: Instant, conns: &mut [DriverConn]) -> bool {
        if self.bucket.is_full() {
            sample_all(now, conns);
            self.bucket.set_outstanding(outstanding(now, conns));
        }
        self.bucket.piece().is_some()
    }

    pub(super) const fn bucket(&mut self) -> &mut BulkBucket {
        &mut self.bucket
    }

    /// Records that there is bulk: pacing starts, if it is enabled and the path's RTT is long enough.
    pub(super) fn on_bulk(&mut self, now: Instant, conns: &mut [DriverConn]) {
        if self.options.pacing == Pacing::Off || self.pacer.is_some() || !self.rtt_check.is_due(now)
        {
            return;
        }
        if let Some(min_rtt) = sample_all(now, conns).filter(|&min_rtt| min_rtt >= MIN_PACED_RTT) {
            let pacer = Pacer::new(now, min_rtt);
            self.bucket = BulkBucket::new(now, pacer.bounds(), self.options.max_bulk_deferral);
            self.pacer = Some(Box::new(pacer));
        }
    }

    /// Updates the limit, after `interactive_bytes` of other data were sent. Ends pacing if there has been no bulk for
    /// some time.
    pub(super) fn update(
        &mut self,
        now: Instant,
        conns: &mut [DriverConn],
        interactive_bytes: u64,
    ) {
        if !conns.iter().any(|conn| carries_bulk(conn, now)) {
            self.end(conns);
            return;
        }
        let Some(mut pacer) = self.pacer.take() else { return };
        let is_due = pacer.is_due(now);
        if is_due {
            self.sample(now, &mut pacer, conns);
        }
        let bounds = pacer.bounds();
        self.pacer = Some(pacer);
        let packet_bytes = conns.iter().map(|conn| conn.sample.mss).max().unwrap_or(0);
        self.bucket.refill(now, bounds, packet_bytes);
        self.bucket.on_interactive(interactive_bytes);
        if is_due {
            self.bucket.set_outstanding(outstanding(now, conns));
        }
        conns.iter_mut().for_each(|conn| conn.set_bounds(bounds));
    }

    /// Ends pacing: no connection carries bulk.
    fn end(&mut self, conns: &mut [DriverConn]) {
        if self.pacer.take().is_some() {
            conns.iter_mut().for_each(|conn| conn.set_bounds(Bounds::NONE));
        }
    }

    /// Samples every connection, and passes the result to the pacer.
    fn sample(&mut self, now: Instant, pacer: &mut Pacer, conns: &mut [DriverConn]) {
        let Some(min_rtt) = sample_all(now, conns) else { return pacer.on_idle(now) };
        self.acknowledged += conns.iter_mut().map(DriverConn::take_acknowledged).sum::<u64>();
        let in_flight = |conn: &DriverConn| conn.sample.in_flight;
        let delivering = |conn: &&DriverConn| !conn.is_undelivered(now);
        let all_in_flight: u64 = conns.iter().filter(delivering).map(in_flight).sum();
        let with_bulk = conns.iter().filter(|conn| carries_bulk(conn, now)).filter(delivering);
        let in_flight = with_bulk.clone().map(in_flight).sum();
        let retransmitted = conns.iter().map(|conn| u64::from(conn.sample.retransmitted)).sum();
        let sending = with_bulk.filter(|conn| conn.sample.in_flight > 0 || conn.has_bulk_waiting());
        let Some(conn) = sending.min_by_key(|conn| conn.sample.rtt) else {
            return pacer.on_idle(now);
        };
        pacer.on_sample(
            now,
            RateSample {
                acknowledged: self.acknowledged,
                sent: self.acknowledged + all_in_flight,
                min_rtt,
                retransmitted,
                in_flight,
                ..conn.sample.rate_sample()
            },
        );
    }

    /// Returns when the driver must run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        [pacer.deadline(), self.bucket.deadline()].into_iter().flatten().min()
    }
}

/// Returns the bytes of all connections that were framed and not acknowledged at the last sample. A connection whose peer
/// has disappeared would hold up the others' bulk.
fn outstanding(now: Instant, conns: &[DriverConn]) -> u64 {
    let delivering = conns.iter().filter(|conn| !conn.is_undelivered(now));
    delivering.map(DriverConn::outstanding).sum()
}

/// Returns whether a connection carries bulk, or has until recently. One that a stream has migrated to always counts.
fn carries_bulk(conn: &DriverConn, now: Instant) -> bool {
    let is_recent = |at| now.saturating_duration_since(at) < KEEP_TIME;
    conn.role == ConnectionRole::Bulk || conn.last_bulk_at.is_some_and(is_recent)
}

/// Samples all connections; returns the lowest minimum RTT.
fn sample_all(now: Instant, conns: &mut [DriverConn]) -> Option<Duration> {
    let sample = |conn: &mut DriverConn| {
        conn.take_sample();
        conn.note_delivery(now);
        conn.sample.min_rtt
    };
    conns.iter_mut().map(sample).filter(|min_rtt| !min_rtt.is_zero()).min()
}
