//! Events of a link, per packet.

use serde::{Deserialize, Serialize};

use super::{Ports, Time};

/// Kind of a packet event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkEventKind {
    /// It was accepted into the queue.
    Enqueue,
    /// It left the queue: transmission of its first bit started.
    Dequeue,
    /// It was dropped or lost.
    Drop(DropReason),
}

/// Why a packet never arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The queue was full when it arrived. It was never in the queue.
    Full,
    /// It was in the queue and was displaced by a later packet.
    PushedOut,
    /// It was in the queue, and `CoDel` dropped it at dequeue.
    #[serde(rename = "codel")]
    CoDel,
    /// It was lost on the wire, at the time of its [`LinkEventKind::Dequeue`].
    Lost,
    /// It left the wire during an outage, at the time of its [`LinkEventKind::Dequeue`].
    Outage,
    /// It was larger than the MTU. It was never in the queue.
    TooBig,
    /// It exceeded the policer's rate. It was never in the queue.
    Policed,
    /// It was an acknowledgement that a later one of its flow superseded. It was never in the queue.
    Thinned,
}

impl DropReason {
    /// Returns whether the packet was removed from the queue without being dequeued.
    #[must_use]
    pub const fn shortens_queue(self) -> bool {
        matches!(self, Self::PushedOut | Self::CoDel)
    }

    /// Returns the name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::PushedOut => "pushed-out",
            Self::CoDel => "codel",
            Self::Lost => "lost",
            Self::Outage => "outage",
            Self::TooBig => "too-big",
            Self::Policed => "policed",
            Self::Thinned => "thinned",
        }
    }
}

impl LinkEventKind {
    /// Returns the name used in files; for a drop, that of the reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Drop(reason) => reason.name(),
        }
    }
}

/// One entry of the log. `queue_*` are the state after the event, without the
/// packet on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEvent {
    /// Time of the event, in the link's logical time.
    pub at: Time,
    /// The event.
    pub kind: LinkEventKind,
    /// Size of the packet in bytes.
    pub bytes: u64,
    /// Ports of the packet.
    pub ports: Ports,
    /// Queued packets.
    pub queue_packets: usize,
    /// Queued bytes.
    pub queue_bytes: u64,
}

/// Receives the events of one direction, in order of time. Runs on the thread that
/// forwards packets: it must be fast and must not block.
pub trait LinkLog {
    /// Records one event.
    fn record(&mut self, event: LinkEvent);
}

/// Discards events.
impl LinkLog for () {
    fn record(&mut self, _event: LinkEvent) {}
}

impl LinkLog for Vec<LinkEvent> {
    fn record(&mut self, event: LinkEvent) {
        self.push(event);
    }
}

impl<L: LinkLog + ?Sized> LinkLog for Box<L> {
    fn record(&mut self, event: LinkEvent) {
        (**self).record(event);
    }
}

/// Passes events to both.
impl<A: LinkLog, B: LinkLog> LinkLog for (A, B) {
    fn record(&mut self, event: LinkEvent) {
        self.0.record(event);
        self.1.record(event);
    }
}
