//! Annotations from our own server: the JSON lines that `smig lab server` logs.
//!
//! They come from another process and may be truncated or mixed with other output: lines that are
//! not events are counted and skipped, never an error.

use std::io::{self, BufRead};

use serde::Deserialize;
use smig_link::Time;

use crate::timeline::{Annotation, AnnotationKind, ConnectionName, Timeline};

/// An event line.
#[derive(Debug, Deserialize)]
struct ServerEvent {
    at_ns: u64,
    event: String,
    #[serde(default)]
    from: Option<serde_json::Value>,
    #[serde(default)]
    to: Option<serde_json::Value>,
    /// `server` or `client`: the end that migrated the stream.
    #[serde(default)]
    by: Option<String>,
    /// Client's end of the connection; for a migration that of the target connection.
    #[serde(default)]
    peer: Option<String>,
}

/// Events of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerEvents {
    /// Time, kind, connection and label.
    events: Vec<(Time, AnnotationKind, Option<ConnectionName>, String)>,
    /// Number of lines that were not events.
    pub skipped_lines: usize,
}

impl ServerEvents {
    /// Reads JSON lines to EOF.
    ///
    /// # Errors
    /// Errors of the reader.
    pub fn read(reader: &mut dyn BufRead) -> io::Result<Self> {
        let mut events = Self::default();
        for line in reader.split(b'\n') {
            let line = line?;
            match serde_json::from_slice::<ServerEvent>(&line) {
                Ok(event) => events.add(&event),
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(_) => events.skipped_lines += 1,
            }
        }
        Ok(events)
    }

    fn add(&mut self, event: &ServerEvent) {
        let connection = event.peer.clone().map(ConnectionName);
        let (kind, label) = match event.event.as_str() {
            "moved" => {
                let format_end = |end: &Option<serde_json::Value>| {
                    end.as_ref().map_or_else(|| "?".to_owned(), value_text)
                };
                let initiator = event.by.as_deref().unwrap_or_default();
                let label =
                    format!("{} → {} {initiator}", format_end(&event.from), format_end(&event.to));
                (AnnotationKind::Migrate, label.trim_end().to_owned())
            }
            "joined" => (AnnotationKind::Join, String::new()),
            "reset" => (AnnotationKind::Reset, String::new()),
            "declined" => (AnnotationKind::Declined, String::new()),
            "opened" => (AnnotationKind::Opened, String::new()),
            "closed" => (AnnotationKind::Closed, String::new()),
            other => (AnnotationKind::Note, other.to_owned()),
        };
        self.events.push((Time::from_nanos(event.at_ns), kind, connection, label));
    }

    /// Adds the events to a timeline, as observed by `host`.
    pub fn append_to(&self, timeline: &mut Timeline, host: &str) {
        for (at, kind, connection, label) in &self.events {
            timeline.annotations.push(Annotation {
                at_us: timeline.micros_since_origin(*at),
                kind: *kind,
                host: host.to_owned(),
                connection: connection.clone(),
                label: label.clone(),
            });
        }
        timeline.annotations.sort_by_key(|mark| mark.at_us);
    }
}

/// Formats a string without quotes, any other value as JSON.
fn value_text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_annotations_and_other_lines_are_counted() {
        let text =
            b"{\"at_ns\":3000000,\"event\":\"moved\",\"from\":\"a\",\"to\":7,\"by\":\"server\",\"peer\":\"10.99.0.2:5001\"}\n\
            listening on 10.99.0.1:443\n\
            {\"at_ns\":2000000,\"event\":\"joined\",\"peer\":\"10.99.0.2:5000\"}\n\
            {\"at_ns\":4000000,\"event\":\"limit\",\"limit\":\"x\"}\n\n\
            {\"at_ns\":5000000,\"ev";
        let events = ServerEvents::read(&mut &text[..]).unwrap();
        assert_eq!(events.skipped_lines, 2);
        let mut timeline = Timeline::new("t", Time::from_nanos(1_000_000));
        events.append_to(&mut timeline, "server");
        let annotations: Vec<_> = timeline
            .annotations
            .iter()
            .map(|mark| (mark.at_us, mark.kind, mark.label.as_str()))
            .collect();
        assert_eq!(
            annotations,
            [
                (1_000, AnnotationKind::Join, ""),
                (2_000, AnnotationKind::Migrate, "a → 7 server"),
                (3_000, AnnotationKind::Note, "limit"),
            ]
        );
        let connections: Vec<_> = timeline
            .annotations
            .iter()
            .map(|mark| mark.connection.as_ref().map(|name| name.0.as_str()))
            .collect();
        assert_eq!(connections, [Some("10.99.0.2:5000"), Some("10.99.0.2:5001"), None]);
    }
}
