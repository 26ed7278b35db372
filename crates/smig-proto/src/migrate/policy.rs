//! When to migrate a stream: pure functions from the driver's observations to a decision.
//!
//! With [`MigrationPolicy::unknown_length_after`] 0, a body of unknown length moves at once, as in the
//! paper's MigSW; with t, it moves after t bytes, as in the paper's MigSP (its sections 4.4 and 5).

use core::fmt;
use core::time::Duration;

use crate::bulk::BulkHint;
use crate::priority::Priority;

/// The thresholds of a server or a client. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationPolicy {
    /// A body of known length stays if less than this is left to transfer.
    pub min_size: u64,
    /// A stream whose urgency is higher than the default stays below this, in bytes left or, if the length is
    /// unknown, in bytes so far: others may wait for it. Some clients request large files with a high urgency too.
    pub urgent_min_size: u64,
    /// Minimum number of other streams that are open, or were within the last second; with fewer, a
    /// migration has no benefit.
    pub min_concurrent: usize,
    /// A body stays if the rest of it takes less than this at the reported delivery rate: it could
    /// not delay the others for longer.
    pub min_transfer_time: Duration,
    /// A body of known length stays if the rest of it takes less than this many times as long as slow start on a cold
    /// connection would delay it ([`PathState`]): with 200, it loses at most 0.5 %. 0 is no limit. Only where bulk is
    /// paced and hardly any packet is lost: elsewhere the others would wait for it.
    pub min_cold_start_ratio: usize,
    /// A body of unknown length moves after this number of bytes (the paper's t).
    pub unknown_length_after: u64,
    /// Like [`min_concurrent`](Self::min_concurrent), for tunnels. The default is 0: the end of a
    /// tunnel cannot be predicted, and streams that start later would queue behind its bytes on the
    /// path.
    pub tunnel_min_concurrent: usize,
    /// A tunnel moves after it has carried this number of bytes...
    pub tunnel_min_bytes: u64,
    /// ...or as many as the path transfers in this time, if that is less, but at least
    /// [`min_size`](Self::min_size)...
    pub tunnel_min_path_time: Duration,
    /// ...and has at least this age.
    pub tunnel_min_age: Duration,
}

impl Default for MigrationPolicy {
    fn default() -> Self {
        Self {
            min_size: 256 << 10,
            urgent_min_size: 4 << 20,
            min_concurrent: 1,
            min_transfer_time: Duration::from_millis(20),
            min_cold_start_ratio: 200,
            unknown_length_after: 100 << 10,
            tunnel_min_concurrent: 0,
            tunnel_min_bytes: 1 << 20,
            tunnel_min_path_time: Duration::from_secs(5),
            tunnel_min_age: Duration::from_secs(1),
        }
    }
}

/// Kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A body with a known length.
    Sized(u64),
    /// A body of unknown length.
    Unsized,
    /// Both directions of a CONNECT tunnel.
    Tunnel,
}

/// An explicit instruction of the application, a route's rule or a response header field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MigrationHint {
    /// None: the policy decides.
    #[default]
    None,
    /// Move as soon as possible.
    Migrate,
    /// Never move.
    Stay,
}

/// What should migrate is bulk. What must stay may be bulk too.
impl From<MigrationHint> for BulkHint {
    fn from(hint: MigrationHint) -> Self {
        match hint {
            MigrationHint::Migrate => Self::Bulk,
            MigrationHint::None | MigrationHint::Stay => Self::None,
        }
    }
}

/// The path, as the connection of a stream and the one to which it would migrate have measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathState {
    /// Its round-trip time without a queue.
    pub rtt: Duration,
    /// Congestion window of the stream's connection, in bytes.
    pub window: u64,
    /// That of the other one, which is cold if it has carried nothing, or nothing recently.
    pub target_window: u64,
    /// Whether what the stream sends is paced where it is.
    pub is_paced: bool,
    /// Whether packets are lost there again and again: then the other streams wait behind those of a large transfer.
    pub is_lossy: bool,
}

impl PathState {
    /// Returns the time by which slow start on the other connection delays what the stream's connection would carry at
    /// `rate` bytes per second.
    ///
    /// A window that doubles in each round trip needs some of them, and delivers less meanwhile. Where both
    /// windows are short of the path's bandwidth-delay product, both grow.
    #[must_use]
    pub fn cold_start_delay(&self, rate: u64) -> Duration {
        let bandwidth_delay = u128::from(rate) * self.rtt.as_micros() / 1_000_000;
        let window = bandwidth_delay.min(self.window.into()) as f64;
        let target = (self.target_window as f64).max(1.0);
        if target >= window {
            return Duration::ZERO;
        }
        let round_trips = (window / target).log2() - (1.0 - target / window);
        self.rtt.mul_f64(round_trips.max(0.0))
    }

    /// Returns whether a large transfer hardly delays the others of its connection.
    const fn spares_others(&self) -> bool {
        self.is_paced && !self.is_lossy
    }
}

/// Observations of a stream and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput {
    /// Kind of transfer.
    pub transfer: Transfer,
    /// Bytes of body so far: of a body of known length those of its direction, otherwise sent and received.
    pub transferred_bytes: u64,
    /// Time since the stream was opened.
    pub age: Duration,
    /// The stream's priority.
    pub priority: Priority,
    /// Number of other streams on the connection that are open, or were within the last second.
    pub other_streams: usize,
    /// Delivery rate that TCP reports, in bytes per second, if available.
    pub delivery_bytes_per_s: Option<u64>,
    /// The path, if it was measured.
    pub path: Option<PathState>,
    /// An explicit instruction.
    pub hint: MigrationHint,
}

/// The decision for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The stream stays; decide again when more has been transferred.
    Stay(StayReason),
    /// The stream moves.
    Migrate(MigrationReason),
}

/// The reason why a stream stays. [`StayReason::as_str`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StayReason {
    /// [`MigrationHint::Stay`].
    Hint,
    /// Fewer other streams than [`MigrationPolicy::min_concurrent_for`].
    NoConcurrency,
    /// Its urgency is higher than the default, and it has less than [`MigrationPolicy::urgent_min_size`].
    HighUrgency,
    /// Less than [`MigrationPolicy::min_size`] is left.
    FewBytesLeft,
    /// At the reported rate it completes within [`MigrationPolicy::min_transfer_time`].
    ShortTransfer,
    /// Slow start on the other connection would delay it by more than
    /// [`MigrationPolicy::min_cold_start_ratio`] allows.
    ColdConnection,
    /// Fewer bytes so far than [`MigrationPolicy::unknown_length_after`], or than a tunnel needs.
    FewBytesSoFar,
    /// Younger than [`MigrationPolicy::tunnel_min_age`].
    YoungTunnel,
}

/// The reason why a stream moves. [`MigrationReason::as_str`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationReason {
    /// [`MigrationHint::Migrate`].
    Hint,
    /// A large part is left.
    Size,
    /// Many bytes were transferred, and the length is unknown.
    UnknownLength,
    /// The tunnel has carried enough bytes and is old enough.
    Tunnel,
}

impl StayReason {
    /// Returns the text for logs and users, after "stays: ".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hint => "as its hint requests",
            Self::NoConcurrency => "too few concurrent streams",
            Self::HighUrgency => "its urgency is high, and it is not very large",
            Self::FewBytesLeft => "few bytes are left",
            Self::ShortTransfer => "the rest takes too little time to matter",
            Self::ColdConnection => "slow start on a cold connection would delay it too much",
            Self::FewBytesSoFar => "few bytes so far",
            Self::YoungTunnel => "the tunnel has just been opened",
        }
    }
}

impl MigrationReason {
    /// Returns the text for logs and users, after "moves: ".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hint => "as its hint requests",
            Self::Size => "many bytes are left",
            Self::UnknownLength => "many bytes so far, length unknown",
            Self::Tunnel => "a tunnel with many bytes",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stay(reason) => write!(f, "stays: {}", reason.as_str()),
            Self::Migrate(reason) => write!(f, "moves: {}", reason.as_str()),
        }
    }
}

impl MigrationPolicy {
    /// Returns the decision for a stream.
    #[must_use]
    pub fn decide(&self, input: &PolicyInput) -> Decision {
        match input.hint {
            MigrationHint::Stay => return Decision::Stay(StayReason::Hint),
            MigrationHint::Migrate => return Decision::Migrate(MigrationReason::Hint),
            MigrationHint::None => {}
        }
        if input.other_streams < self.min_concurrent_for(input.transfer) {
            return Decision::Stay(StayReason::NoConcurrency);
        }
        let bytes = match input.transfer {
            Transfer::Sized(size) => size.saturating_sub(input.transferred_bytes),
            Transfer::Unsized | Transfer::Tunnel => input.transferred_bytes,
        };
        let is_urgent = input.priority.urgency() < Priority::default().urgency();
        if is_urgent && bytes < self.urgent_min_size {
            return Decision::Stay(StayReason::HighUrgency);
        }
        match input.transfer {
            Transfer::Sized(_) if bytes < self.min_size => Decision::Stay(StayReason::FewBytesLeft),
            Transfer::Sized(_) if !self.would_block_others(bytes, input.delivery_bytes_per_s) => {
                Decision::Stay(StayReason::ShortTransfer)
            }
            Transfer::Sized(_) if self.is_delayed_by_cold_start(bytes, input) => {
                Decision::Stay(StayReason::ColdConnection)
            }
            Transfer::Sized(_) => Decision::Migrate(MigrationReason::Size),
            Transfer::Unsized if bytes < self.unknown_length_after => {
                Decision::Stay(StayReason::FewBytesSoFar)
            }
            Transfer::Unsized => Decision::Migrate(MigrationReason::UnknownLength),
            Transfer::Tunnel if bytes < self.tunnel_threshold(input.delivery_bytes_per_s) => {
                Decision::Stay(StayReason::FewBytesSoFar)
            }
            Transfer::Tunnel if input.age < self.tunnel_min_age => {
                Decision::Stay(StayReason::YoungTunnel)
            }
            Transfer::Tunnel => Decision::Migrate(MigrationReason::Tunnel),
        }
    }

    /// Returns the number of other streams that must exist for such a transfer to move.
    #[must_use]
    pub const fn min_concurrent_for(&self, transfer: Transfer) -> usize {
        match transfer {
            Transfer::Tunnel => self.tunnel_min_concurrent,
            Transfer::Sized(_) | Transfer::Unsized => self.min_concurrent,
        }
    }

    /// Returns the bytes that a tunnel must have carried on a path with this rate.
    fn tunnel_threshold(&self, rate: Option<u64>) -> u64 {
        let Some(rate) = rate else { return self.tunnel_min_bytes };
        let bytes = u128::from(rate) * self.tunnel_min_path_time.as_millis() / 1000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        bytes.max(self.min_size).min(self.tunnel_min_bytes)
    }

    /// Returns whether a transfer would block others for long: the bytes divided by the rate are
    /// the time that the others would wait.
    fn would_block_others(&self, bytes: u64, rate: Option<u64>) -> bool {
        let Some(rate) = rate.filter(|&rate| rate > 0) else { return true };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        nanos >= self.min_transfer_time.as_nanos()
    }

    /// Returns whether slow start on the other connection would delay the rest of a body by too much. Not where its
    /// connection's rate is unknown: that one is cold, too.
    fn is_delayed_by_cold_start(&self, bytes: u64, input: &PolicyInput) -> bool {
        let rate = input.delivery_bytes_per_s.filter(|&rate| rate > 0);
        let path = input.path.filter(PathState::spares_others);
        let (Some(rate), Some(path)) = (rate, path) else { return false };
        let rest_nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let min_nanos = path.cold_start_delay(rate).as_nanos() * self.min_cold_start_ratio as u128;
        rest_nanos < min_nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE_BODY: PolicyInput = PolicyInput {
        transfer: Transfer::Sized(50 << 20),
        transferred_bytes: 0,
        age: Duration::ZERO,
        priority: Priority::sequential(3),
        other_streams: 1,
        delivery_bytes_per_s: Some(1_250_000),
        path: None,
        hint: MigrationHint::None,
    };

    const INITIAL_WINDOW: u64 = 10 * 1448;

    /// A warm connection, and a cold one to migrate to.
    const WARM: PathState = PathState {
        rtt: Duration::from_millis(50),
        window: 200_000,
        target_window: INITIAL_WINDOW,
        is_paced: true,
        is_lossy: false,
    };

    const MIGRATE_FOR_SIZE: Decision = Decision::Migrate(MigrationReason::Size);

    #[test]
    fn a_large_body_beside_other_streams_moves() {
        let policy = MigrationPolicy::default();
        assert_eq!(policy.decide(&LARGE_BODY), MIGRATE_FOR_SIZE);
        let alone = PolicyInput { other_streams: 0, ..LARGE_BODY };
        assert_eq!(policy.decide(&alone), Decision::Stay(StayReason::NoConcurrency));
        let small = PolicyInput { transfer: Transfer::Sized(10 << 10), ..LARGE_BODY };
        assert_eq!(policy.decide(&small), Decision::Stay(StayReason::FewBytesLeft));
        let nearly_done = PolicyInput { transferred_bytes: (50 << 20) - 1000, ..LARGE_BODY };
        assert_eq!(policy.decide(&nearly_done), Decision::Stay(StayReason::FewBytesLeft));
    }

    #[test]
    fn a_short_transfer_on_a_fast_path_stays() {
        let policy = MigrationPolicy::default();
        let one_mib_body = PolicyInput { transfer: Transfer::Sized(1 << 20), ..LARGE_BODY };
        let fast = PolicyInput { delivery_bytes_per_s: Some(1_000_000_000), ..one_mib_body };
        assert_eq!(policy.decide(&fast), Decision::Stay(StayReason::ShortTransfer));
        assert_eq!(policy.decide(&one_mib_body), MIGRATE_FOR_SIZE);
        let unknown = PolicyInput { delivery_bytes_per_s: None, ..one_mib_body };
        assert_eq!(policy.decide(&unknown), MIGRATE_FOR_SIZE);
    }

    #[test]
    fn a_body_of_unknown_length_moves_after_t() {
        let policy = MigrationPolicy::default();
        let early =
            PolicyInput { transfer: Transfer::Unsized, transferred_bytes: 99 << 10, ..LARGE_BODY };
        assert_eq!(policy.decide(&early), Decision::Stay(StayReason::FewBytesSoFar));
        let late = PolicyInput { transferred_bytes: 100 << 10, ..early };
        assert_eq!(policy.decide(&late), Decision::Migrate(MigrationReason::UnknownLength));
    }

    #[test]
    fn tunnels_move_by_bytes_and_age() {
        let policy = MigrationPolicy::default();
        let young_tunnel =
            PolicyInput { transfer: Transfer::Tunnel, transferred_bytes: 2 << 20, ..LARGE_BODY };
        assert_eq!(policy.decide(&young_tunnel), Decision::Stay(StayReason::YoungTunnel));
        let few_bytes =
            PolicyInput { transferred_bytes: 0, age: Duration::from_secs(2), ..young_tunnel };
        assert_eq!(policy.decide(&few_bytes), Decision::Stay(StayReason::FewBytesSoFar));
        let old_tunnel = PolicyInput { age: Duration::from_secs(2), ..young_tunnel };
        assert_eq!(policy.decide(&old_tunnel), Decision::Migrate(MigrationReason::Tunnel));
        // Streams that start later would queue behind the tunnel's bytes.
        assert_eq!(
            policy.decide(&PolicyInput { other_streams: 0, ..old_tunnel }),
            policy.decide(&old_tunnel)
        );
        let shared = MigrationPolicy { tunnel_min_concurrent: 1, ..policy };
        let alone = PolicyInput { other_streams: 0, ..old_tunnel };
        assert_eq!(shared.decide(&alone), Decision::Stay(StayReason::NoConcurrency));
    }

    #[test]
    fn on_a_slow_path_a_tunnel_moves_sooner() {
        let policy = MigrationPolicy::default();
        let tunnel = |transferred, rate| PolicyInput {
            transfer: Transfer::Tunnel,
            age: Duration::from_secs(4),
            transferred_bytes: transferred,
            delivery_bytes_per_s: rate,
            ..LARGE_BODY
        };
        let moves = |transferred, rate| {
            policy.decide(&tunnel(transferred, rate)) == Decision::Migrate(MigrationReason::Tunnel)
        };
        // 780 kbit/s: 1 MiB would take 11 s.
        assert!(!moves(487_499, Some(97_500)) && moves(487_500, Some(97_500)));
        assert!(!moves((1 << 20) - 1, Some(1_250_000)) && moves(1 << 20, Some(1_250_000)));
        assert!(!moves((1 << 20) - 1, None));
        // After few bytes, the reported rate is not meaningful.
        assert!(!moves((256 << 10) - 1, Some(100)) && moves(256 << 10, Some(100)));
    }

    #[test]
    fn hints_decide_first() {
        let policy = MigrationPolicy::default();
        let stays = PolicyInput { hint: MigrationHint::Stay, ..LARGE_BODY };
        assert_eq!(policy.decide(&stays), Decision::Stay(StayReason::Hint));
        let alone = PolicyInput { hint: MigrationHint::Migrate, other_streams: 0, ..LARGE_BODY };
        assert_eq!(policy.decide(&alone), Decision::Migrate(MigrationReason::Hint));
    }

    #[test]
    fn an_urgent_stream_moves_only_if_it_is_very_large() {
        let policy = MigrationPolicy::default();
        let urgent = PolicyInput { priority: Priority::sequential(1), ..LARGE_BODY };
        assert_eq!(policy.decide(&urgent), MIGRATE_FOR_SIZE);
        let script = PolicyInput { transfer: Transfer::Sized((4 << 20) - 1), ..urgent };
        assert_eq!(policy.decide(&script), Decision::Stay(StayReason::HighUrgency));
        let unsized_body =
            PolicyInput { transfer: Transfer::Unsized, transferred_bytes: 1 << 20, ..urgent };
        assert_eq!(policy.decide(&unsized_body), Decision::Stay(StayReason::HighUrgency));
    }

    #[test]
    fn a_cold_start_delays_by_the_round_trips_of_slow_start() {
        // `cargo run --release -p smig-tcp-sim --example moves`: 80, 655, 2915, 112, 74 and 454 ms with cubic.
        for (mbit, rtt_ms, delay_ms) in [
            (10, 50, 67),
            (10, 200, 633),
            (10, 600, 2828),
            (30, 40, 98),
            (100, 20, 63),
            (100, 80, 409),
        ] {
            let rtt = Duration::from_millis(rtt_ms);
            let path = PathState { rtt, window: u64::MAX, ..WARM };
            let delay = path.cold_start_delay(mbit * 125_000).as_millis();
            assert_eq!(delay, delay_ms, "{mbit} Mbit/s, {rtt_ms} ms");
        }
        // Two thirds of the path fit in the initial window.
        assert_eq!(WARM.cold_start_delay(250_000), Duration::ZERO);
        assert_eq!(WARM.cold_start_delay(0), Duration::ZERO);
        let both_cold = PathState { window: INITIAL_WINDOW, ..WARM };
        assert_eq!(both_cold.cold_start_delay(12_500_000), Duration::ZERO);
        let warm_target = PathState { target_window: 62_500, ..WARM };
        assert_eq!(warm_target.cold_start_delay(1_250_000), Duration::ZERO);
        let no_window = PathState { target_window: 0, ..WARM };
        assert!(no_window.cold_start_delay(1_250_000) < Duration::from_secs(1));
    }

    #[test]
    fn a_body_stays_if_a_cold_connection_would_delay_it_too_much() {
        let policy = MigrationPolicy::default();
        let stays = Decision::Stay(StayReason::ColdConnection);
        // 67 ms of 42 s, and of 8.4 s.
        let warm = PolicyInput { path: Some(WARM), ..LARGE_BODY };
        assert_eq!(policy.decide(&warm), MIGRATE_FOR_SIZE);
        let shorter = PolicyInput { transferred_bytes: 40 << 20, ..warm };
        assert_eq!(policy.decide(&shorter), stays);
        // On a fast and long path, 50 MB stay too.
        let fast = PathState { rtt: Duration::from_millis(80), window: 1 << 20, ..WARM };
        let fast =
            PolicyInput { delivery_bytes_per_s: Some(12_500_000), path: Some(fast), ..LARGE_BODY };
        assert_eq!(policy.decide(&fast), stays);
        let no_limit = MigrationPolicy { min_cold_start_ratio: 0, ..policy };
        assert_eq!(no_limit.decide(&fast), MIGRATE_FOR_SIZE);
    }

    #[test]
    fn a_cold_connection_matters_only_where_staying_spares_the_others() {
        let policy = MigrationPolicy::default();
        let decide = |path| {
            let rest = PolicyInput { transferred_bytes: 45 << 20, path: Some(path), ..LARGE_BODY };
            policy.decide(&rest)
        };
        assert_eq!(decide(WARM), Decision::Stay(StayReason::ColdConnection));
        assert_eq!(decide(PathState { is_paced: false, ..WARM }), MIGRATE_FOR_SIZE);
        assert_eq!(decide(PathState { is_lossy: true, ..WARM }), MIGRATE_FOR_SIZE);
        assert_eq!(decide(PathState { target_window: 100_000, ..WARM }), MIGRATE_FOR_SIZE);
        let unknown_rate = PolicyInput {
            transferred_bytes: 45 << 20,
            delivery_bytes_per_s: None,
            path: Some(WARM),
            ..LARGE_BODY
        };
        assert_eq!(policy.decide(&unknown_rate), MIGRATE_FOR_SIZE);
        let hinted = PolicyInput {
            hint: MigrationHint::Migrate,
            transferred_bytes: 45 << 20,
            path: Some(WARM),
            ..LARGE_BODY
        };
        assert_eq!(policy.decide(&hinted), Decision::Migrate(MigrationReason::Hint));
    }
}
