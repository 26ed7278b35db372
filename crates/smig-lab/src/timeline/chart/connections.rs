//! The connections of a timeline, with a number and a colour each.

use smig_chart::format_bytes;
use smig_chart::svg::Colour;

use crate::timeline::{AnnotationKind, Column, ConnectionName, Subject, Timeline, Track};

/// A connection that carried data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Connection {
    pub(super) name: ConnectionName,
    /// Number in order of opening, from 1, among the connections that carried data.
    pub(super) number: usize,
    pub(super) colour: Colour,
    /// Congestion controls of its sender, in order.
    pub(super) congestion_controls: Vec<String>,
    /// Bytes that it carried: acknowledged ones, or those of its streams if these are more, as without kernel samples.
    pub(super) carried_bytes: u64,
}

/// The connections of a timeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Connections {
    /// Host that sent the most data.
    pub(super) sender: String,
    used_connections: Vec<Connection>,
    /// Number of connections that were opened but carried no significant data.
    pub(super) unused_count: usize,
}

/// Colours by number, as many as a browser has connections to a host over HTTP/1.1.
const COLOURS: [Colour; 6] =
    [Colour::Blue, Colour::Amber, Colour::Teal, Colour::Purple, Colour::Slate, Colour::Brown];

/// A connection with at most 1 / `MIN_SHARE_DIVISOR` of the sender's bytes counts as unused.
const MIN_SHARE_DIVISOR: u64 = 1_000;

impl Connections {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let sender = main_sender(timeline);
        let mut candidates: Vec<(u64, &ConnectionName, u64)> = Vec::new();
        for track in &timeline.tracks {
            match &track.subject {
                Subject::Connection { host, connection } if *host == sender => {
                    let begin_us = track.at_us.first().copied().unwrap_or(0);
                    candidates.push((
                        begin_us,
                        connection,
                        track.last(Column::AckedBytes).unwrap_or(0),
                    ));
                }
                _ => {}
            }
        }
        // Connections that occur only in streams' tracks, in a run without kernel samples.
        for track in &timeline.tracks {
            let Subject::Stream { connection, .. } = &track.subject else { continue };
            let carried = track.last(Column::CarriedBytes).unwrap_or(0);
            match candidates.iter_mut().find(|(_, name, _)| *name == connection) {
                Some((_, _, bytes)) => *bytes = (*bytes).max(carried),
                None => {
                    candidates.push((
                        track.at_us.first().copied().unwrap_or(0),
                        connection,
                        carried,
                    ));
                }
            }
        }
        candidates.sort_by_key(|(begin, ..)| *begin);
        let total: u64 = candidates.iter().map(|(.., bytes)| bytes).sum();
        let (used_candidates, unused_candidates): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(.., bytes)| *bytes > total / MIN_SHARE_DIVISOR);
        let used_connections = used_candidates
            .into_iter()
            .enumerate()
            .map(|(index, (_, name, bytes))| Connection {
                name: name.clone(),
                number: index + 1,
                colour: COLOURS[index % COLOURS.len()],
                congestion_controls: congestion_controls_of(timeline, &sender, name),
                carried_bytes: bytes,
            })
            .collect();
        Self { sender, used_connections, unused_count: unused_candidates.len() }
    }

    pub(super) fn used_connections(&self) -> impl Iterator<Item = &Connection> {
        self.used_connections.iter()
    }

    pub(super) fn by_name(&self, name: &ConnectionName) -> Option<&Connection> {
        self.used_connections.iter().find(|connection| connection.name == *name)
    }

    pub(super) fn number(&self, name: &ConnectionName) -> Option<usize> {
        Some(self.by_name(name)?.number)
    }

    /// Returns a description for the accessible text.
    pub(super) fn describe(&self) -> String {
        let each = self.used_connections.iter().map(|one| {
            let Connection { number, carried_bytes, .. } = one;
            format!("Connection {number} carried {}", format_bytes(*carried_bytes))
        });
        let text = each.collect::<Vec<_>>().join(". ");
        if text.is_empty() { "No connection carried data.".into() } else { format!("{text}.") }
    }
}

impl Connection {
    /// Returns the title: `2 (bbr)`.
    pub(super) fn title(&self) -> String {
        let number = self.number;
        if self.congestion_controls.is_empty() {
            number.to_string()
        } else {
            format!("{number} ({})", self.congestion_controls.join(", then "))
        }
    }

    /// Returns the track of the sender's kernel.
    pub(super) fn track<'a>(&self, timeline: &'a Timeline) -> Option<&'a Track> {
        let sender = main_sender(timeline);
        timeline.tracks.iter().find(|track| {
            matches!(&track.subject, Subject::Connection { host, connection }
                if *host == sender && *connection == self.name)
        })
    }
}

/// Returns the host with the most acknowledged bytes; the first one of equals.
fn main_sender(timeline: &Timeline) -> String {
    let mut totals: Vec<(&str, u64)> = Vec::new();
    for track in &timeline.tracks {
        let Subject::Connection { host, .. } = &track.subject else { continue };
        let acked = track.last(Column::AckedBytes).unwrap_or(0);
        match totals.iter_mut().find(|(name, _)| name == host) {
            Some((_, total)) => *total += acked,
            None => totals.push((host, acked)),
        }
    }
    let main = totals.into_iter().rev().max_by_key(|(_, total)| *total);
    main.map(|(host, _)| host.to_owned()).unwrap_or_default()
}

fn congestion_controls_of(timeline: &Timeline, sender: &str, name: &ConnectionName) -> Vec<String> {
    timeline
        .annotations
        .iter()
        .filter(|mark| mark.kind == AnnotationKind::CongestionControl && mark.host == sender)
        .filter(|mark| mark.connection.as_ref() == Some(name))
        .map(|mark| mark.label.clone())
        .collect()
}
