//! Per-stream state for snapshots and observers: its start, its label, why it migrates.

use std::fmt;

use http::{Method, Uri};
use smig_proto::Instant;
use smig_proto::policy::{MigrationReason, StayReason};

/// The request that a stream carries, each part truncated at the configured length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestLabel {
    /// The request's method.
    pub method: Box<str>,
    /// Its host and port; empty if it names none.
    pub authority: Box<str>,
    /// Its path, without the query.
    pub path: Box<str>,
}

impl RequestLabel {
    /// Creates the label of a request; `None` with a limit of zero.
    pub(crate) fn of(method: &Method, uri: &Uri, limit: usize) -> Option<Box<Self>> {
        if limit == 0 {
            return None;
        }
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        // Drop the userinfo, which may hold a password.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(Box::new(Self {
            method: truncate(method.as_str(), limit),
            authority: truncate(authority, limit),
            path: truncate(uri.path(), limit),
        }))
    }
}

/// Truncates a text to at most `limit` bytes, and marks a truncation by three more.
fn truncate(text: &str, limit: usize) -> Box<str> {
    if text.len() <= limit {
        return text.into();
    }
    let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

/// The last decision of the rules on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PolicyDecision {
    /// It stays.
    Stays(StayReason),
    /// It migrates to a spare.
    Migrates(MigrationReason),
    /// It should migrate. The session has no spare, so the migration was offered to the client.
    Offered(MigrationReason),
    /// It should migrate, but no connection is available for it.
    Waits(MigrationReason),
}

impl fmt::Display for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (does, why) = match self {
            Self::Stays(why) => ("stays", why.as_str()),
            Self::Migrates(why) => ("migrates", why.as_str()),
            Self::Offered(why) => ("offered to the client", why.as_str()),
            Self::Waits(why) => ("waits for a connection", why.as_str()),
        };
        write!(f, "{does}: {why}")
    }
}

/// Why a stream migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MigrationCause {
    /// The rules of this end.
    Policy(MigrationReason),
    /// The application requested it.
    Application,
    /// It reached an offset of [`MigrationMode::At`](crate::MigrationMode::At).
    Offset,
    /// The other end decided it.
    Peer,
}

impl fmt::Display for MigrationCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy(why) => why.as_str(),
            Self::Application => "requested by the application",
            Self::Offset => "configured offset reached",
            Self::Peer => "decided by the peer",
        })
    }
}

/// Per-stream state.
#[derive(Debug)]
pub(crate) struct StreamRecord {
    pub(crate) opened_at: Instant,
    pub(crate) label: Option<Box<RequestLabel>>,
    pub(crate) decision: Option<PolicyDecision>,
    /// A migration that was started or offered.
    pub(crate) pending_migration: Option<PendingMigration>,
}

/// A migration or an offer without an answer so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingMigration {
    pub(crate) why: MigrationCause,
    /// Bytes of body of both directions before it; `None` for an offer.
    pub(crate) offset: Option<u64>,
}

impl StreamRecord {
    pub(crate) const fn new(opened_at: Instant, label: Option<Box<RequestLabel>>) -> Self {
        Self { opened_at, label, decision: None, pending_migration: None }
    }

    /// Records a decision; returns it if it is new.
    pub(crate) fn record_decision(&mut self, decision: PolicyDecision) -> Option<PolicyDecision> {
        let new = self.decision.replace(decision) != Some(decision);
        new.then_some(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_truncated_and_holds_no_secret() {
        let uri = Uri::from_static("https://ann:secret@example.org/a/long/path?token=secret");
        let label = RequestLabel::of(&Method::GET, &uri, 11).unwrap();
        assert_eq!((&*label.method, &*label.authority), ("GET", "example.org"));
        assert_eq!(&*label.path, "/a/long/pat…");
        assert_eq!(RequestLabel::of(&Method::GET, &uri, 0), None);
    }

    #[test]
    fn a_truncation_does_not_split_a_character() {
        assert_eq!(&*truncate("aé", 2), "a…");
        assert_eq!(&*truncate("aé", 3), "aé");
    }
}
