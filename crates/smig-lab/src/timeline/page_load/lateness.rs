//! What the critical path of a load waited for, as a sum: its parts add up to the time of the load.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::critical_path::{Phase, Step, StepKind, phases};
use crate::timeline::{Column, ConnectionName, Direction, Span, Subject, Timeline, Track};

/// Steps are divided into parts of this length, each with one state of the path.
const PART_US: u64 = 1_000;

/// What a part of the critical path waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The client: parsing, scripts, painting.
    Client,
    /// A connection that other requests occupied.
    Queue,
    /// The handshakes of a new connection.
    Connect,
    /// Packets on their way over an empty path.
    RoundTrip,
    /// The server: it had nothing in its socket.
    Server,
    /// Congestion control: data was ready to be sent, and the link had nothing to do.
    CongestionControl,
    /// The receiver's window.
    ReceiveWindow,
    /// The recovery of lost packets.
    LossRecovery,
    /// The link, busy with other responses of the same connection.
    OtherStreams,
    /// The link, busy with other connections.
    OtherConnections,
    /// The link, busy with the response itself.
    Transfer,
}

impl Cause {
    /// All causes, in the order in which a report names them.
    pub const ALL: [Self; 11] = [
        Self::Client,
        Self::Queue,
        Self::Connect,
        Self::RoundTrip,
        Self::Server,
        Self::CongestionControl,
        Self::ReceiveWindow,
        Self::LossRecovery,
        Self::OtherStreams,
        Self::OtherConnections,
        Self::Transfer,
    ];

    /// Returns a sentence that explains it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Client => "parsing, scripts and painting in the client",
            Self::Queue => "every connection was busy with another request",
            Self::Connect => "TCP and TLS handshakes of a new connection",
            Self::RoundTrip => "packets were on their way over an empty path",
            Self::Server => "the server had nothing in its socket",
            Self::CongestionControl => {
                "data was ready, and the link idle: a small window, or pacing"
            }
            Self::ReceiveWindow => "the client's window was full",
            Self::LossRecovery => "lost packets were sent again",
            Self::OtherStreams => "the link was busy with other responses of its connection",
            Self::OtherConnections => "the link was busy with other connections",
            Self::Transfer => "the link was busy with the response itself",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Queue => "waiting for a connection",
            Self::Connect => "opening connections",
            Self::RoundTrip => "round trips",
            Self::Server => "server",
            Self::CongestionControl => "congestion control",
            Self::ReceiveWindow => "receive window",
            Self::LossRecovery => "loss recovery",
            Self::OtherStreams => "other streams",
            Self::OtherConnections => "other connections",
            Self::Transfer => "transfer",
        })
    }
}

/// The time of a load by cause, in microseconds. It adds up to the whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Lateness(BTreeMap<Cause, f64>);

impl Lateness {
    /// Returns what a critical path waited for.
    #[must_use]
    pub fn of(timeline: &Timeline, path: &[Step<'_>]) -> Self {
        let network = Network::of(timeline);
        let mut lateness = Self::default();
        for step in path {
            match step.kind {
                StepKind::Client | StepKind::Request(_, Phase::Running) => {
                    lateness.add(Cause::Client, step.length_us() as f64);
                }
                StepKind::Request(_, Phase::Queued) => {
                    lateness.add(Cause::Queue, step.length_us() as f64);
                }
                StepKind::Request(_, Phase::Connecting) => {
                    lateness.add(Cause::Connect, step.length_us() as f64);
                }
                StepKind::Request(span, Phase::Waiting) => {
                    lateness.add_waiting(&network, span, step);
                }
                StepKind::Request(span, Phase::Receiving) => {
                    lateness.add_parts(
                        &network,
                        span,
                        (step.from_us, step.to_us),
                        Phase::Receiving,
                    );
                }
            }
        }
        lateness
    }

    /// Returns the microseconds that waited for a cause.
    #[must_use]
    pub fn us(&self, cause: Cause) -> f64 {
        self.0.get(&cause).copied().unwrap_or(0.0)
    }

    /// Returns the sum.
    #[must_use]
    pub fn total_us(&self) -> f64 {
        self.0.values().sum()
    }

    /// Returns the mean of several loads.
    #[must_use]
    pub fn mean(all: &[Self]) -> Self {
        let mut mean = Self::default();
        for (cause, us) in all.iter().flat_map(|one| &one.0) {
            mean.add(*cause, us / all.len() as f64);
        }
        mean
    }

    fn add(&mut self, cause: Cause, us: f64) {
        if us > 0.0 {
            *self.0.entry(cause).or_default() += us;
        }
    }

    /// A request and its response need a round trip over an empty path; for the rest of the wait the path says why.
    fn add_waiting(&mut self, network: &Network<'_>, span: &Span, step: &Step<'_>) {
        let [.., (_, sent_us), _, _] = phases(span);
        let empty_until_us =
            sent_us + network.empty_round_trip_us(span.connection.as_ref(), sent_us);
        let empty_until_us = empty_until_us.clamp(step.from_us, step.to_us);
        self.add(Cause::RoundTrip, (empty_until_us - step.from_us) as f64);
        self.add_parts(network, span, (empty_until_us, step.to_us), Phase::Waiting);
    }

    fn add_parts(
        &mut self,
        network: &Network<'_>,
        span: &Span,
        (from_us, to_us): (u64, u64),
        phase: Phase,
    ) {
        let mut at_us = from_us;
        while at_us < to_us {
            let next_us = (at_us + PART_US).min(to_us);
            let length_us = (next_us - at_us) as f64;
            for (cause, share) in network.causes(span, (at_us + next_us) / 2, phase) {
                self.add(cause, length_us * share);
            }
            at_us = next_us;
        }
    }
}

/// The path of a timeline at each instant.
struct Network<'a> {
    timeline: &'a Timeline,
    queue: Option<&'a Track>,
    idle_round_trip_us: u64,
}

impl<'a> Network<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let whole_queue = Subject::Link { direction: Direction::ToClient, connection: None };
        let is_queue = |track: &&Track| {
            track.subject == whole_queue && track.columns.contains_key(&Column::QueueBytes)
        };
        let round_trip_ms = timeline.head.link.map_or(0.0, |link| link.round_trip_ms);
        Self {
            timeline,
            queue: timeline.tracks.iter().find(is_queue),
            idle_round_trip_us: (round_trip_ms * 1e3) as u64,
        }
    }

    /// Returns the sender's samples of a connection.
    fn sender(&self, connection: Option<&ConnectionName>) -> Option<&'a Track> {
        let connection = connection?;
        let tracks = self.timeline.tracks.iter().filter(|track| {
            matches!(&track.subject, Subject::Connection { connection: name, .. } if name == connection)
        });
        tracks.max_by_key(|track| track.last(Column::AckedBytes))
    }

    /// Returns the round-trip time of the empty path: the smoothed one without the queue, where that is longer than the link says.
    fn empty_round_trip_us(&self, connection: Option<&ConnectionName>, at_us: u64) -> u64 {
        let srtt_us =
            self.sender(connection).and_then(|track| track.value_at(Column::SrttUs, at_us));
        let bits_per_s = self.timeline.head.link.map_or(0, |link| link.bits_per_s).max(1);
        let queue_us = self.queue_bytes(at_us) * 8_000_000 / bits_per_s;
        srtt_us.unwrap_or(0).saturating_sub(queue_us).max(self.idle_round_trip_us)
    }

    fn queue_bytes(&self, at_us: u64) -> u64 {
        self.queue.and_then(|queue| queue.value_at(Column::QueueBytes, at_us)).unwrap_or(0)
    }

    /// Returns what a request waited for at an instant of the client, with shares that add up to 1.
    fn causes(&self, span: &Span, at_us: u64, phase: Phase) -> Vec<(Cause, f64)> {
        let idle_cause = if phase == Phase::Receiving { Cause::Transfer } else { Cause::Server };
        let Some(sender) = self.sender(span.connection.as_ref()) else {
            return vec![(idle_cause, 1.0)];
        };
        // What arrives now left the queue half a round trip ago.
        let sent_us = at_us.saturating_sub(self.idle_round_trip_us / 2);
        let value = |column| sender.value_at(column, sent_us).unwrap_or(0);
        if is_recovering(sender, sent_us) {
            return vec![(Cause::LossRecovery, 1.0)];
        }
        if self.queue_bytes(sent_us) > 0 {
            return self.link_shares(span, at_us);
        }
        let (window, in_flight) = (value(Column::CwndBytes), value(Column::UnackedBytes));
        let has_unsent = value(Column::UnsentBytes) > 0;
        let cause = if is_growing(sender, Column::ReceiverLimitedUs, sent_us) {
            Cause::ReceiveWindow
        } else if has_unsent || window > 0 && in_flight * 10 >= window * 9 {
            Cause::CongestionControl
        } else if in_flight > 0 {
            Cause::RoundTrip
        } else {
            Cause::Server
        };
        vec![(cause, 1.0)]
    }

    /// Returns with whose bytes a busy link is busy: responses arrive evenly from their first byte to their last.
    fn link_shares(&self, span: &Span, at_us: u64) -> Vec<(Cause, f64)> {
        let mut rates: BTreeMap<Cause, f64> = BTreeMap::new();
        for other in &self.timeline.spans {
            let begin_us = other.first_byte_us.unwrap_or(other.to_us);
            if begin_us > at_us || at_us >= other.to_us {
                continue;
            }
            let rate = other.bytes as f64 / (other.to_us - begin_us).max(PART_US) as f64;
            let cause = if other.name == span.name {
                Cause::Transfer
            } else if other.connection == span.connection {
                Cause::OtherStreams
            } else {
                Cause::OtherConnections
            };
            *rates.entry(cause).or_default() += rate;
        }
        let total: f64 = rates.values().sum();
        if total <= 0.0 {
            // The first bytes of the response are in the queue.
            return vec![(Cause::Transfer, 1.0)];
        }
        rates.into_iter().map(|(cause, rate)| (cause, rate / total)).collect()
    }
}

/// Returns whether a sender considered segments as lost, or sent some again, around an instant.
fn is_recovering(sender: &Track, at_us: u64) -> bool {
    sender.value_at(Column::LostSegments, at_us).unwrap_or(0) > 0
        || is_growing(sender, Column::RetransmittedBytes, at_us)
}

/// Returns whether a counter grows between the samples before and after an instant.
fn is_growing(track: &Track, column: Column, at_us: u64) -> bool {
    let next = track.at_us.partition_point(|at| *at <= at_us);
    let (Some(values), Some(before)) = (track.columns.get(&column), next.checked_sub(1)) else {
        return false;
    };
    match (values.get(before), values.get(next)) {
        (Some(before), Some(after)) => after > before,
        _ => false,
    }
}
