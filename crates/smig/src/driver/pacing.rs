//! Limits the rate of all bulk of a session together, near the measured rate of the path that its connections share.
//!
//! There are two ways to apply the limit. A connection that streams have migrated to carries only bulk, so the kernel
//! paces it (SO_MAX_PACING_RATE), and more slowly while interactive bytes are sent ([`BulkDeferral`]). On a
//! connection that carries both, bulk is released piece by piece ([`BulkBucket`]), so that nothing else waits.

use std::sync::Arc;
use std::time::Duration;

use smig_pace::{
    BulkBucket, BulkDeferral, DEFERRED_RATE_DIVISOR, MIN_PACED_RTT, Pacer, RateSample,
};
use smig_proto::{Config, ConnectionRole, Instant};

use super::conn::DriverConn;
use super::conn_set::ConnOptions;

/// Interval between two checks of whether the round-trip time is long enough for pacing.
const RTT_CHECK_INTERVAL: Duration = Duration::from_millis(200);
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
    pacer: Option<Pacer>,
    bucket: BulkBucket,
    deferral: BulkDeferral,
    /// Bytes acknowledged on all connections.
    acknowledged: u64,
    next_rtt_check: Option<Instant>,
}

impl BulkPacing {
    pub(super) fn new(options: Arc<ConnOptions>) -> Self {
        let max_deferral = options.max_bulk_deferral;
        Self {
            options,
            pacer: None,
            bucket: BulkBucket::new(Instant::from_nanos(0), u64::MAX, max_deferral),
            deferral: BulkDeferral::new(max_deferral),
            acknowledged: 0,
            next_rtt_check: None,
        }
    }

    /// Returns whether bulk on shared connections must wait for the bucket.
    pub(super) fn is_limiting(&self) -> bool {
        self.pacer.as_ref().is_some_and(|pacer| cap(pacer) != u64::MAX)
    }

    pub(super) const fn bucket(&mut self) -> &mut BulkBucket {
        &mut self.bucket
    }

    /// Records that there is bulk: pacing starts, if it is enabled and the path's RTT is long enough.
    pub(super) fn on_bulk(&mut self, now: Instant, conns: &mut [DriverConn]) {
        if self.options.pacing == Pacing::Off
            || self.pacer.is_some()
            || self.next_rtt_check.is_some_and(|at| now < at)
        {
            return;
        }
        self.next_rtt_check = Some(now + RTT_CHECK_INTERVAL);
        if let Some(min_rtt) = sample_all(conns).filter(|&min_rtt| min_rtt >= MIN_PACED_RTT) {
            let pacer = Pacer::new(now, min_rtt);
            self.bucket = BulkBucket::new(now, pacer.cap(), self.options.max_bulk_deferral);
            self.pacer = Some(pacer);
        }
    }

    /// Updates the limit, after `interactive_bytes` of other data were sent, and applies it to the connections that
    /// streams have migrated to. Ends pacing if no connection carries bulk.
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
        if pacer.is_due(now) {
            self.sample(now, &mut pacer, conns);
        }
        let (cap, capacity) = (cap(&pacer), pacer.capacity());
        self.pacer = Some(pacer);
        let bulk_conns = conns.iter().filter(|conn| conn.role == ConnectionRole::Bulk);
        let has_bulk_conns = bulk_conns.clone().next().is_some();
        let active_bulk_conns = bulk_conns.filter(|conn| conn.is_blocked()).count();
        let has_shared_bulk = |conn: &&DriverConn| {
            conn.role == ConnectionRole::Interactive && conn.has_bulk_waiting()
        };
        let shared_conns = conns.iter().filter(has_shared_bulk).count();
        let share = |cap: u64| match active_bulk_conns + shared_conns {
            _ if cap == u64::MAX => cap,
            flows => cap / flows.max(1) as u64,
        };
        let packet_bytes = conns.iter().map(|conn| conn.sample.mss).max().unwrap_or(0);
        let shared_rate = share(cap).saturating_mul(shared_conns.max(1) as u64);
        self.bucket.refill(now, shared_rate, packet_bytes);
        self.bucket.on_interactive(interactive_bytes);
        for conn in conns.iter_mut().filter(|conn| conn.role == ConnectionRole::Interactive) {
            conn.set_release_rate(shared_rate);
        }
        if !has_bulk_conns {
            self.deferral.cancel();
            return;
        }
        self.deferral.on_interactive(now, interactive_bytes, capacity);
        let cap = match self.deferral.is_active(now) {
            true => cap.min(capacity / DEFERRED_RATE_DIVISOR),
            false => cap,
        };
        for conn in conns.iter_mut().filter(|conn| conn.role == ConnectionRole::Bulk) {
            conn.set_cap(share(cap));
        }
    }

    /// Ends pacing: no connection carries bulk.
    fn end(&mut self, conns: &mut [DriverConn]) {
        if self.pacer.take().is_some() {
            self.deferral.cancel();
            conns.iter_mut().for_each(|conn| conn.set_release_rate(u64::MAX));
        }
    }

    /// Samples every connection, and passes the result to the pacer.
    fn sample(&mut self, now: Instant, pacer: &mut Pacer, conns: &mut [DriverConn]) {
        let Some(min_rtt) = sample_all(conns) else { return pacer.on_idle(now) };
        self.acknowledged += conns.iter_mut().map(DriverConn::take_acknowledged).sum::<u64>();
        let in_flight = |conn: &DriverConn| conn.sample.in_flight;
        let all_in_flight: u64 = conns.iter().map(in_flight).sum();
        let with_bulk = conns.iter().filter(|conn| carries_bulk(conn, now));
        let in_flight = with_bulk.clone().map(in_flight).sum();
        let retransmitted = conns.iter().map(|conn| u64::from(conn.sample.retransmitted)).sum();
        let sending = with_bulk.filter(|conn| conn.sample.in_flight > 0);
        let Some(conn) = sending.min_by_key(|conn| conn.sample.rtt) else {
            return pacer.on_idle(now);
        };
        pacer.on_sample(
            now,
            RateSample {
                acknowledged: self.acknowledged,
                sent: self.acknowledged + all_in_flight,
                rtt: conn.sample.rtt,
                rtt_deviation: conn.sample.rtt_deviation,
                min_rtt,
                retransmitted,
                mss: conn.sample.mss,
                in_flight,
            },
        );
    }

    /// Returns when the driver must run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        let bucket = self.bucket.deadline();
        [self.deferral.deadline(), pacer.deadline(), bucket].into_iter().flatten().min()
    }
}

/// Returns the limit in bytes per second; `u64::MAX` is none. A starved process has none: it cannot send when the limit
/// allows it, so the socket must hold what congestion control sends meanwhile.
fn cap(pacer: &Pacer) -> u64 {
    if pacer.is_starved() { u64::MAX } else { pacer.cap() }
}

/// Returns whether a connection carries bulk, or has until recently. One that a stream has migrated to always counts.
fn carries_bulk(conn: &DriverConn, now: Instant) -> bool {
    let is_recent = |at| now.saturating_duration_since(at) < KEEP_TIME;
    conn.role == ConnectionRole::Bulk || conn.last_bulk_at.is_some_and(is_recent)
}

/// Samples all connections; returns the lowest minimum RTT.
fn sample_all(conns: &mut [DriverConn]) -> Option<Duration> {
    let sample = |conn: &mut DriverConn| {
        conn.take_sample();
        conn.sample.min_rtt
    };
    conns.iter_mut().map(sample).filter(|min_rtt| !min_rtt.is_zero()).min()
}
