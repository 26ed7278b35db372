//! Which streams are bulk: a pure function of what a stream sends.
//!
//! The scheduler sends bulk behind everything else, and only as far as the driver allows. Bulk is therefore a
//! property of one direction at a time: it follows from the body, not from the request.

use core::time::Duration;

use crate::priority::Priority;

/// The thresholds from which a stream is bulk. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkPolicy {
    /// A body of known length is bulk from this length, one of unknown length if at least this is left.
    pub min_size: u64,
    /// Minimum of the other thresholds except [`Self::migrated_after`], in bytes, for a stream whose urgency is higher than the
    /// default.
    /// A script that a page waits for must not yield to its pictures, but some clients request large
    /// files with a high urgency too.
    pub urgent_min_size: u64,
    /// A body of unknown length becomes bulk after this number of bytes without a pause: they were
    /// queued faster than the path took them. A stream of many small messages never is.
    pub unknown_length_after: u64,
    /// The same on a connection that streams have migrated to.
    pub migrated_after: u64,
    /// Like [`Self::unknown_length_after`], for a CONNECT tunnel, which may carry several responses.
    pub tunnel_after: u64,
    /// A body of unknown length that had nothing to send for this time is no longer bulk.
    pub quiet_time: Duration,
}

impl Default for BulkPolicy {
    fn default() -> Self {
        Self {
            min_size: 256 << 10,
            urgent_min_size: 4 << 20,
            unknown_length_after: 100 << 10,
            migrated_after: 16 << 10,
            tunnel_after: 256 << 10,
            quiet_time: Duration::from_secs(1),
        }
    }
}

/// An instruction of the application for one direction of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BulkHint {
    /// None: the policy decides.
    #[default]
    None,
    /// The direction is bulk.
    Bulk,
    /// The direction is interactive, however long its body is.
    Interactive,
}

/// The reason why a stream is bulk. [`BulkReason::as_str`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkReason {
    /// [`BulkHint::Bulk`].
    Hint,
    /// The length of its body.
    Size,
    /// Its connection carries what has migrated.
    Migrated,
    /// Many bytes were sent without a pause, and the length is unknown.
    UnknownLength,
    /// The tunnel has carried many bytes without a pause.
    Tunnel,
}

impl BulkReason {
    /// Returns the text for logs and users, after "bulk: ".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hint => "as its hint requests",
            Self::Size => "its body is large",
            Self::Migrated => "on a connection that streams have migrated to",
            Self::UnknownLength => "many bytes without a pause",
            Self::Tunnel => "many bytes through the tunnel without a pause",
        }
    }
}

/// Observations of one direction of a stream.
#[derive(Clone, Copy, Debug)]
pub struct BulkInput {
    /// The length of the body, if it was announced.
    pub length: Option<u64>,
    /// What is certainly left to send of a body of unknown length, with what is queued: its current message, say.
    pub min_left: u64,
    /// Bytes sent since the direction last had nothing to send, and those queued.
    pub bytes_without_pause: u64,
    /// The decision so far.
    pub current: Option<BulkReason>,
    /// Whether the stream is a CONNECT tunnel.
    pub is_tunnel: bool,
    /// Whether its connection is one that streams have migrated to.
    pub has_migrated: bool,
    /// The stream's priority.
    pub priority: Priority,
    /// An instruction of the application.
    pub hint: BulkHint,
}

impl BulkPolicy {
    /// Decides whether a direction is bulk, and why.
    #[must_use]
    pub fn decide(&self, input: &BulkInput) -> Option<BulkReason> {
        match input.hint {
            BulkHint::Bulk => return Some(BulkReason::Hint),
            BulkHint::Interactive => return None,
            BulkHint::None => {}
        }
        let is_urgent = input.priority.urgency() < Priority::default().urgency();
        let urgent_or =
            |bytes: u64| if is_urgent { bytes.max(self.urgent_min_size) } else { bytes };
        let bytes = input.bytes_without_pause;
        match input.length {
            Some(length) if length >= urgent_or(self.min_size) => Some(BulkReason::Size),
            Some(_) => input.has_migrated.then_some(BulkReason::Migrated),
            None if input.current.is_some() => input.current,
            None if input.min_left >= urgent_or(self.min_size) => Some(BulkReason::Size),
            None if input.has_migrated && bytes >= self.migrated_after => {
                Some(BulkReason::Migrated)
            }
            None if input.is_tunnel => {
                (bytes >= urgent_or(self.tunnel_after)).then_some(BulkReason::Tunnel)
            }
            None => {
                (bytes >= urgent_or(self.unknown_length_after)).then_some(BulkReason::UnknownLength)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: BulkInput = BulkInput {
        length: Some(10_000),
        min_left: 0,
        bytes_without_pause: 10_000,
        current: None,
        is_tunnel: false,
        has_migrated: false,
        priority: Priority::UNSIGNALLED,
        hint: BulkHint::None,
    };

    fn decide(input: BulkInput) -> Option<BulkReason> {
        BulkPolicy::default().decide(&input)
    }

    #[test]
    fn a_body_is_bulk_by_its_length_whatever_was_sent_of_it() {
        assert_eq!(decide(PICTURE), None);
        let file = BulkInput { length: Some(256 << 10), bytes_without_pause: 0, ..PICTURE };
        assert_eq!(decide(file), Some(BulkReason::Size));
        let rest = BulkInput { bytes_without_pause: 1, current: Some(BulkReason::Size), ..file };
        assert_eq!(decide(rest), Some(BulkReason::Size));
        assert_eq!(decide(BulkInput { length: Some((256 << 10) - 1), ..file }), None);
    }

    #[test]
    fn an_urgent_script_is_interactive_and_an_urgent_download_is_bulk() {
        let priority = Priority::sequential(1);
        let script = BulkInput { length: Some(1 << 20), priority, ..PICTURE };
        assert_eq!(decide(script), None);
        let download = BulkInput { length: Some(50 << 20), ..script };
        assert_eq!(decide(download), Some(BulkReason::Size));
    }

    #[test]
    fn a_body_of_unknown_length_is_bulk_after_many_bytes_without_a_pause() {
        let sent = |bytes| BulkInput { length: None, bytes_without_pause: bytes, ..PICTURE };
        assert_eq!(decide(sent((100 << 10) - 1)), None);
        assert_eq!(decide(sent(100 << 10)), Some(BulkReason::UnknownLength));
        let after = BulkInput { current: Some(BulkReason::UnknownLength), ..sent(0) };
        assert_eq!(decide(after), Some(BulkReason::UnknownLength));
        let tunnel = |bytes| BulkInput { is_tunnel: true, ..sent(bytes) };
        assert_eq!(decide(tunnel(100 << 10)), None);
        assert_eq!(decide(tunnel(256 << 10)), Some(BulkReason::Tunnel));
    }

    #[test]
    fn a_body_of_unknown_length_is_bulk_if_much_is_certainly_left() {
        let left =
            |min_left| BulkInput { length: None, min_left, bytes_without_pause: 5, ..PICTURE };
        assert_eq!(decide(left((256 << 10) - 1)), None);
        assert_eq!(decide(left(256 << 10)), Some(BulkReason::Size));
        let urgent = |bytes| BulkInput { priority: Priority::sequential(1), ..left(bytes) };
        assert_eq!(decide(urgent((4 << 20) - 1)), None);
        assert_eq!(decide(urgent(4 << 20)), Some(BulkReason::Size));
        let known = BulkInput { length: Some(10_000), ..left(1 << 20) };
        assert_eq!(decide(known), None, "the announced length is right");
    }

    #[test]
    fn a_body_that_has_migrated_is_bulk_however_short_if_its_length_is_known() {
        let migrated = BulkInput { has_migrated: true, ..PICTURE };
        assert_eq!(decide(migrated), Some(BulkReason::Migrated));
        let messages = BulkInput { length: None, ..migrated };
        assert_eq!(decide(messages), None);
        let chunks = BulkInput { bytes_without_pause: 64 << 10, ..messages };
        assert_eq!(decide(chunks), Some(BulkReason::Migrated));
    }

    #[test]
    fn hints_decide_first() {
        let small = BulkInput { hint: BulkHint::Bulk, ..PICTURE };
        assert_eq!(decide(small), Some(BulkReason::Hint));
        let large = BulkInput { length: Some(50 << 20), hint: BulkHint::Interactive, ..PICTURE };
        assert_eq!(decide(large), None);
    }
}
