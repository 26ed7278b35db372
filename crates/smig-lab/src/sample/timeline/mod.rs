//! Everything that was sampled of one run.
//!
//! Owns the words of the file and how parts that were sampled apart come onto one axis. Times are
//! whole microseconds after the timeline's origin, values are whole numbers, and every column's
//! name ends in its unit: a file can be read without this code.

mod file;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::link::Time;
pub use file::ReadError;
pub use words::{Column, ConnectionName, Direction, LinkFacts, MarkKind, Outcome, Subject};

/// What the whole timeline is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the file's format: 1.
    pub version: u32,
    /// One line for people.
    pub title: String,
    /// `CLOCK_MONOTONIC` at 0 µs, in nanoseconds.
    pub origin_ns: u64,
    /// The link, as far as the picture needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkFacts>,
    /// Whatever else belongs to the run: scenario, versions, kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// Values over time; all columns are as long as the times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// Of what.
    pub of: Subject,
    /// Microseconds after the origin, never falling.
    pub at_us: Vec<u64>,
    /// The values. Counters grow from the connection's begin.
    pub columns: BTreeMap<Column, Vec<u64>>,
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Microseconds after the origin.
    pub at_us: u64,
    /// What happened.
    pub kind: MarkKind,
    /// Who saw it: a host's or a program's name.
    pub host: String,
    /// The connection that it happened to; for a move the one that it led to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// More for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// Something with a begin and an end: an object from its request to its last byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which one.
    pub name: String,
    /// What it is one of: the picture has a row for each group.
    pub group: String,
    /// When it was asked for, in microseconds after the origin.
    pub from_us: u64,
    /// When its first byte came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// When it ended.
    pub to_us: u64,
    /// Bytes of its body that came.
    pub bytes: u64,
    /// The connection that brought its last byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// How it ended.
    pub outcome: Outcome,
}

/// Everything that was sampled of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// What it is about.
    pub head: Head,
    /// Values over time.
    pub tracks: Vec<Track>,
    /// Moments.
    pub marks: Vec<Mark>,
    /// Objects.
    pub spans: Vec<Span>,
}

impl Timeline {
    /// An empty timeline whose axis begins at `origin`.
    #[must_use]
    pub fn new(title: &str, origin: Time) -> Self {
        let head = Head {
            version: file::VERSION,
            title: title.to_owned(),
            origin_ns: origin.as_nanos(),
            link: None,
            facts: BTreeMap::new(),
        };
        Self { head, tracks: Vec::new(), marks: Vec::new(), spans: Vec::new() }
    }

    /// `CLOCK_MONOTONIC` at 0 µs.
    #[must_use]
    pub const fn origin(&self) -> Time {
        Time::from_nanos(self.head.origin_ns)
    }

    /// Where a moment lies on the axis; what was before the origin lies at 0.
    #[must_use]
    pub const fn micros(&self, at: Time) -> u64 {
        micros_after(self.origin(), at)
    }

    /// The last moment of which anything is known, in microseconds.
    #[must_use]
    pub fn end_us(&self) -> u64 {
        let tracks = self.tracks.iter().filter_map(|track| track.at_us.last().copied());
        let marks = self.marks.iter().map(|mark| mark.at_us);
        let spans = self.spans.iter().map(|span| span.to_us);
        tracks.chain(marks).chain(spans).max().unwrap_or(0)
    }
}

impl Track {
    /// A track without values.
    #[must_use]
    pub const fn new(of: Subject) -> Self {
        Self { of, at_us: Vec::new(), columns: BTreeMap::new() }
    }

    /// Appends one moment. A column that is new, or missing here, is 0 where it was not given.
    pub fn push(&mut self, at_us: u64, values: &[(Column, u64)]) {
        let before = self.at_us.len();
        self.at_us.push(at_us.max(self.at_us.last().copied().unwrap_or(0)));
        for (column, value) in values {
            let column = self.columns.entry(*column).or_insert_with(|| vec![0; before]);
            column.truncate(before);
            column.push(*value);
        }
        for column in self.columns.values_mut() {
            column.resize(before + 1, 0);
        }
    }

    /// A column with its times, in order.
    pub fn points(&self, column: Column) -> impl Iterator<Item = (u64, u64)> {
        let values = self.columns.get(&column).map_or(&[][..], Vec::as_slice);
        self.at_us.iter().copied().zip(values.iter().copied())
    }

    /// The column's last value at or before a moment.
    #[must_use]
    pub fn value_at(&self, column: Column, at_us: u64) -> Option<u64> {
        let after = self.at_us.partition_point(|at| *at <= at_us);
        self.columns.get(&column)?.get(after.checked_sub(1)?).copied()
    }

    /// The column's last value.
    #[must_use]
    pub fn last(&self, column: Column) -> Option<u64> {
        self.columns.get(&column)?.last().copied()
    }
}

/// Microseconds from the one to the other, 0 when that is negative.
pub(super) const fn micros_after(origin: Time, at: Time) -> u64 {
    at.as_nanos().saturating_sub(origin.as_nanos()) / 1_000
}
