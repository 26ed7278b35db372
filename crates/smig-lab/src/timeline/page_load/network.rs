//! The path of a recording at each instant: whether the link was busy, and what the senders' sockets held.

use std::collections::BTreeMap;

use super::lateness::Cause;
use crate::timeline::{
    AddedDelay, Column, ConnectionName, Direction, Span, Subject, Timeline, Track,
};

/// Bytes of a full packet.
const PACKET_BYTES: u64 = 1_500;
/// A link is busy at this share of its mean rate, even if no packet waits.
const BUSY_SHARE: f64 = 0.9;
/// Time over which a rate is measured, at least.
const MIN_RATE_WINDOW_US: u64 = 10_000;

/// The path of a timeline.
pub(super) struct Network<'a> {
    timeline: &'a Timeline,
    queue: Option<&'a Track>,
    /// The senders of all connections: of each the end that has sent more.
    senders: BTreeMap<&'a ConnectionName, &'a Track>,
    idle_round_trip_us: u64,
    bytes_per_us: f64,
    added_delay: AddedDelay,
}

/// A request on the path: what does not change while it is on its way.
pub(super) struct RequestView<'a> {
    span: &'a Span,
    sender: Option<&'a Track>,
    /// Other responses that arrive meanwhile, and itself.
    responses: Vec<&'a Span>,
}

impl<'a> Network<'a> {
    pub(super) fn of(timeline: &'a Timeline) -> Self {
        let whole_queue = Subject::Link { direction: Direction::ToClient, connection: None };
        let is_queue = |track: &&Track| {
            track.subject == whole_queue && track.columns.contains_key(&Column::QueueBytes)
        };
        let mut senders: BTreeMap<&ConnectionName, &Track> = BTreeMap::new();
        for track in &timeline.tracks {
            let Subject::Connection { connection, .. } = &track.subject else { continue };
            let sent = |track: &Track| track.last(Column::AckedBytes).unwrap_or(0);
            let sender = senders.entry(connection).or_insert(track);
            if sent(track) > sent(sender) {
                *sender = track;
            }
        }
        let link = timeline.head.link;
        Self {
            timeline,
            queue: timeline.tracks.iter().find(is_queue),
            senders,
            idle_round_trip_us: (link.map_or(0.0, |link| link.round_trip_ms) * 1e3).clamp(0.0, 1e9)
                as u64,
            bytes_per_us: link.map_or(0.0, |link| link.bits_per_s as f64 / 8e6),
            added_delay: link.map(|link| link.added_delay).unwrap_or_default(),
        }
    }

    /// Returns a request with what is on the path in an interval.
    pub(super) fn view(&self, span: &'a Span, from_us: u64, to_us: u64) -> RequestView<'a> {
        let arrives = |other: &&Span| {
            other.first_byte_us.unwrap_or(other.to_us) <= to_us && other.to_us > from_us
        };
        RequestView {
            span,
            sender: span.connection.as_ref().and_then(|name| self.senders.get(name)).copied(),
            responses: self.timeline.spans.iter().filter(arrives).collect(),
        }
    }

    /// Returns the round-trip time of the path without its queue. Where the link's delay is random, the sender's smoothed one is all
    /// that is known.
    pub(super) fn empty_round_trip_us(&self, view: &RequestView<'_>, at_us: u64) -> u64 {
        if let Some(added_us) = self.added_delay.at(at_us) {
            return self.idle_round_trip_us.saturating_add(added_us);
        }
        let srtt_us = view.sender.and_then(|sender| sender.value_at(Column::SrttUs, at_us));
        let queue_us = self.queue_bytes(at_us) as f64 / self.bytes_per_us.max(1e-9);
        srtt_us.unwrap_or(0).saturating_sub(queue_us as u64).max(self.idle_round_trip_us)
    }

    fn queue_bytes(&self, at_us: u64) -> u64 {
        self.queue.and_then(|queue| queue.value_at(Column::QueueBytes, at_us)).unwrap_or(0)
    }

    /// Returns whether the link transmits: a packet waits, or all senders together send at its rate, so that none has to.
    fn is_busy(&self, at_us: u64) -> bool {
        if self.queue_bytes(at_us) > 0 {
            return true;
        }
        if self.bytes_per_us <= 0.0 {
            return false;
        }
        let packets_us = 4.0 * PACKET_BYTES as f64 / self.bytes_per_us;
        let window_us = MIN_RATE_WINDOW_US.max(packets_us.min(1e9) as u64);
        let (from_us, to_us) =
            (at_us.saturating_sub(window_us / 2), at_us.saturating_add(window_us / 2));
        let sent_bytes: u64 = self
            .senders
            .values()
            .map(|sender| sent_at(sender, to_us).saturating_sub(sent_at(sender, from_us)))
            .sum();
        sent_bytes as f64 >= BUSY_SHARE * self.bytes_per_us * (to_us - from_us) as f64
    }

    /// Returns what a request waited for at an instant of the client, with shares that add up to 1. `is_waiting`: none of its bytes has
    /// arrived yet.
    pub(super) fn causes(
        &self,
        view: &RequestView<'_>,
        at_us: u64,
        is_waiting: bool,
    ) -> Vec<(Cause, f64)> {
        // What arrives now left the queue when the way to the client had begun.
        let way_us =
            self.empty_round_trip_us(view, at_us).saturating_sub(self.idle_round_trip_us / 2);
        let left_us = at_us.saturating_sub(way_us);
        if self.is_busy(left_us) {
            return link_shares(view, at_us);
        }
        let Some(sender) = view.sender else { return vec![(Cause::NotSeen, 1.0)] };
        let value = |column| sender.value_at(column, left_us).unwrap_or(0);
        let (window, in_flight) = (value(Column::CwndBytes), value(Column::UnackedBytes));
        let sends_more_later = sent_at(sender, view.span.to_us) > sent_at(sender, left_us);
        let is_window_full = window > 0 && in_flight.saturating_mul(10) >= window.saturating_mul(9);
        let cause = if is_recovering(sender, left_us) {
            Cause::LossRecovery
        } else if is_growing(sender, Column::ReceiverLimitedUs, left_us) {
            Cause::ReceiveWindow
        } else if value(Column::UnsentBytes) > 0 || is_window_full && sends_more_later {
            Cause::CongestionControl
        } else if in_flight > 0 || !is_waiting {
            Cause::RoundTrip
        } else {
            Cause::Server
        };
        vec![(cause, 1.0)]
    }
}

fn sent_at(sender: &Track, at_us: u64) -> u64 {
    sender.value_at(Column::SentBytes, at_us).unwrap_or(0)
}

/// Returns with whose bytes a busy link is busy: responses arrive evenly from their first byte to their last.
fn link_shares(view: &RequestView<'_>, at_us: u64) -> Vec<(Cause, f64)> {
    let mut rates: BTreeMap<Cause, f64> = BTreeMap::new();
    for other in &view.responses {
        let begin_us = other.first_byte_us.unwrap_or(other.to_us);
        if begin_us > at_us || at_us >= other.to_us {
            continue;
        }
        let rate = other.bytes as f64 / (other.to_us - begin_us).max(1_000) as f64;
        let cause = if other.name == view.span.name {
            Cause::Transfer
        } else if other.connection == view.span.connection {
            Cause::OtherStreams
        } else {
            Cause::OtherConnections
        };
        *rates.entry(cause).or_default() += rate;
    }
    let total: f64 = rates.values().sum();
    if total <= 0.0 {
        // The first bytes of the response are in the queue.
        return vec![(Cause::Transfer, 1.0)];
    }
    rates.into_iter().map(|(cause, rate)| (cause, rate / total)).collect()
}

/// Returns whether a sender considered segments as lost, or sent some again, around an instant.
fn is_recovering(sender: &Track, at_us: u64) -> bool {
    sender.value_at(Column::LostSegments, at_us).unwrap_or(0) > 0
        || is_growing(sender, Column::RetransmittedBytes, at_us)
}

/// Returns whether a counter grows between the samples before and after an instant.
fn is_growing(track: &Track, column: Column, at_us: u64) -> bool {
    let next = track.at_us.partition_point(|at| *at <= at_us);
    let (Some(values), Some(before)) = (track.columns.get(&column), next.checked_sub(1)) else {
        return false;
    };
    match (values.get(before), values.get(next)) {
        (Some(before), Some(after)) => after > before,
        _ => false,
    }
}
