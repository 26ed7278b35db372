//! The pacing of a session: its path is measured, and its bulk released piece by piece on connections that take turns.
//!
//! The owner sends interactive data by itself, before bulk, and reports it. It runs [`SessionPacer`] whenever it sends
//! something, and by [`SessionPacer::deadline`]; an acknowledgement does not wake it.

use std::time::Duration;

use smig_proto::Instant;
use smig_proto::policy::Interference;

use super::bounds::Bounds;
use super::bucket::BulkBucket;
use super::conn::{KEEP_TIME, PacedConns};
use super::pacer::{MIN_PACED_RTT, Pacer};
use super::recurring_loss::RecurringLoss;
use super::sample::{ConnSample, RateSample};

/// How long it is known, without bulk, that a path loses packets again and again.
const MAX_LOSS_AGE: Duration = Duration::from_secs(30);

/// Paces all bulk of one session.
#[derive(Debug)]
pub struct SessionPacer {
    /// `None` before the first bulk, when there has been none for some time, and where the path's round-trip time is short.
    pacer: Option<Box<Pacer>>,
    bucket: BulkBucket,
    /// What the last pacer knew of recurring losses, and when it ended, for the next one: the path is the same.
    last_loss: Option<(Instant, RecurringLoss)>,
    /// When any connection last had bulk to send, and whether one still had some.
    last_bulk_at: Option<Instant>,
    has_bulk: bool,
    max_deferral: Duration,
    /// Bytes acknowledged on all connections, and packets retransmitted on those whose peers acknowledge.
    acknowledged: u64,
    retransmitted: u64,
    /// Where the search for a connection with bulk begins: they take turns.
    next_turn: usize,
}

impl SessionPacer {
    /// Creates the pacing of a session without bulk. Interactive data defers bulk for `max_deferral` at most; zero: not
    /// at all.
    pub fn new(max_deferral: Duration) -> Self {
        Self {
            pacer: None,
            bucket: BulkBucket::new(Instant::from_nanos(0), Bounds::NONE, max_deferral),
            last_loss: None,
            last_bulk_at: None,
            has_bulk: false,
            max_deferral,
            acknowledged: 0,
            retransmitted: 0,
            next_turn: 0,
        }
    }

    /// Returns what measures the path; `None` while bulk is not paced.
    pub fn pacer(&self) -> Option<&Pacer> {
        self.pacer.as_deref()
    }

    /// Returns what bounds all bulk now.
    pub fn bounds(&self) -> Bounds {
        self.pacer().map_or(Bounds::NONE, Pacer::bounds)
    }

    /// Returns whether bulk must be released piece by piece.
    pub fn is_limiting(&self) -> bool {
        self.bounds().rate != u64::MAX
    }

    /// Returns how bulk affects the other data of its connection, while it is paced or will be.
    pub fn interference(&self) -> Interference {
        self.pacer().map_or(Interference::Little, Pacer::interference)
    }

    /// Returns the bucket, for the owner that sends some bulk beside interactive data.
    pub const fn bucket(&mut self) -> &mut BulkBucket {
        &mut self.bucket
    }

    /// Returns whether bulk that begins now must be announced by [`Self::start`].
    pub fn needs_start(&self, now: Instant) -> bool {
        // A connection that a stream has migrated to keeps the pacer, but not what it knew before a pause.
        let is_long_ago = |at| now.saturating_duration_since(at) >= KEEP_TIME;
        self.pacer.is_none() || (!self.has_bulk && self.last_bulk_at.is_some_and(is_long_ago))
    }

    /// Ends pacing, and keeps what is known of losses.
    fn end(&mut self) {
        if let (Some(pacer), Some(at)) = (self.pacer.take(), self.last_bulk_at) {
            self.last_loss = Some((at, pacer.recurring_loss()));
        }
    }

    /// Starts pacing, for a session that has bulk: if the path's round-trip time is long enough, and unless it has
    /// started. Measures every connection.
    pub fn start(&mut self, now: Instant, conns: &mut impl PacedConns) {
        if !self.needs_start(now) {
            return;
        }
        self.end();
        self.last_bulk_at = Some(now);
        if let Some(min_rtt) = measure_all(now, conns).filter(|&rtt| rtt >= MIN_PACED_RTT) {
            // A single loss is forgotten: each pacer's startup may overrun a queue once.
            let known_loss = self.last_loss.take().filter(|&(at, loss)| {
                loss.is_recurring() && now.saturating_duration_since(at) < MAX_LOSS_AGE
            });
            let loss = known_loss.map(|(_, loss)| loss).unwrap_or_default();
            let pacer = Pacer::new(now, min_rtt, confirmed_rate(conns)).with_known_loss(loss);
            self.bucket = BulkBucket::new(now, pacer.bounds(), self.max_deferral);
            self.pacer = Some(Box::new(pacer));
        }
    }

    /// Updates the bounds, after `interactive_bytes` of other data were sent; measures the path if that is due. Ends
    /// pacing if there has been no bulk for some time. Returns the bounds that each connection must now keep; `None`
    /// while bulk is not paced.
    pub fn update(
        &mut self,
        now: Instant,
        conns: &mut impl PacedConns,
        interactive_bytes: u64,
    ) -> Option<Bounds> {
        let deadline = self.deadline();
        let pacer = self.pacer.as_mut()?;
        // Samples alone do not show it: a process that runs each 6 ms is 1 ms late for one each 5 ms.
        pacer.on_late(deadline.map_or(Duration::ZERO, |at| now.saturating_duration_since(at)));
        if !(0..conns.count()).any(|index| conns.conn(index).carries_bulk(now)) {
            self.end();
            return Some(Bounds::NONE);
        }
        self.has_bulk = (0..conns.count()).any(|index| conns.conn(index).has_bulk());
        if self.has_bulk {
            self.last_bulk_at = Some(now);
        }
        let is_due = self.pacer().is_some_and(|pacer| pacer.is_due(now));
        if is_due {
            self.sample(now, conns);
        }
        let bounds = self.bounds();
        let packet_bytes = (0..conns.count()).map(|index| conns.conn(index).sample().mss).max();
        self.bucket.refill(now, bounds, packet_bytes.unwrap_or(0));
        self.bucket.on_interactive(interactive_bytes);
        if is_due {
            self.bucket.set_outstanding(outstanding(now, conns));
        }
        self.bucket.set_waiting(false);
        Some(bounds)
    }

    /// Measures every connection, and passes the result to the pacer.
    fn sample(&mut self, now: Instant, conns: &mut impl PacedConns) {
        let min_rtt = measure_all(now, conns);
        let (mut all_in_flight, mut bulk_in_flight) = (0, 0);
        let mut fastest: Option<ConnSample> = None;
        for index in 0..conns.count() {
            let conn = conns.conn(index);
            self.acknowledged += conn.take_acknowledged();
            let sample = *conn.sample();
            let retransmitted = conn.take_retransmitted();
            if conn.is_undelivered(now) {
                // Its probes say nothing of the path that the others have.
                continue;
            }
            self.retransmitted += retransmitted;
            all_in_flight += sample.in_flight;
            if !conn.carries_bulk(now) {
                continue;
            }
            bulk_in_flight += sample.in_flight;
            let is_measured = !sample.rtt.is_zero() && sample.mss > 0;
            let is_sending = sample.in_flight > 0 || conn.has_bulk();
            if is_measured && is_sending && fastest.is_none_or(|fastest| sample.rtt < fastest.rtt) {
                fastest = Some(sample);
            }
        }
        let Some(pacer) = &mut self.pacer else { return };
        let (Some(min_rtt), Some(fastest)) = (min_rtt, fastest) else { return pacer.on_idle(now) };
        pacer.on_sample(
            now,
            RateSample {
                acknowledged: self.acknowledged,
                sent: self.acknowledged + all_in_flight,
                min_rtt,
                retransmitted: self.retransmitted,
                in_flight: bulk_in_flight,
                ..fastest.into()
            },
        );
    }

    /// Writes the bulk that is allowed now, after [`Self::update`]: piece by piece, the connections in turns.
    pub fn release(&mut self, now: Instant, conns: &mut impl PacedConns) {
        let (count, mut fruitless) = (conns.count(), 0);
        if !can_write(conns) {
            return;
        }
        while fruitless < count
            && let Some(piece) = self.next_piece(now, conns)
        {
            let index = self.next_turn % count;
            self.next_turn = index + 1;
            let written = if conns.can_write(index) { conns.write(index, piece) } else { 0 };
            self.bucket.consume(written);
            fruitless = if written > 0 { 0 } else { fruitless + 1 };
        }
        // Where nothing could be written, bulk does not wait for the bucket.
        self.bucket.set_waiting(fruitless < count && can_write(conns));
    }

    /// Returns the size of the piece that may be written now. Measures the outstanding bytes if they are what
    /// prevents one.
    fn next_piece(&mut self, now: Instant, conns: &mut impl PacedConns) -> Option<u64> {
        if self.bucket.is_outstanding_limited() {
            measure_all(now, conns);
            self.bucket.set_outstanding(outstanding(now, conns));
        }
        self.bucket.piece()
    }

    /// Returns when the owner must run [`Self::update`] and [`Self::release`] again at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        [self.pacer()?.deadline(), self.bucket.deadline()].into_iter().flatten().min()
    }
}

/// Returns whether any connection can write bulk.
fn can_write(conns: &impl PacedConns) -> bool {
    (0..conns.count()).any(|index| conns.can_write(index))
}

/// Measures all connections; returns the lowest minimum round-trip time.
fn measure_all(now: Instant, conns: &mut impl PacedConns) -> Option<Duration> {
    let mut lowest: Option<Duration> = None;
    for index in 0..conns.count() {
        let sample = conns.measure(index);
        conns.conn(index).on_sample(now, sample);
        if !sample.min_rtt.is_zero() && lowest.is_none_or(|lowest| sample.min_rtt < lowest) {
            lowest = Some(sample.min_rtt);
        }
    }
    lowest
}

/// Returns the highest confirmed rate of a connection at the last measurement, in bytes per second.
fn confirmed_rate(conns: &mut impl PacedConns) -> f64 {
    (0..conns.count()).map(|index| conns.conn(index).sample().confirmed_rate()).fold(0.0, f64::max)
}

/// Returns the bytes of all connections that were framed and not acknowledged at the last measurement. A connection
/// whose peer has disappeared would hold up the others' bulk.
fn outstanding(now: Instant, conns: &mut impl PacedConns) -> u64 {
    let mut total = 0;
    for index in 0..conns.count() {
        let conn = conns.conn(index);
        total += if conn.is_undelivered(now) { 0 } else { conn.sample().outstanding };
    }
    total
}

#[cfg(test)]
mod tests;
