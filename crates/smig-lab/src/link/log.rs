//! What a link tells about each packet.

use serde::{Deserialize, Serialize};

use super::{Ports, Time};

/// What happened to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkEventKind {
    /// It came to the link and was let in.
    Enqueue,
    /// It left the queue: its first bit went onto the wire.
    Dequeue,
    /// It is gone.
    Drop(DropReason),
}

/// Why a packet never arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The queue was full when it came. It was never in the queue.
    Full,
    /// It was in the queue and gave way to one that came later.
    PushedOut,
    /// It was in the queue, and `CoDel` dropped it in its turn.
    #[serde(rename = "codel")]
    CoDel,
    /// It got lost on the wire, at the moment of its [`LinkEventKind::Dequeue`].
    Lost,
    /// It was larger than the MTU. It was never in the queue.
    TooBig,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Full, Self::PushedOut, Self::CoDel, Self::Lost, Self::TooBig];

    /// Whether the packet had been in the queue and was not dequeued.
    #[must_use]
    pub const fn shortens_queue(self) -> bool {
        matches!(self, Self::PushedOut | Self::CoDel)
    }

    /// The word for it in files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::PushedOut => "pushed-out",
            Self::CoDel => "codel",
            Self::Lost => "lost",
            Self::TooBig => "too-big",
        }
    }
}

impl LinkEventKind {
    /// The word for it in files; for a drop it is the reason's.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Drop(reason) => reason.word(),
        }
    }

    /// The event that a file's word means.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "enqueue" => Some(Self::Enqueue),
            "dequeue" => Some(Self::Dequeue),
            _ => DropReason::ALL.into_iter().find(|why| why.word() == word).map(Self::Drop),
        }
    }
}

/// One entry of the log. `queue_*` are the state after the event and do not
/// count the packet on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkEvent {
    /// When, in the link's logical time.
    pub at: Time,
    /// What.
    pub kind: LinkEventKind,
    /// Size of the packet in bytes.
    pub bytes: u64,
    /// Whose packet.
    pub ports: Ports,
    /// Packets waiting.
    pub queue_packets: usize,
    /// Bytes waiting.
    pub queue_bytes: u64,
}

/// Takes the log of one direction, in order of time. Runs on the thread that
/// moves packets: it must be quick and must not block.
pub trait LinkLog {
    /// One event.
    fn record(&mut self, event: LinkEvent);
}

/// Keeps nothing.
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

/// Both hear of it.
impl<A: LinkLog, B: LinkLog> LinkLog for (A, B) {
    fn record(&mut self, event: LinkEvent) {
        self.0.record(event);
        self.1.record(event);
    }
}
