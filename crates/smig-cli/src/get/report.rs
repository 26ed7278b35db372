//! The result of a fetched URL, as text and as JSON.

use std::time::Duration;

use http::{StatusCode, Version};
use serde::Serialize;
use smig::{Segment, StreamInfo};

use super::sink;
use crate::exit::Failure;

/// Result of one URL.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) status: Option<StatusCode>,
    pub(super) version: Option<Version>,
    /// From the last attempt's request to its response header section.
    pub(super) first_byte: Option<Duration>,
    pub(super) total: Duration,
    /// Bytes from an earlier run.
    pub(super) resumed: u64,
    /// Length of the destination in bytes.
    pub(super) length: u64,
    pub(super) tries: u32,
    pub(super) sum: Option<[u8; 32]>,
    pub(super) outcome: Outcome,
    ranges: Vec<Range>,
    running: Option<(StreamInfo, u64)>,
}

/// How the fetch ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    #[default]
    Fetched,
    /// The file already existed.
    Skipped,
}

/// Bytes received over one connection, as offsets in the file. HTTP/1.1 connections have no number.
/// Another attempt may use another session, which numbers its connections from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Range {
    r#try: u32,
    connection: Option<String>,
    start: u64,
    end: u64,
}

impl Report {
    /// Records the start of a body that is written at offset `at`.
    pub(super) fn body_starts(&mut self, info: Option<StreamInfo>, at: u64) {
        self.running = info.map(|info| (info, at));
    }

    /// Records the end of a body, complete or not; the destination holds `written` bytes.
    pub(super) fn body_ends(&mut self, began: u64, written: u64) {
        self.length = written;
        match self.running.take() {
            Some((info, at)) => {
                self.ranges.extend(ranges(&info.segments(), self.tries, at, written))
            }
            None if written > began => {
                self.ranges.push(Range {
                    r#try: self.tries,
                    connection: None,
                    start: began,
                    end: written,
                });
            }
            None => {}
        }
    }

    /// Discards the ranges: the next body starts at 0.
    pub(super) fn starts_over(&mut self) {
        self.ranges.clear();
        self.resumed = 0;
    }

    /// Returns how often the body migrated to another connection.
    fn moves(&self) -> usize {
        let changed = |pair: &[Range]| match pair {
            [a, b] => a.r#try == b.r#try && a.connection != b.connection && a.end == b.start,
            _ => false,
        };
        self.ranges.windows(2).filter(|pair| changed(pair)).count()
    }

    pub(super) fn json(
        &self,
        url: &str,
        file: Option<String>,
        failure: Option<&Failure>,
    ) -> String {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        serde_json::json!({
            "url": url,
            "file": file,
            "status": self.status.map(|status| status.as_u16()),
            "protocol": self.version.map(protocol),
            "bytes": self.length,
            "resumed_from": self.resumed,
            "skipped": self.outcome == Outcome::Skipped,
            "ttfb_ms": self.first_byte.map(millis),
            "total_ms": millis(self.total),
            "tries": self.tries,
            "moves": self.moves(),
            "ranges": self.ranges,
            "sha256": self.sum.as_ref().map(sink::show),
            "error": failure.map(|failure| serde_json::json!({
                "exit_code": failure.exit.code(),
                "message": failure.to_string(),
            })),
        })
        .to_string()
    }

    /// Returns a summary as text.
    pub(super) fn words(&self, name: &str) -> String {
        if self.outcome == Outcome::Skipped {
            return format!("{name} already exists");
        }
        let seconds = self.total.as_secs_f64();
        let came = self.length.saturating_sub(self.resumed);
        let rate = if seconds > 0.0 { came as f64 / seconds / 1e6 } else { 0.0 };
        let mut words = format!("{name}: {} bytes in {seconds:.2} s, {rate:.1} MB/s", self.length);
        if self.resumed > 0 {
            words.push_str(&format!(", resumed after {} bytes", self.resumed));
        }
        match self.moves() {
            0 => {}
            1 => words.push_str(", migrated once"),
            moves => words.push_str(&format!(", migrated {moves} times")),
        }
        words
    }

    /// Returns which bytes came over which connection, a line for each range.
    pub(super) fn details(&self) -> Vec<String> {
        let shown = |range: &Range| {
            let by = range.connection.as_deref().unwrap_or("HTTP/1.1");
            format!("bytes {} to {} over connection {by}", range.start, range.end)
        };
        self.ranges.iter().map(shown).collect()
    }
}

/// Converts the segments of a body written at offset `at` to ranges, up to offset `written`.
fn ranges(segments: &[Segment], r#try: u32, at: u64, written: u64) -> Vec<Range> {
    let shifted = segments.iter().map(|segment| Range {
        r#try,
        connection: Some(segment.connection.to_string()),
        start: at + segment.start,
        end: (at + segment.end).min(written),
    });
    shifted.filter(|range| range.start < range.end).collect()
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "h2",
        Version::HTTP_10 => "http/1.0",
        _ => "http/1.1",
    }
}
