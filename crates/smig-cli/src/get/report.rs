//! The result of a fetched URL, as text and as JSON.

use std::time::Duration;

use http::{StatusCode, Version};
use serde::Serialize;
use smig::{Segment, StreamInfo};

use super::sink;
use crate::exit::CliError;

/// Result of one URL.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) status: Option<StatusCode>,
    pub(super) version: Option<Version>,
    /// Time from the last attempt's request to its response header section.
    pub(super) time_to_first_byte: Option<Duration>,
    pub(super) total_time: Duration,
    /// Bytes from an earlier run.
    pub(super) resumed_bytes: u64,
    /// Length of the destination in bytes.
    pub(super) length: u64,
    pub(super) attempts: u32,
    pub(super) digest: Option<[u8; 32]>,
    pub(super) outcome: FetchOutcome,
    ranges: Vec<ReceivedRange>,
    current_body: Option<(StreamInfo, u64)>,
}

/// Whether the URL was skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    #[default]
    NotSkipped,
    /// The file already existed.
    Skipped,
}

/// Bytes received over one connection, as offsets in the file. The sessions of an origin are numbered from 1, and
/// from 1 again after all of them have ended; HTTP/1.1 connections have no number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ReceivedRange {
    attempt: u32,
    session: Option<u32>,
    connection: Option<String>,
    by: RangeCause,
    start: u64,
    end: u64,
}

/// Why a connection carries a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RangeCause {
    /// The request was sent there.
    Request,
    /// The stream migrated there.
    Migration,
    /// A range request for the rest was sent there.
    RangeRequest,
}

impl Report {
    /// Records the start of a body that is written at `offset`.
    pub(super) fn begin_body(&mut self, info: Option<StreamInfo>, offset: u64) {
        self.current_body = info.map(|info| (info, offset));
    }

    /// Records the end of a body, complete or not; the destination holds `destination_bytes`.
    pub(super) fn end_body(&mut self, start: u64, destination_bytes: u64) {
        self.length = destination_bytes;
        match self.current_body.take() {
            Some((info, at)) => self.ranges.extend(to_ranges(
                &info.segments(),
                self.attempts,
                at,
                destination_bytes,
            )),
            None if destination_bytes > start => {
                self.ranges.push(ReceivedRange {
                    attempt: self.attempts,
                    session: None,
                    connection: None,
                    by: RangeCause::Request,
                    start,
                    end: destination_bytes,
                });
            }
            None => {}
        }
    }

    /// Discards the ranges and the resumed length: the next body starts at 0.
    pub(super) fn discard_ranges(&mut self) {
        self.ranges.clear();
        self.resumed_bytes = 0;
    }

    /// Returns how often the body migrated to another connection.
    fn migration_count(&self) -> usize {
        self.ranges.iter().filter(|range| range.by == RangeCause::Migration).count()
    }

    pub(super) fn to_json(
        &self,
        url: &str,
        file: Option<String>,
        failure: Option<&CliError>,
    ) -> String {
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        serde_json::json!({
            "url": url,
            "file": file,
            "status": self.status.map(|status| status.as_u16()),
            "protocol": self.version.map(protocol_name),
            "bytes": self.length,
            "resumed_from": self.resumed_bytes,
            "skipped": self.outcome == FetchOutcome::Skipped,
            "ttfb_ms": self.time_to_first_byte.map(millis),
            "total_ms": millis(self.total_time),
            "attempts": self.attempts,
            "migrations": self.migration_count(),
            "ranges": self.ranges,
            "sha256": self.digest.as_ref().map(sink::to_hex),
            "error": failure.map(|failure| serde_json::json!({
                "exit_code": failure.exit.code(),
                "message": failure.to_string(),
            })),
        })
        .to_string()
    }

    /// Returns a summary as text.
    pub(super) fn summary(&self, name: &str) -> String {
        if self.outcome == FetchOutcome::Skipped {
            return format!("{name} already exists");
        }
        let seconds = self.total_time.as_secs_f64();
        let received = self.length.saturating_sub(self.resumed_bytes);
        let rate = if seconds > 0.0 { received as f64 / seconds / 1e6 } else { 0.0 };
        let mut text = format!("{name}: {} bytes in {seconds:.2} s, {rate:.1} MB/s", self.length);
        if self.resumed_bytes > 0 {
            text.push_str(&format!(", resumed after {} bytes", self.resumed_bytes));
        }
        match self.migration_count() {
            0 => {}
            1 => text.push_str(", migrated once"),
            migrations => text.push_str(&format!(", migrated {migrations} times")),
        }
        if self.ranges.iter().any(|range| range.by == RangeCause::RangeRequest) {
            text.push_str(", continued on another connection");
        }
        text
    }

    /// Returns one line for each range of bytes, with the connection that carried it.
    pub(super) fn details(&self) -> Vec<String> {
        let shown = |range: &ReceivedRange| {
            let carrier = match (&range.connection, range.session) {
                (None, _) => "HTTP/1.1".to_owned(),
                (Some(connection), Some(session @ 2..)) => {
                    format!("connection {connection} of session {session}")
                }
                (Some(connection), _) => format!("connection {connection}"),
            };
            let why = match range.by {
                RangeCause::Request => "",
                RangeCause::Migration => ", where it migrated",
                RangeCause::RangeRequest => ", by a range request",
            };
            format!("bytes {} to {} over {carrier}{why}", range.start, range.end)
        };
        self.ranges.iter().map(shown).collect()
    }
}

/// Converts the segments of a body written at `offset` to ranges, up to `destination_bytes`.
fn to_ranges(
    segments: &[Segment],
    attempt: u32,
    offset: u64,
    destination_bytes: u64,
) -> Vec<ReceivedRange> {
    let shifted = segments.iter().enumerate().map(|(index, segment)| ReceivedRange {
        attempt,
        session: Some(segment.session),
        connection: Some(segment.connection.to_string()),
        by: match index {
            _ if segment.is_continuation => RangeCause::RangeRequest,
            0 => RangeCause::Request,
            _ => RangeCause::Migration,
        },
        start: offset + segment.start,
        end: (offset + segment.end).min(destination_bytes),
    });
    shifted.filter(|range| range.start < range.end).collect()
}

const fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "h2",
        Version::HTTP_10 => "http/1.0",
        _ => "http/1.1",
    }
}
