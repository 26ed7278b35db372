//! Which connections there were, with a number and a colour each.

use crate::report::bytes;
use crate::report::svg::Colour;
use crate::sample::{Column, ConnectionName, MarkKind, Subject, Timeline, Track};

/// One that carried something.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Connection {
    pub(super) name: ConnectionName,
    /// In order of opening, from 1, among those that carried something.
    pub(super) number: usize,
    pub(super) colour: Colour,
    /// The congestion controls that its sender had, in order.
    pub(super) controls: Vec<String>,
    /// Bytes that its sender got acknowledged.
    pub(super) acked: u64,
}

/// All of a timeline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Connections {
    /// The host that sent most.
    pub(super) sender: String,
    used: Vec<Connection>,
    /// Opened, but of no account.
    pub(super) unused: usize,
}

/// By number. Neighbours differ in lightness.
const COLOURS: [Colour; 5] =
    [Colour::Blue, Colour::Amber, Colour::Teal, Colour::Purple, Colour::Slate];

/// A connection that carried less of the sender's bytes than one in this many is a spare.
const LEAST_SHARE: u64 = 1_000;

impl Connections {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let sender = sender(timeline);
        let mut all: Vec<(u64, &ConnectionName, u64)> = Vec::new();
        for track in &timeline.tracks {
            match &track.of {
                Subject::Connection { host, connection } if *host == sender => {
                    let begin = track.at_us.first().copied().unwrap_or(0);
                    all.push((begin, connection, track.last(Column::AckedBytes).unwrap_or(0)));
                }
                _ => {}
            }
        }
        // Names that only streams know: of a run without the kernel's word.
        for track in &timeline.tracks {
            let Subject::Stream { connection, .. } = &track.of else { continue };
            let carried = track.last(Column::CarriedBytes).unwrap_or(0);
            match all.iter_mut().find(|(_, name, _)| *name == connection) {
                Some((_, _, bytes)) => *bytes = (*bytes).max(carried),
                None => {
                    all.push((track.at_us.first().copied().unwrap_or(0), connection, carried));
                }
            }
        }
        all.sort_by_key(|(begin, ..)| *begin);
        let total: u64 = all.iter().map(|(.., bytes)| bytes).sum();
        let (used, unused): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(.., bytes)| *bytes > total / LEAST_SHARE);
        let used = used
            .into_iter()
            .enumerate()
            .map(|(index, (_, name, acked))| Connection {
                name: name.clone(),
                number: index + 1,
                colour: COLOURS[index % COLOURS.len()],
                controls: controls(timeline, &sender, name),
                acked,
            })
            .collect();
        Self { sender, used, unused: unused.len() }
    }

    pub(super) fn used(&self) -> impl Iterator<Item = &Connection> {
        self.used.iter()
    }

    pub(super) fn by_name(&self, name: &ConnectionName) -> Option<&Connection> {
        self.used.iter().find(|connection| connection.name == *name)
    }

    pub(super) fn number(&self, name: &ConnectionName) -> Option<usize> {
        Some(self.by_name(name)?.number)
    }

    /// For those who do not see the picture.
    pub(super) fn describe(&self) -> String {
        let each = self.used.iter().map(|one| {
            let Connection { number, acked, .. } = one;
            format!("Connection {number} carried {}", bytes(*acked))
        });
        let text = each.collect::<Vec<_>>().join(". ");
        if text.is_empty() { "No connection carried anything.".into() } else { format!("{text}.") }
    }
}

impl Connection {
    /// `2 (bbr)`
    pub(super) fn title(&self) -> String {
        let number = self.number;
        if self.controls.is_empty() {
            number.to_string()
        } else {
            format!("{number} ({})", self.controls.join(", then "))
        }
    }

    /// What the kernel of the sender knows of it.
    pub(super) fn track<'a>(&self, timeline: &'a Timeline) -> Option<&'a Track> {
        let sender = sender(timeline);
        timeline.tracks.iter().find(|track| {
            matches!(&track.of, Subject::Connection { host, connection }
                if *host == sender && *connection == self.name)
        })
    }
}

/// The host whose connections got most acknowledged; of equal ones the first.
fn sender(timeline: &Timeline) -> String {
    let mut totals: Vec<(&str, u64)> = Vec::new();
    for track in &timeline.tracks {
        let Subject::Connection { host, .. } = &track.of else { continue };
        let acked = track.last(Column::AckedBytes).unwrap_or(0);
        match totals.iter_mut().find(|(name, _)| name == host) {
            Some((_, total)) => *total += acked,
            None => totals.push((host, acked)),
        }
    }
    let most = totals.into_iter().rev().max_by_key(|(_, total)| *total);
    most.map(|(host, _)| host.to_owned()).unwrap_or_default()
}

fn controls(timeline: &Timeline, sender: &str, name: &ConnectionName) -> Vec<String> {
    timeline
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::CongestionControl && mark.host == sender)
        .filter(|mark| mark.connection.as_ref() == Some(name))
        .map(|mark| mark.label.clone())
        .collect()
}
