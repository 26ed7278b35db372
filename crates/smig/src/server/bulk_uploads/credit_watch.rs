//! What an upload does with its credit: how long credit takes until data arrives that was sent with it, and whether the
//! client waits for credit at all.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

/// Updates whose effect is awaited. There are about ten in a round trip; later ones are not observed.
const MAX_UPDATES: usize = 32;

/// Where an upload is.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadProgress {
    /// Bytes that have arrived.
    pub(super) received: u64,
    /// Bytes that the client may still send.
    pub(super) window: u64,
}

/// Watches the credit of one upload.
#[derive(Debug)]
pub(super) struct CreditWatch {
    /// The offset up to which the client may send.
    granted: u64,
    /// When it was raised, and what it was before: what lies beyond cannot have been sent earlier.
    updates: VecDeque<(Instant, u64)>,
    /// The shortest time from an update to such data, in the current round.
    rtt: Option<Duration>,
    received: u64,
    received_at_round: u64,
    /// What arrived in the last round.
    round_bytes: u64,
    is_hungry: bool,
}

impl CreditWatch {
    pub(super) fn new(progress: UploadProgress) -> Self {
        Self {
            granted: progress.received + progress.window,
            updates: VecDeque::new(),
            rtt: None,
            received: progress.received,
            received_at_round: progress.received,
            round_bytes: 0,
            is_hungry: false,
        }
    }

    /// Takes into account what has arrived and was granted until now.
    pub(super) fn update(&mut self, now: Instant, progress: UploadProgress) {
        self.received = progress.received;
        while let Some(&(at, offset)) = self.updates.front()
            && offset < progress.received
        {
            self.updates.pop_front();
            let rtt = now.saturating_duration_since(at);
            self.rtt = Some(self.rtt.map_or(rtt, |shortest| shortest.min(rtt)));
        }
        let granted = progress.received + progress.window;
        if granted > self.granted {
            if self.updates.len() < MAX_UPDATES {
                self.updates.push_back((now, self.granted));
            }
            self.granted = granted;
        }
    }

    /// Returns the shortest round trip of credit in the current round.
    pub(super) const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Forgets updates whose effect waits in a queue that is to be avoided.
    pub(super) fn forget_updates(&mut self) {
        self.updates.clear();
    }

    /// Ends the current round.
    pub(super) fn end_round(&mut self) {
        self.is_hungry = self.rtt.take().is_some();
        self.round_bytes = self.received - self.received_at_round;
        self.received_at_round = self.received;
    }

    /// Returns whether the client used up its credit in the last round.
    pub(super) const fn is_hungry(&self) -> bool {
        self.is_hungry
    }

    /// Returns the bytes that arrived in the last round.
    pub(super) const fn round_bytes(&self) -> u64 {
        self.round_bytes
    }
}
