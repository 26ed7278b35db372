//! What the critical path of a load waited for, as a sum: its parts add up to the time of the load.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::critical_path::{Phase, Step, StepKind, end_us, phases, requests_of};
use super::network::Network;
use crate::timeline::{PageSpan, Span, Timeline};

/// Steps are divided into parts of this length, each with one state of the path.
const PART_US: u64 = 1_000;
/// At most: a part of a step that takes minutes is longer.
const MAX_PARTS: u64 = 100_000;

/// What a part of the critical path waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The client: parsing, scripts, painting.
    Client,
    /// Its turn: over HTTP/1.1 a connection that other requests occupied, over HTTP/2 a stream, or a browser's own order.
    Queue,
    /// The handshakes of a new connection.
    Connect,
    /// Packets on their way over an empty path.
    RoundTrip,
    /// The request was on its way, or the server had nothing in its socket.
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
    /// No TCP connection of the request was recorded: HTTP/3.
    NotSeen,
}

impl Cause {
    /// All causes, in the order in which a report names them.
    pub const ALL: [Self; 12] = [
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
        Self::NotSeen,
    ];

    /// Returns a sentence that explains it.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Client => "parsing, scripts and painting in the client",
            Self::Queue => {
                "held back while others were on their way: every connection was busy (HTTP/1.1), or by the server's limit of streams \
                 and a browser's own order (HTTP/2)"
            }
            Self::Connect => "TCP and TLS handshakes of a new connection",
            Self::RoundTrip => "packets were on their way over an empty path",
            Self::Server => "the request was on its way, or the server had nothing in its socket",
            Self::CongestionControl => {
                "data was ready, and the link idle: a small window, or pacing"
            }
            Self::ReceiveWindow => "the client's window was full",
            Self::LossRecovery => "lost packets were sent again",
            Self::OtherStreams => "the link was busy with other responses of its connection",
            Self::OtherConnections => "the link was busy with other connections",
            Self::Transfer => "the link was busy with the response itself",
            Self::NotSeen => "no TCP connection of the request was recorded",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Queue => "queued in the client",
            Self::Connect => "opening connections",
            Self::RoundTrip => "round trips",
            Self::Server => "server",
            Self::CongestionControl => "congestion control",
            Self::ReceiveWindow => "receive window",
            Self::LossRecovery => "loss recovery",
            Self::OtherStreams => "other streams",
            Self::OtherConnections => "other connections",
            Self::Transfer => "transfer",
            Self::NotSeen => "not seen",
        })
    }
}

/// The time of a load by cause, in microseconds. It adds up to the whole.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Lateness(BTreeMap<Cause, f64>);

impl Lateness {
    /// Returns what the critical path of a load waited for.
    #[must_use]
    pub fn of<'a>(timeline: &'a Timeline, page: &PageSpan, path: &[Step<'a>]) -> Self {
        let network = Network::of(timeline);
        let requests = requests_of(timeline, page);
        let mut lateness = Self::default();
        for step in path {
            match step.kind {
                StepKind::Client | StepKind::Request(_, Phase::Running) => {
                    lateness.add(Cause::Client, step.length_us() as f64);
                }
                StepKind::Request(span, Phase::Queued) => {
                    // Alone, a request waits for the client: for a browser's own scheduling.
                    let is_occupied = requests.iter().any(|other| occupies(other, span, step));
                    let cause = if is_occupied { Cause::Queue } else { Cause::Client };
                    lateness.add(cause, step.length_us() as f64);
                }
                StepKind::Request(_, Phase::Connecting) => {
                    lateness.add(Cause::Connect, step.length_us() as f64);
                }
                StepKind::Request(span, Phase::Waiting) => {
                    lateness.add_waiting(&network, span, step);
                }
                StepKind::Request(span, Phase::Receiving) => {
                    lateness.add_parts(&network, span, (step.from_us, step.to_us), false);
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

    fn add(&mut self, cause: Cause, us: f64) {
        if us > 0.0 {
            *self.0.entry(cause).or_default() += us;
        }
    }

    /// A request and its response need a round trip over an empty path; for the rest of the wait the path says why.
    fn add_waiting<'a>(&mut self, network: &Network<'a>, span: &'a Span, step: &Step<'_>) {
        let [.., (_, sent_us), _, _] = phases(span);
        let view = network.view(span, step.from_us, step.to_us);
        let empty_until_us = sent_us.saturating_add(network.empty_round_trip_us(&view, sent_us));
        let empty_until_us = empty_until_us.clamp(step.from_us, step.to_us);
        self.add(Cause::RoundTrip, (empty_until_us - step.from_us) as f64);
        self.add_parts(network, span, (empty_until_us, step.to_us), true);
    }

    fn add_parts<'a>(
        &mut self,
        network: &Network<'a>,
        span: &'a Span,
        (from_us, to_us): (u64, u64),
        is_waiting: bool,
    ) {
        let view = network.view(span, from_us, to_us);
        let part_us = PART_US.max((to_us - from_us) / MAX_PARTS);
        let mut at_us = from_us;
        while at_us < to_us {
            let next_us = (at_us + part_us).min(to_us);
            let length_us = (next_us - at_us) as f64;
            for (cause, share) in network.causes(&view, (at_us + next_us) / 2, is_waiting) {
                self.add(cause, length_us * share);
            }
            at_us = next_us;
        }
    }
}

/// Returns whether another request is on a connection while this one waits.
fn occupies(other: &Span, span: &Span, step: &Step<'_>) -> bool {
    let [_, (_, connect_us), ..] = phases(other);
    other.name != span.name && connect_us < step.to_us && end_us(other) > step.from_us
}
