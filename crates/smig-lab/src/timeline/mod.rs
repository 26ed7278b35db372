//! All samples of one run on one time axis: the file, and its [`chart`].
//!
//! Owns the schema of the file, and the alignment of separately sampled parts on one axis. Times
//! are integer microseconds since the timeline's origin, values are integers, and every column's
//! name ends with its unit, so a file is readable without this code.

pub mod chart;
mod file;
pub mod page_load;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use file::ReadError;
pub use schema::{
    AddedDelay, AnnotationKind, Column, ConnectionName, Direction, LinkFacts, SpanOutcome, Subject,
};
use smig_link::Time;

/// Metadata of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the file's format: 1.
    pub version: u32,
    /// Title, one line.
    pub title: String,
    /// Value of `CLOCK_MONOTONIC` at 0 µs, in nanoseconds.
    pub origin_ns: u64,
    /// Parameters of the link for the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkFacts>,
    /// Other facts about the run, such as the trial's hash and seed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// Values over time; all columns are as long as the times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// Subject of the values.
    #[serde(rename = "of")]
    pub subject: Subject,
    /// Microseconds since the origin, never decreasing.
    pub at_us: Vec<u64>,
    /// The values. Counters count from the start of the connection.
    pub columns: BTreeMap<Column, Vec<u64>>,
}

/// An event at a point in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// Microseconds since the origin.
    pub at_us: u64,
    /// Kind of event.
    pub kind: AnnotationKind,
    /// Observer: the name of a host or a program.
    pub host: String,
    /// Connection of the event; for a migration the target connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// Additional text; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// An interval: an object from its request to its last byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Name of the object.
    pub name: String,
    /// Group of the object, by which durations are summarized.
    pub group: String,
    /// Time of the request in microseconds since the origin.
    pub from_us: u64,
    /// Time of the first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Time of the end.
    pub to_us: u64,
    /// Received bytes of its body.
    pub bytes: u64,
    /// Connection that carried its last byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// How it ended.
    pub outcome: SpanOutcome,
    /// What it was in the load of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PagePart>,
}

/// What a request was in the load of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePart {
    /// Name of the load.
    pub page: String,
    /// Name of the resource in the page.
    pub resource: String,
    /// Its kind: `document`, `style`, `image`.
    pub kind: String,
    /// Name of the span whose response named it; absent for the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_in: Option<String>,
    /// Time at which a connection began to be opened for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_us: Option<u64>,
    /// Time at which it had a connection and was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_us: Option<u64>,
    /// Time at which it had also run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_us: Option<u64>,
}

/// A load of a page, from the navigation to the end of its last resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSpan {
    /// Name of the load; its requests name it.
    pub name: String,
    /// Time of the navigation in microseconds since the origin.
    pub from_us: u64,
    /// First time at which something could be rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered_us: Option<u64>,
    /// Mean of the times at which the pictures could be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_us: Option<u64>,
    /// Time at which everything had arrived and run, or the load failed.
    pub to_us: u64,
    /// How far its times and those of its requests may be off on this clock: those of a browser are its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_error_us: Option<u64>,
    /// How it ended.
    pub outcome: SpanOutcome,
}

/// What the screen showed from an instant of a page's load on, until the next frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenFrame {
    /// Name of the load.
    pub page: String,
    /// Time at which it was painted.
    pub at_us: u64,
    /// Visual progress: how much of the final screen could be seen, in per cent.
    pub progress: u8,
    /// The picture, as JPEG in base64; absent where it is that of the frame before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub jpeg: String,
}

/// All samples of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Metadata.
    pub head: Head,
    /// Values over time.
    pub tracks: Vec<Track>,
    /// Events.
    pub annotations: Vec<Annotation>,
    /// Objects.
    pub spans: Vec<Span>,
    /// Loads of pages; their requests are among the objects.
    pub pages: Vec<PageSpan>,
    /// What the screens of browsers showed, in the order of time.
    pub frames: Vec<ScreenFrame>,
}

impl Timeline {
    /// Creates an empty timeline whose axis starts at `origin`.
    #[must_use]
    pub fn new(title: &str, origin: Time) -> Self {
        let head = Head {
            version: file::FORMAT_VERSION,
            title: title.to_owned(),
            origin_ns: origin.as_nanos(),
            link: None,
            facts: BTreeMap::new(),
        };
        Self {
            head,
            tracks: Vec::new(),
            annotations: Vec::new(),
            spans: Vec::new(),
            pages: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Returns the `CLOCK_MONOTONIC` time at 0 µs.
    #[must_use]
    pub const fn origin(&self) -> Time {
        Time::from_nanos(self.head.origin_ns)
    }

    /// Converts a time to the axis; times before the origin become 0.
    #[must_use]
    pub const fn micros_since_origin(&self, at: Time) -> u64 {
        micros_after(self.origin(), at)
    }

    /// Returns the time of the last sample, mark or end of a span, in microseconds.
    #[must_use]
    pub fn end_us(&self) -> u64 {
        let tracks = self.tracks.iter().filter_map(|track| track.at_us.last().copied());
        let marks = self.annotations.iter().map(|mark| mark.at_us);
        let spans = self.spans.iter().map(|span| span.to_us);
        let pages = self.pages.iter().map(|page| page.to_us);
        let frames = self.frames.iter().map(|frame| frame.at_us);
        tracks.chain(marks).chain(spans).chain(pages).chain(frames).max().unwrap_or(0)
    }
}

impl Track {
    /// Creates a track without values.
    #[must_use]
    pub const fn new(subject: Subject) -> Self {
        Self { subject, at_us: Vec::new(), columns: BTreeMap::new() }
    }

    /// Appends values at one point in time. A column that is new, or missing here, is 0 where it
    /// was not given.
    pub fn push(&mut self, at_us: u64, values: &[(Column, u64)]) {
        let length_before = self.at_us.len();
        self.at_us.push(at_us.max(self.at_us.last().copied().unwrap_or(0)));
        for (column, value) in values {
            let column = self.columns.entry(*column).or_insert_with(|| vec![0; length_before]);
            column.truncate(length_before);
            column.push(*value);
        }
        for column in self.columns.values_mut() {
            column.resize(length_before + 1, 0);
        }
    }

    /// Returns the points of a column in order of time.
    pub fn points(&self, column: Column) -> impl Iterator<Item = (u64, u64)> {
        let values = self.columns.get(&column).map_or(&[][..], Vec::as_slice);
        self.at_us.iter().copied().zip(values.iter().copied())
    }

    /// Returns the column's last value at or before a point in time.
    #[must_use]
    pub fn value_at(&self, column: Column, at_us: u64) -> Option<u64> {
        let after = self.at_us.partition_point(|at| *at <= at_us);
        self.columns.get(&column)?.get(after.checked_sub(1)?).copied()
    }

    /// Returns the column's last value.
    #[must_use]
    pub fn last(&self, column: Column) -> Option<u64> {
        self.columns.get(&column)?.last().copied()
    }
}

/// Returns the microseconds from `origin` to `at`; 0 if negative.
pub(crate) const fn micros_after(origin: Time, at: Time) -> u64 {
    at.as_nanos().saturating_sub(origin.as_nanos()) / 1_000
}
