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
    /// Minimum number of other streams ([`PolicyInput::other_streams`]); with fewer, a migration has no benefit.
    pub min_concurrent: usize,
    /// A body stays if the rest of it takes less than this at the reported delivery rate: it could
    /// not delay the others for longer.
    pub min_transfer_time: Duration,
    /// What becomes of a stream that delays the others little where it is.
    pub paced: PacedStreams,
    /// A body of unknown length moves after this number of bytes (the paper's t).
    pub unknown_length_after: u64,
    /// Like [`min_concurrent`](Self::min_concurrent), for tunnels. The default is 0: the end of a
    /// tunnel cannot be predicted, and streams that start later would queue behind its bytes on the
    /// path.
    pub tunnel_min_concurrent: usize,
    /// A tunnel moves after this side has sent this number of bytes on it...
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
            paced: PacedStreams::Stay,
            unknown_length_after: 100 << 10,
            tunnel_min_concurrent: 0,
            tunnel_min_bytes: 1 << 20,
            tunnel_min_path_time: Duration::from_secs(5),
            tunnel_min_age: Duration::from_secs(1),
        }
    }
}

/// What becomes of large transfers with [`Interference::Little`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacedStreams {
    /// They stay: another connection would begin in slow start, and a connection that carries little recovers late from
    /// losses.
    #[default]
    Stay,
    /// They move like others.
    Move,
}

/// How a large transfer affects the other streams of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interference {
    /// Little: what of it is bulk is paced, and packets are rarely lost.
    Little,
    /// It is not paced: the others wait for what it has in the socket and in the path's queue.
    Queue,
    /// Packets are lost again and again, and the others wait for its retransmissions.
    Loss,
    /// The process runs late, and what is written ahead of it is in the socket before the others.
    LateProcess,
}

/// Kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A body with a known length.
    Sized(u64),
    /// A body of unknown length.
    Unsized,
    /// What this side sends on a CONNECT tunnel.
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

/// Observations of a stream and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput {
    /// Kind of transfer.
    pub transfer: Transfer,
    /// Bytes of body so far, in the direction that is decided on. For a migration these are what this side has sent: what it
    /// receives is for the peer to migrate.
    pub transferred_bytes: u64,
    /// Time since the stream was opened.
    pub age: Duration,
    /// The stream's priority.
    pub priority: Priority,
    /// Number of other streams on the connection: of those that are open, or of those opened within the last second if they are
    /// more (of which at most three count).
    pub other_streams: usize,
    /// Delivery rate that TCP reports, in bytes per second, if available.
    pub delivery_bytes_per_s: Option<u64>,
    /// How the transfer affects the others.
    pub interference: Interference,
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
    /// [`Interference::Little`].
    Paced,
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
    /// Many bytes are left.
    Size,
    /// Many bytes were transferred, and the length is unknown.
    UnknownLength,
    /// The tunnel has carried enough bytes and is old enough.
    Tunnel,
    /// It is paced, but [`Interference::Loss`].
    Loss,
    /// It is paced, but [`Interference::LateProcess`].
    LateProcess,
    /// The window of one connection is too small for the path, and several share the streams.
    SmallWindow,
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
            Self::Paced => "it is paced, and delays the others little",
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
            Self::Loss => {
                "packets are lost again and again, and the others would wait for its retransmissions"
            }
            Self::LateProcess => {
                "the process runs late, and the others would wait behind what is written ahead"
            }
            Self::SmallWindow => "one congestion window is too small for the path",
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
        let stays = match input.transfer {
            Transfer::Sized(_) if bytes < self.min_size => Some(StayReason::FewBytesLeft),
            Transfer::Sized(_) if !self.would_block_others(bytes, input.delivery_bytes_per_s) => {
                Some(StayReason::ShortTransfer)
            }
            Transfer::Unsized if bytes < self.unknown_length_after => {
                Some(StayReason::FewBytesSoFar)
            }
            Transfer::Tunnel if bytes < self.tunnel_threshold(input.delivery_bytes_per_s) => {
                Some(StayReason::FewBytesSoFar)
            }
            Transfer::Tunnel if input.age < self.tunnel_min_age => Some(StayReason::YoungTunnel),
            Transfer::Sized(_) | Transfer::Unsized | Transfer::Tunnel => None,
        };
        match (stays, input.interference) {
            (Some(why), _) => Decision::Stay(why),
            (None, Interference::Little) if self.paced == PacedStreams::Stay => {
                Decision::Stay(StayReason::Paced)
            }
            (None, Interference::Loss) => Decision::Migrate(MigrationReason::Loss),
            (None, Interference::LateProcess) => Decision::Migrate(MigrationReason::LateProcess),
            (None, Interference::Little | Interference::Queue) => {
                Decision::Migrate(match input.transfer {
                    Transfer::Sized(_) => MigrationReason::Size,
                    Transfer::Unsized => MigrationReason::UnknownLength,
                    Transfer::Tunnel => MigrationReason::Tunnel,
                })
            }
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
        interference: Interference::Queue,
        hint: MigrationHint::None,
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
    fn what_delays_the_others_little_stays() {
        let policy = MigrationPolicy::default();
        let little = PolicyInput { interference: Interference::Little, ..LARGE_BODY };
        assert_eq!(policy.decide(&little), Decision::Stay(StayReason::Paced));
        let unsized_body =
            PolicyInput { transfer: Transfer::Unsized, transferred_bytes: 1 << 20, ..little };
        let tunnel =
            PolicyInput { transfer: Transfer::Tunnel, age: Duration::from_secs(9), ..unsized_body };
        assert_eq!(policy.decide(&unsized_body), Decision::Stay(StayReason::Paced));
        assert_eq!(policy.decide(&tunnel), Decision::Stay(StayReason::Paced));
        let hinted = PolicyInput { hint: MigrationHint::Migrate, ..little };
        assert_eq!(policy.decide(&hinted), Decision::Migrate(MigrationReason::Hint));
        // Reasons to stay that concern the stream itself come first.
        let small = PolicyInput { transfer: Transfer::Sized(10 << 10), ..little };
        assert_eq!(policy.decide(&small), Decision::Stay(StayReason::FewBytesLeft));
        let always = MigrationPolicy { paced: PacedStreams::Move, ..policy };
        assert_eq!(always.decide(&little), MIGRATE_FOR_SIZE);
        assert_eq!(always.decide(&tunnel), Decision::Migrate(MigrationReason::Tunnel));
    }

    #[test]
    fn a_paced_stream_moves_where_the_others_wait_for_it_all_the_same() {
        let policy = MigrationPolicy::default();
        let decide = |interference| policy.decide(&PolicyInput { interference, ..LARGE_BODY });
        assert_eq!(decide(Interference::Loss), Decision::Migrate(MigrationReason::Loss));
        let late = Decision::Migrate(MigrationReason::LateProcess);
        assert_eq!(decide(Interference::LateProcess), late);
        let small = PolicyInput {
            transfer: Transfer::Sized(10 << 10),
            interference: Interference::Loss,
            ..LARGE_BODY
        };
        assert_eq!(policy.decide(&small), Decision::Stay(StayReason::FewBytesLeft));
    }
}
