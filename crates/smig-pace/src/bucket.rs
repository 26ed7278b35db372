//! How much bulk a session may write now: a token bucket, and a bound of the outstanding bytes.
//!
//! A limit on the socket's rate (SO_MAX_PACING_RATE) would hold back interactive data behind bulk, and knows no bound in
//! flight. So bulk is held before the socket: the owner writes a piece of it, a few packets, whenever the bucket allows
//! one. Interactive data is sent at once and consumes from the bucket too, so that the two together send what the path
//! carries. No I/O, no clock, no timer of its own.

use std::time::Duration;

use smig_proto::Instant;

use super::bounds::Bounds;
use super::rate::{bytes_in, earned, time_of};
use super::sample::USUAL_MSS;

/// The time that a piece takes on the path. Also the resolution of the owner's timer.
const PIECE_TIME: Duration = Duration::from_millis(1);
/// Two packets are a piece where they take at most this time: half of the wake-ups and of the framing.
const MAX_PAIR_TIME: Duration = Duration::from_micros(2500);
/// The engine sends no bulk below 1 KiB.
const MIN_PIECE_BYTES: u64 = 1200;
/// The longest delay of the owner for which bulk makes up, when it waited for the bucket. What the path could have
/// carried meanwhile is sent at once, so it is queued for at most this time.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);
/// Longest interval between two checks of whether bytes in flight have arrived, while the outstanding ones are what bulk waits for. It
/// doubles up to this while none arrive.
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Bulk gets this part of the path's rate although the bound is reached: interactive data alone may fill it.
const OVER_BOUND_SHARE_DIVISOR: u64 = 4;
/// While interactive data is being paid off, bulk gets this part of what the bucket earns.
const DEFERRED_SHARE_DIVISOR: u64 = 4;

/// The allowance for bulk, in bytes.
#[derive(Debug)]
pub struct BulkBucket {
    bounds: Bounds,
    piece_bytes: u64,
    allowance: u64,
    /// Bytes of interactive data that bulk still makes room for, and of bulk beyond its allowance.
    debt: u64,
    max_deferral: Duration,
    refilled_at: Instant,
    /// Earned since then and less than a byte, as of [`earned`].
    fraction: u128,
    /// Bytes framed for all connections and not acknowledged: what the owner has measured, and framed since.
    outstanding: u64,
    /// What may be sent although the bound is reached, and what was earned of it and is less than a byte.
    over_bound_allowance: u64,
    over_bound_fraction: u128,
    check_interval: Duration,
    /// Bulk waits for the bucket, and nothing else.
    is_waiting: bool,
}

impl BulkBucket {
    /// Creates a bucket with one piece. Interactive data defers bulk for `max_deferral` at most; zero: not at all.
    pub fn new(now: Instant, bounds: Bounds, max_deferral: Duration) -> Self {
        let mut bucket = Self {
            bounds,
            piece_bytes: 0,
            allowance: 0,
            debt: 0,
            max_deferral,
            refilled_at: now,
            fraction: 0,
            outstanding: 0,
            over_bound_allowance: 0,
            over_bound_fraction: 0,
            check_interval: PIECE_TIME,
            is_waiting: false,
        };
        bucket.set_bounds(bounds, 0);
        bucket.allowance = bucket.piece_bytes;
        bucket
    }

    /// Adds what was earned up to now at the previous rate; from now on `bounds` apply, and a packet holds
    /// `packet_bytes`.
    pub fn refill(&mut self, now: Instant, bounds: Bounds, packet_bytes: u32) {
        let elapsed = now.saturating_duration_since(self.refilled_at);
        self.refilled_at = self.refilled_at.max(now);
        if self.bounds.rate != u64::MAX {
            let all = earned(self.bounds.rate, elapsed, &mut self.fraction);
            let paid = self.debt.min(all - all / DEFERRED_SHARE_DIVISOR);
            self.debt -= paid;
            self.allowance = self.allowance.saturating_add(all - paid).min(self.max_allowance());
            let over_bound = earned(self.over_bound_rate(), elapsed, &mut self.over_bound_fraction);
            self.over_bound_allowance =
                self.over_bound_allowance.saturating_add(over_bound).min(self.piece_bytes);
        }
        self.set_bounds(bounds, packet_bytes);
    }

    fn set_bounds(&mut self, bounds: Bounds, packet_bytes: u32) {
        let packet = u64::from(if packet_bytes == 0 { USUAL_MSS } else { packet_bytes });
        let rate = bounds.rate;
        self.bounds = bounds;
        // Whole packets, one at least: on a slow path, more would be a queue of its own.
        let packets = (bytes_in(rate, PIECE_TIME) + packet / 2) / packet;
        let is_pair_short = bytes_in(rate, MAX_PAIR_TIME) >= 2 * packet;
        let min_packets = MIN_PIECE_BYTES.div_ceil(packet).max(if is_pair_short { 2 } else { 1 });
        self.piece_bytes = packets.max(min_packets).saturating_mul(packet);
        // Without a limit, bulk makes room for nothing; and what was deferred at a higher rate is longer at this one.
        let max_debt = self.max_debt().max(self.piece_bytes.saturating_mul(2));
        self.debt = if rate == u64::MAX { 0 } else { self.debt.min(max_debt) };
    }

    /// Returns the largest allowance: the current piece, what the owner's delay has missed, and what must be written
    /// before it is due.
    fn max_allowance(&self) -> u64 {
        let missed = if self.is_waiting { bytes_in(self.bounds.rate, MAX_CATCH_UP) } else { 0 };
        self.piece_bytes.saturating_add(missed).saturating_add(self.bounds.write_ahead)
    }

    /// Sets the bytes that were written to all connections of the session and not acknowledged.
    pub fn set_outstanding(&mut self, bytes: u64) {
        let has_fallen = bytes < self.outstanding;
        self.check_interval =
            if has_fallen { PIECE_TIME } else { (self.check_interval * 2).min(MAX_CHECK_INTERVAL) };
        self.outstanding = bytes;
    }

    /// Returns the most interactive data that defers bulk.
    fn max_debt(&self) -> u64 {
        if self.bounds.rate == u64::MAX { 0 } else { bytes_in(self.bounds.rate, self.max_deferral) }
    }

    /// Records that interactive data was sent. What bulk has already earned stays: endless interactive data must not
    /// take all of it.
    pub fn on_interactive(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_add(bytes);
        let max_debt = self.max_debt();
        self.debt = self.debt.max(self.debt.saturating_add(bytes).min(max_debt));
    }

    /// Returns the size of the piece of bulk that may be sent now, in bytes with all framing; `None` if there is none
    /// yet.
    pub fn piece(&self) -> Option<u64> {
        (self.has_allowance() && !self.is_bound_reached()).then_some(self.piece_bytes)
    }

    /// Returns whether a piece could be sent but for the outstanding bytes. The owner measures them then
    /// ([`Self::set_outstanding`]): some may have arrived.
    pub fn is_outstanding_limited(&self) -> bool {
        self.has_allowance() && self.is_bound_reached()
    }

    /// A part of what the path carries: where only outstanding bytes are bounded, the rate is no measure of that.
    fn over_bound_rate(&self) -> u64 {
        self.bounds.rate.min(self.bounds.path_rate) / OVER_BOUND_SHARE_DIVISOR
    }

    fn has_allowance(&self) -> bool {
        self.allowance >= self.piece_bytes
    }

    fn is_bound_reached(&self) -> bool {
        self.excess() > 0 && self.over_bound_allowance < self.piece_bytes
    }

    /// Returns by how many bytes the next piece would exceed the bound of the outstanding bytes, to the nearest piece: half of one is
    /// as much too few as too many.
    fn excess(&self) -> u64 {
        let after = self.outstanding.saturating_add(self.piece_bytes - self.piece_bytes / 2);
        after.saturating_sub(self.bounds.max_outstanding.max(self.piece_bytes))
    }

    /// Records that bulk was sent. One piece may exceed the allowance slightly.
    pub fn consume(&mut self, bytes: u64) {
        let excess = bytes.saturating_sub(self.allowance);
        self.outstanding = self.outstanding.saturating_add(bytes);
        self.over_bound_allowance = self.over_bound_allowance.saturating_sub(bytes);
        self.allowance = self.allowance.saturating_sub(bytes);
        self.debt = self.debt.saturating_add(excess);
    }

    /// Records whether bulk waits for the bucket, and for nothing else. Only then does it make up for the owner's
    /// delays.
    pub fn set_waiting(&mut self, is_waiting: bool) {
        self.is_waiting = is_waiting;
    }

    /// Returns when the next piece may be sent, or when to measure the outstanding bytes again; `None` if bulk does not
    /// wait for that.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.is_waiting || self.bounds.rate == u64::MAX {
            return None;
        }
        if self.is_outstanding_limited() {
            let missing = self.piece_bytes - self.over_bound_allowance;
            let earned = time_of(missing, self.over_bound_rate());
            let arrived = time_of(self.excess(), self.bounds.rate);
            let check = arrived.clamp(self.check_interval, MAX_CHECK_INTERVAL);
            return Some(self.refilled_at + check.min(earned.max(PIECE_TIME)));
        }
        let missing = self.piece_bytes.saturating_sub(self.allowance);
        // The debt is paid from all but a part of what is earned, which bulk gets meanwhile.
        let earned_meanwhile = self.debt / (DEFERRED_SHARE_DIVISOR - 1);
        let bytes = match missing.checked_sub(earned_meanwhile) {
            Some(after_debt) => self.debt + earned_meanwhile + after_debt,
            None => missing * DEFERRED_SHARE_DIVISOR,
        };
        Some(self.refilled_at + time_of(bytes, self.bounds.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s: two packets are a piece.
    const RATE: u64 = 1_250_000;
    const PACKET: u32 = 1448;
    const PIECE: u64 = 2 * 1448;

    const fn at_rate(rate: u64) -> Bounds {
        Bounds { rate, ..Bounds::NONE }
    }

    fn at_us(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    fn ten_mbit_bucket() -> BulkBucket {
        let mut bucket = BulkBucket::new(at_us(0), at_rate(RATE), Duration::from_millis(25));
        bucket.refill(at_us(0), at_rate(RATE), PACKET);
        bucket
    }

    /// Sends bulk whenever the bucket allows it, with an owner that is `late` each time; returns the bytes.
    fn send_until(bucket: &mut BulkBucket, from: Instant, end: Instant, late: Duration) -> u64 {
        let (mut now, mut sent) = (from, 0);
        while now < end {
            bucket.refill(now, at_rate(RATE), PACKET);
            while let Some(piece) = bucket.piece() {
                bucket.consume(piece);
                sent += piece;
            }
            bucket.set_waiting(true);
            let next = bucket.deadline().unwrap();
            assert!(next > now, "a wake-up must be in the future");
            now = next + late;
        }
        sent
    }

    #[test]
    fn bulk_is_sent_piece_by_piece_at_the_rate() {
        let mut bucket = ten_mbit_bucket();
        assert_eq!(bucket.piece(), Some(PIECE));
        bucket.consume(PIECE);
        assert_eq!(bucket.piece(), None);
        assert_eq!(bucket.deadline(), None, "nothing waits");
        bucket.set_waiting(true);
        // 2896 bytes take 2316.8 microseconds.
        assert_eq!(bucket.deadline(), Some(Instant::from_nanos(2_316_800)));
        bucket.refill(Instant::from_nanos(2_316_799), at_rate(RATE), PACKET);
        assert_eq!(bucket.piece(), None);
        bucket.refill(Instant::from_nanos(2_316_800), at_rate(RATE), PACKET);
        assert_eq!(bucket.piece(), Some(PIECE));
    }

    #[test]
    fn a_piece_is_whole_packets_for_about_a_millisecond() {
        for (mbit, packets) in [(1, 1), (5, 1), (10, 2), (30, 3), (100, 9), (1000, 86)] {
            let rate = mbit * 125_000;
            let mut bucket = BulkBucket::new(at_us(0), at_rate(rate), Duration::ZERO);
            bucket.refill(at_us(0), at_rate(rate), PACKET);
            assert_eq!(bucket.piece_bytes, packets * u64::from(PACKET), "{mbit} Mbit/s");
        }
    }

    #[test]
    fn a_late_owner_makes_up_for_its_delay_up_to_a_bound() {
        let mut punctual = ten_mbit_bucket();
        let sent = send_until(&mut punctual, at_us(0), at_us(1_000_000), Duration::ZERO);
        assert!(sent.abs_diff(RATE) <= 2 * PIECE, "{sent}");
        let mut late = ten_mbit_bucket();
        let sent = send_until(&mut late, at_us(0), at_us(1_000_000), Duration::from_millis(15));
        assert!(sent.abs_diff(RATE) <= 15 * PIECE, "{sent}");
        let mut starved = ten_mbit_bucket();
        starved.consume(PIECE);
        starved.set_waiting(true);
        starved.refill(at_us(500_000), at_rate(RATE), PACKET);
        assert_eq!(starved.allowance, PIECE + 25_000, "20 ms");
    }

    #[test]
    fn time_in_which_bulk_did_not_wait_is_not_made_up_for() {
        let mut bucket = ten_mbit_bucket();
        bucket.consume(PIECE);
        bucket.refill(at_us(500_000), at_rate(RATE), PACKET);
        assert_eq!(bucket.allowance, PIECE);
    }

    #[test]
    fn bulk_makes_room_for_interactive_data() {
        let mut bucket = ten_mbit_bucket();
        bucket.on_interactive(10_000);
        assert_eq!(bucket.debt, 10_000);
        let sent = send_until(&mut bucket, at_us(0), at_us(100_000), Duration::ZERO);
        let total = sent + 10_000;
        assert!(total.abs_diff(RATE / 10) <= 2 * PIECE, "{total}");
        // Meanwhile a quarter is bulk, so that its acknowledgements keep arriving.
        let mut bucket = ten_mbit_bucket();
        bucket.on_interactive(20_000);
        let sent = send_until(&mut bucket, at_us(0), at_us(10_000), Duration::ZERO);
        assert!((PIECE..=PIECE + RATE / 100 / 4).contains(&sent), "{sent}");
    }

    #[test]
    fn endless_interactive_data_leaves_bulk_about_a_quarter() {
        let (mut bucket, mut sent) = (ten_mbit_bucket(), 0);
        for millis in 0..1000 {
            bucket.refill(at_us(millis * 1000), at_rate(RATE), PACKET);
            bucket.on_interactive(1250);
            while let Some(piece) = bucket.piece() {
                bucket.consume(piece);
                sent += piece;
            }
        }
        assert!((RATE / 5..=RATE / 4 + PIECE).contains(&sent), "{sent}");
    }

    #[test]
    fn much_interactive_data_defers_bulk_for_a_limited_time() {
        let mut bucket = ten_mbit_bucket();
        bucket.on_interactive(10_000_000);
        assert_eq!(bucket.debt, 31_250, "25 ms");
        bucket.set_waiting(true);
        let deadline = bucket.deadline().unwrap();
        assert!(deadline <= at_us(34_000), "{deadline:?}");
        let mut disabled = BulkBucket::new(at_us(0), at_rate(RATE), Duration::ZERO);
        disabled.on_interactive(10_000);
        assert_eq!(disabled.debt, 0);
        disabled.consume(2 * PIECE);
        disabled.on_interactive(0);
        assert_eq!(disabled.debt, PIECE, "bulk's own debt stays");
    }

    #[test]
    fn interactive_data_while_bulk_is_not_limited_defers_nothing_later() {
        let mut bucket = BulkBucket::new(at_us(0), Bounds::NONE, Duration::from_millis(25));
        bucket.on_interactive(5_000_000);
        bucket.refill(at_us(1000), at_rate(RATE), PACKET);
        assert_eq!(bucket.debt, 0);
        bucket.on_interactive(5_000_000);
        bucket.refill(at_us(1000), at_rate(RATE / 10), PACKET);
        assert_eq!(bucket.debt, 3125, "25 ms at the new rate");
        bucket.on_interactive(5_000_000);
        bucket.refill(at_us(1000), Bounds::NONE, PACKET);
        assert_eq!(bucket.debt, 0);
    }

    #[test]
    fn a_change_of_rate_applies_from_now_on() {
        let mut bucket = ten_mbit_bucket();
        bucket.consume(PIECE);
        bucket.set_waiting(true);
        bucket.refill(at_us(1000), at_rate(u64::MAX), PACKET);
        assert_eq!(bucket.allowance, 1250);
        assert_eq!(bucket.deadline(), None);
        bucket.refill(at_us(2000), at_rate(RATE / 2), PACKET);
        assert_eq!(bucket.allowance, 1250, "without a limit, nothing is saved");
        bucket.refill(at_us(3000), at_rate(RATE / 2), PACKET);
        assert_eq!(bucket.allowance, 1250 + 625);
    }

    #[test]
    fn bulk_waits_while_its_bound_is_outstanding() {
        let bounds = Bounds { max_outstanding: 3 * PIECE, ..at_rate(RATE) };
        let mut bucket = BulkBucket::new(at_us(0), bounds, Duration::from_millis(25));
        bucket.refill(at_us(0), bounds, PACKET);
        bucket.set_outstanding(2 * PIECE);
        bucket.refill(at_us(3000), bounds, PACKET);
        assert_eq!(bucket.piece(), Some(PIECE));
        bucket.consume(PIECE);
        bucket.refill(at_us(6000), bounds, PACKET);
        assert_eq!(bucket.piece(), None);
        assert!(bucket.is_outstanding_limited());
        bucket.set_waiting(true);
        bucket.set_outstanding(3 * PIECE - 1);
        assert!(bucket.is_outstanding_limited());
        assert_eq!(bucket.deadline(), Some(Instant::from_nanos(7_157_600)), "half a piece");
        bucket.set_outstanding(2 * PIECE + PIECE / 2);
        assert!(!bucket.is_outstanding_limited());
        assert_eq!(bucket.piece(), Some(PIECE));
        bucket.on_interactive(1);
        assert_eq!(bucket.piece(), None, "interactive data is in flight too");
        let tiny = Bounds { max_outstanding: 100, ..bounds };
        bucket.set_outstanding(0);
        bucket.refill(at_us(6000), tiny, PACKET);
        assert_eq!(bucket.piece(), Some(PIECE), "a bound below a piece allows one");
    }

    /// Sends bulk for a second whenever the bucket allows it, while nothing that is in flight arrives; returns the
    /// bytes, and how often the owner ran.
    fn send_while_full(bounds: Bounds, outstanding: u64) -> (u64, u32) {
        let mut bucket = BulkBucket::new(at_us(0), bounds, Duration::from_millis(25));
        let (mut now, mut sent, mut turns) = (at_us(0), 0, 0);
        bucket.set_outstanding(outstanding);
        while now < at_us(1_000_000) {
            turns += 1;
            bucket.refill(now, bounds, PACKET);
            loop {
                if bucket.is_outstanding_limited() {
                    bucket.set_outstanding(outstanding + sent);
                }
                let Some(piece) = bucket.piece() else { break };
                bucket.consume(piece);
                sent += piece;
            }
            bucket.set_waiting(true);
            now = bucket.deadline().unwrap();
        }
        (sent, turns)
    }

    #[test]
    fn interactive_data_that_fills_the_bound_leaves_bulk_a_quarter() {
        let bounds = Bounds { max_outstanding: 50_000, ..at_rate(RATE) };
        let (sent, _) = send_while_full(bounds, 200_000);
        assert!((RATE / 5..=RATE / 4 + 2 * PIECE).contains(&sent), "{sent}");
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_causes_few_wake_ups() {
        // At the lowest rate of a path of 10 Mbit/s: a piece, one packet, is earned each 37 ms.
        let bounds = Bounds { max_outstanding: 50_000, ..at_rate(RATE / 8) };
        let (_, turns) = send_while_full(bounds, 200_000);
        assert!(turns <= 60, "{turns}");
    }

    #[test]
    fn a_starved_owner_writes_ahead() {
        let bounds = Bounds { write_ahead: 10 * PIECE, ..at_rate(RATE) };
        let mut bucket = BulkBucket::new(at_us(0), bounds, Duration::ZERO);
        bucket.refill(at_us(500_000), bounds, PACKET);
        assert_eq!(bucket.allowance, 11 * PIECE);
    }

    /// A bottleneck of [`RATE`] with a queue.
    struct Link {
        queued: u64,
        now: Instant,
        delivered: u64,
    }

    impl Link {
        fn advance(&mut self, now: Instant) {
            let bytes = bytes_in(RATE, now.saturating_duration_since(self.now));
            let sent = self.queued.min(bytes);
            (self.queued, self.delivered, self.now) =
                (self.queued - sent, self.delivered + sent, now);
        }
    }

    #[test]
    fn small_responses_find_a_short_queue_and_the_path_stays_full() {
        // A pacer slightly below the path's rate, and timers with a resolution of 1 ms.
        let cap = RATE / 100 * 99;
        let mut bucket = BulkBucket::new(at_us(0), at_rate(cap), Duration::from_millis(25));
        let mut link = Link { queued: 0, now: at_us(0), delivered: 0 };
        let (mut wake, mut worst_queue) = (0, 0);
        for millis in 0..20_000 {
            let now = at_us(millis * 1000);
            let responds = millis % 500 == 250;
            if !responds && millis < wake {
                continue;
            }
            link.advance(now);
            bucket.refill(now, at_rate(cap), PACKET);
            if responds {
                worst_queue = worst_queue.max(link.queued);
                link.queued += 10_000;
                bucket.on_interactive(10_000);
            }
            while let Some(piece) = bucket.piece() {
                bucket.consume(piece);
                link.queued += piece;
            }
            bucket.set_waiting(true);
            wake = bucket.deadline().unwrap().as_nanos().div_ceil(1_000_000);
        }
        assert!(worst_queue <= 2 * PIECE, "{worst_queue} bytes before a response");
        assert!(link.delivered > RATE * 20 / 100 * 98, "{} bytes", link.delivered);
    }

    #[test]
    fn what_goes_beyond_the_bound_is_a_quarter_of_the_path_however_often_it_is_earned() {
        // Only outstanding bytes are bounded, and they are reached.
        let bounds = Bounds {
            rate: RATE * 10,
            max_outstanding: 20_000,
            write_ahead: 0,
            path_rate: RATE / 10,
        };
        for step_us in [20, 1_000] {
            let mut bucket = BulkBucket::new(at_us(0), bounds, Duration::ZERO);
            let mut sent = 0;
            for now in (0..4_000_000).step_by(step_us) {
                bucket.refill(at_us(now), bounds, PACKET);
                bucket.set_outstanding(30_000);
                while let Some(piece) = bucket.piece() {
                    bucket.consume(piece);
                    sent += piece;
                }
            }
            assert!((110_000..140_000).contains(&sent), "each {step_us} us: {sent}");
        }
    }
}
