//! The latest events for operators, in order, and their wire format.

use std::collections::VecDeque;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Value, json};
use smig::{Mover, ObserverEvent, PolicyDecision, StayReason, StreamRef};

/// Maximum number of entries buffered for readers that connect later.
const MAX_ENTRIES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct EventLog {
    entries: VecDeque<Entry>,
    next_number: u64,
}

/// An event with its time. Formatted only when it is read.
#[derive(Debug)]
struct Entry {
    number: u64,
    recorded_at: SystemTime,
    event: ObserverEvent,
}

impl EventLog {
    /// Appends an entry, and returns its record if `want_record`. Events that are only counted are
    /// ignored.
    pub(crate) fn add(&mut self, event: &ObserverEvent, want_record: bool) -> Option<Bytes> {
        if !is_logged(event) {
            return None;
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        let entry = Entry {
            number: self.next_number,
            recorded_at: SystemTime::now(),
            event: event.clone(),
        };
        self.next_number += 1;
        let record = want_record.then(|| entry.record());
        self.entries.push_back(entry);
        record
    }

    /// Returns the records of all entries, oldest first.
    pub(crate) fn records(&self) -> Vec<Bytes> {
        self.entries.iter().map(Entry::record).collect()
    }
}

/// Returns whether an event is logged individually. Decisions that a stream stays because it has few bytes so
/// far, or is a young tunnel, are not: tunnels and bodies of unknown length usually begin with one.
const fn is_logged(event: &ObserverEvent) -> bool {
    !matches!(
        event,
        ObserverEvent::PolicyDecided {
            decision: PolicyDecision::Stays(StayReason::FewBytesSoFar | StayReason::YoungTunnel),
            ..
        } | ObserverEvent::StreamOpened { .. }
            | ObserverEvent::StreamCompleted { .. }
            | ObserverEvent::ConnectionOpened { .. }
            | ObserverEvent::ConnectionClosed { .. }
    )
}

impl Entry {
    fn record(&self) -> Bytes {
        let since_epoch =
            self.recorded_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut entry_value = describe(&self.event);
        entry_value["id"] = self.number.into();
        entry_value["at_ms"] = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX).into();
        format!("event: log\ndata: {entry_value}\n\n").into()
    }
}

/// Returns an event as JSON with a text for humans.
fn describe(event: &ObserverEvent) -> Value {
    let entry_json = |kind: &str, stream: &Option<StreamRef>, text: String| {
        let mut value = json!({ "kind": kind, "text": text });
        if let Some(stream) = stream {
            value["session"] = stream.session.to_string().into();
            // A string: it has more digits than a JavaScript number.
            value["stream"] = stream.stream.as_u64().to_string().into();
            value["connection"] = stream.connection.to_string().into();
        }
        value
    };
    match event {
        ObserverEvent::Migrated { from, to, mover, stream, transferred_bytes, why, .. } => {
            let text = format!(
                "migrated from connection {from} to {to} at {transferred_bytes} bytes: {why}"
            );
            let mut value = entry_json("migrated", stream, text);
            value["from"] = from.to_string().into();
            value["to"] = to.to_string().into();
            value["offset"] = (*transferred_bytes).into();
            value["by"] = if *mover == Mover::Local { "local" } else { "peer" }.into();
            value
        }
        ObserverEvent::PolicyDecided { stream, decision } => {
            entry_json("policy", stream, decision.to_string())
        }
        ObserverEvent::MigrationDeclined { stream, .. } => {
            entry_json("declined", stream, "the peer declined the migration".to_owned())
        }
        ObserverEvent::StreamReset { stream, .. } => {
            entry_json("reset", stream, "ended with an error".to_owned())
        }
        ObserverEvent::SecondConnection => {
            let text =
                "second connection: the first carries bulk, and the server does not support SMig";
            entry_json("second", &None, text.to_owned())
        }
        ObserverEvent::ResponseContinued { stream, offset, repeated } => {
            let text = format!(
                "continues on another connection at {offset} bytes, by a range request; {repeated} repeated"
            );
            entry_json("continued", stream, text)
        }
        ObserverEvent::ContinuationFailed { stream, why } => {
            entry_json("stays", stream, format!("stays on its connection: {why}"))
        }
        ObserverEvent::SessionEstablished => {
            entry_json("session", &None, "session established: both ends support SMig".to_owned())
        }
        ObserverEvent::Joined { conn, .. } => {
            entry_json("joined", &None, format!("connection {conn} joined its session"))
        }
        ObserverEvent::JoinRefused { .. } => {
            entry_json("refused", &None, "JOIN refused".to_owned())
        }
        ObserverEvent::HandshakeFailed => {
            entry_json("handshake", &None, "a handshake failed".to_owned())
        }
        ObserverEvent::Panicked => entry_json("panic", &None, "a handler panicked".to_owned()),
        ObserverEvent::LimitHit(limit) => {
            entry_json("limit", &None, format!("limit reached: {limit}"))
        }
        other => entry_json("other", &None, format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded() {
        let mut log = EventLog::default();
        assert_eq!(log.add(&ObserverEvent::StreamOpened { stream: None }, true), None);
        for _ in 0..MAX_ENTRIES {
            assert_eq!(log.add(&ObserverEvent::HandshakeFailed, false), None);
        }
        let last_record = log.add(&ObserverEvent::LimitHit("max_connections"), true).unwrap();
        let records = log.records();
        assert_eq!(records.len(), MAX_ENTRIES);
        assert_eq!(records.last(), Some(&last_record));
        let last_text = std::str::from_utf8(&last_record).unwrap();
        assert!(
            last_text.starts_with("event: log\ndata: {") && last_text.ends_with("}\n\n"),
            "{last_text}"
        );
        assert!(last_text.contains("limit reached: max_connections"), "{last_text}");
    }
}
