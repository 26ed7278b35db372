//! What a link tells about each packet.

use serde::{Deserialize, Serialize};

use super::Time;

/// What happened to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkEventKind {
    /// It came to the link and was let in.
    Enqueue,
    /// It left the queue: its first bit went onto the wire.
    Dequeue,
    /// The queue was full; the packet is gone.
    Drop,
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
