//! Segments that have been sent and not acknowledged: which have arrived, which are lost (RFC 6675, RFC 8985).

use std::collections::VecDeque;
use std::time::Duration;

use smig_link::Time;

use crate::packet::{Ack, ByteRange};

/// A segment is lost when one that was sent this many segments later has arrived (FACK), without waiting for the reordering window.
const DUP_THRESHOLD: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentState {
    InFlight,
    Sacked,
    Lost,
}

/// A transmission, with what the delivery rate sample needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) range: ByteRange,
    pub(super) state: SegmentState,
    pub(super) is_retransmitted: bool,
    /// The number of this transmission.
    pub(super) number: u64,
    pub(super) sent_at: Time,
    pub(super) first_sent_at: Time,
    pub(super) delivered: f64,
    pub(super) delivered_at: Time,
    pub(super) is_app_limited: bool,
}

#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    in_flight: usize,
    sacked: usize,
    lost: usize,
    /// The latest transmission that has arrived.
    newest_delivered: Option<u64>,
}

impl Scoreboard {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) const fn sacked(&self) -> usize {
        self.sacked
    }

    pub(super) const fn lost(&self) -> usize {
        self.lost
    }

    /// Bytes that are SACKed.
    pub(super) fn sacked_bytes(&self) -> u64 {
        if self.sacked == 0 {
            return 0;
        }
        let sacked = self.segments.iter().filter(|segment| segment.state == SegmentState::Sacked);
        sacked.map(|segment| segment.range.1 - segment.range.0).sum()
    }

    pub(super) fn push(&mut self, segment: Segment) {
        self.in_flight += 1;
        self.segments.push_back(segment);
    }

    /// Applies an acknowledgement; passes each segment that has arrived to `delivered`, with its state before.
    pub(super) fn on_ack(&mut self, ack: &Ack, mut delivered: impl FnMut(&Segment)) {
        while let Some(segment) = self.segments.front()
            && segment.range.1 <= ack.cumulative
        {
            let segment = *segment;
            self.segments.pop_front();
            match segment.state {
                SegmentState::InFlight => self.in_flight -= 1,
                SegmentState::Lost => self.lost -= 1,
                SegmentState::Sacked => {
                    self.sacked -= 1;
                    continue;
                }
            }
            self.note_delivered(&segment);
            delivered(&segment);
        }
        for &(start, end) in &ack.sacks {
            let mut index = self.segments.partition_point(|segment| segment.range.0 < start);
            while let Some(segment) = self.segments.get_mut(index)
                && segment.range.1 <= end
            {
                index += 1;
                match segment.state {
                    SegmentState::InFlight => self.in_flight -= 1,
                    SegmentState::Lost => self.lost -= 1,
                    SegmentState::Sacked => continue,
                }
                let before = *segment;
                segment.state = SegmentState::Sacked;
                self.sacked += 1;
                self.note_delivered(&before);
                delivered(&before);
            }
        }
    }

    fn note_delivered(&mut self, segment: &Segment) {
        self.newest_delivered = self.newest_delivered.max(Some(segment.number));
    }

    /// Marks lost what was sent well before something that has arrived. Returns how many are newly lost, and
    /// when to check again.
    pub(super) fn detect_lost(
        &mut self,
        now: Time,
        rtt: Duration,
        reordering_window: Duration,
    ) -> (usize, Option<Time>) {
        let (mut newly_lost, mut check_at) = (0, None::<Time>);
        let Some(newest) = self.newest_delivered else { return (0, None) };
        if self.sacked == 0 && self.segments.front().is_none_or(|first| first.number > newest) {
            return (0, None);
        }
        for segment in &mut self.segments {
            if segment.state != SegmentState::InFlight || segment.number > newest {
                if !segment.is_retransmitted && segment.number > newest {
                    break;
                }
                continue;
            }
            let due = segment.sent_at + rtt + reordering_window;
            if segment.number + DUP_THRESHOLD <= newest || due <= now {
                segment.state = SegmentState::Lost;
                newly_lost += 1;
            } else {
                check_at = Some(check_at.map_or(due, |at| at.min(due)));
            }
        }
        self.in_flight -= newly_lost;
        self.lost += newly_lost;
        (newly_lost, check_at)
    }

    /// Marks everything in flight lost.
    pub(super) fn mark_all_lost(&mut self) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::InFlight {
                segment.state = SegmentState::Lost;
                self.in_flight -= 1;
                self.lost += 1;
            }
        }
    }

    /// Marks all lost segments as in flight again: they were not lost.
    pub(super) fn undo_lost(&mut self) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::Lost {
                segment.state = SegmentState::InFlight;
                self.in_flight += 1;
                self.lost -= 1;
            }
        }
    }

    /// Returns the first lost segment, to retransmit it; it counts as in flight again.
    pub(super) fn retransmit(&mut self) -> Option<&mut Segment> {
        if self.lost == 0 {
            return None;
        }
        let segment =
            self.segments.iter_mut().find(|segment| segment.state == SegmentState::Lost)?;
        segment.state = SegmentState::InFlight;
        segment.is_retransmitted = true;
        self.lost -= 1;
        self.in_flight += 1;
        Some(segment)
    }

    /// Marks the last segment lost, to send it again as a probe.
    pub(super) fn lose_last(&mut self) {
        if let Some(last) = self.segments.back_mut()
            && last.state == SegmentState::InFlight
        {
            last.state = SegmentState::Lost;
            self.in_flight -= 1;
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn segment(number: u64) -> Segment {
        Segment {
            range: (number * 100, (number + 1) * 100),
            state: SegmentState::InFlight,
            is_retransmitted: false,
            number,
            sent_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            delivered: 0.0,
            delivered_at: Time::ZERO,
            is_app_limited: false,
        }
    }

    #[test]
    fn a_segment_that_arrives_is_passed_with_the_state_it_had() {
        let mut scoreboard = Scoreboard::default();
        (0..4).for_each(|number| scoreboard.push(segment(number)));
        scoreboard.mark_all_lost();
        scoreboard.push(segment(4));
        let mut states = Vec::new();
        let mut ack = Ack { cumulative: 100, sacks: Default::default() };
        ack.sacks[..2].copy_from_slice(&[(400, 500), (200, 300)]);
        scoreboard.on_ack(&ack, |segment| states.push((segment.number, segment.state)));
        let expected =
            [(0, SegmentState::Lost), (4, SegmentState::InFlight), (2, SegmentState::Lost)];
        assert_eq!(states, expected);
        assert_eq!((scoreboard.in_flight(), scoreboard.sacked(), scoreboard.lost()), (0, 2, 2));
    }
}
