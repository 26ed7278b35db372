//! The queue of one direction of a link, from the link's log.
//!
//! Keeps the shape, not every packet: of each interval the moment with the longest queue and the
//! last one. Drops are kept one by one. The log is written on the thread that carries packets, so
//! recording is a comparison or a push.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::timeline::{Column, Direction, Subject, Track, micros_after};
use crate::link::{LinkEvent, LinkEventKind, LinkLog, Time};

/// Records a link's queue; clones share what was recorded.
#[derive(Debug, Clone)]
pub struct QueueRecorder {
    direction: Direction,
    record: Arc<Mutex<Record>>,
}

/// How long the queue was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    at: Time,
    packets: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Record {
    resolution: Duration,
    /// What is certain.
    lengths: Vec<Length>,
    /// The interval that runs.
    begin: Time,
    longest: Option<Length>,
    last: Option<Length>,
    drops: Vec<(Time, u64)>,
}

impl QueueRecorder {
    /// Records one direction, with at most two points in each interval of `resolution`.
    #[must_use]
    pub fn new(direction: Direction, resolution: Duration) -> Self {
        let record = Record {
            resolution,
            // A minute at two points a millisecond, so that the carrying thread need not grow it.
            lengths: Vec::with_capacity(1 << 17),
            begin: Time::ZERO,
            longest: None,
            last: None,
            drops: Vec::with_capacity(1 << 10),
        };
        Self { direction, record: Arc::new(Mutex::new(record)) }
    }

    /// What the link writes to.
    #[must_use]
    pub fn log(&self) -> Box<dyn LinkLog + Send> {
        Box::new(self.clone())
    }

    /// The queue, and the drops if there were any, on an axis that begins at `origin`.
    #[must_use]
    pub fn tracks(&self, origin: Time) -> Vec<Track> {
        let record = self.lock();
        let of = Subject::Link { direction: self.direction, connection: None };
        let mut queue = Track::new(of.clone());
        for length in record.lengths.iter().chain(&record.open()) {
            let values =
                [(Column::QueuePackets, length.packets), (Column::QueueBytes, length.bytes)];
            queue.push(micros_after(origin, length.at), &values);
        }
        let mut drops = Track::new(of);
        for (at, bytes) in &record.drops {
            drops.push(micros_after(origin, *at), &[(Column::DroppedBytes, *bytes)]);
        }
        [queue, drops].into_iter().filter(|track| !track.at_us.is_empty()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkLog for QueueRecorder {
    fn record(&mut self, event: LinkEvent) {
        self.lock().take(event);
    }
}

impl Record {
    fn take(&mut self, event: LinkEvent) {
        if !matches!(event.kind, LinkEventKind::Enqueue | LinkEventKind::Dequeue) {
            self.drops.push((event.at, event.bytes));
        }
        let packets = event.queue_packets as u64;
        let length = Length { at: event.at, packets, bytes: event.queue_bytes };
        if event.at.since(self.begin) >= self.resolution {
            let over = self.open();
            self.lengths.extend(over);
            (self.begin, self.longest) = (event.at, None);
        }
        if self.longest.is_none_or(|longest| length.bytes >= longest.bytes) {
            self.longest = Some(length);
        }
        self.last = Some(length);
    }

    /// What remains of the running interval: its longest moment, and its last if that is another.
    fn open(&self) -> Vec<Length> {
        let last = self.last.filter(|last| self.longest != Some(*last));
        self.longest.into_iter().chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkEventKind::{Dequeue, Enqueue};
    use crate::link::{Link, LinkSpec, QueueLimit, Rate};

    fn event(at_us: u64, kind: LinkEventKind, packets: usize) -> LinkEvent {
        let at = Time::from_nanos(at_us * 1_000);
        LinkEvent {
            at,
            kind,
            bytes: 1_500,
            queue_packets: packets,
            queue_bytes: packets as u64 * 1_500,
        }
    }

    #[test]
    fn peaks_survive_and_the_rest_is_thinned() {
        let recorder = QueueRecorder::new(Direction::ToClient, Duration::from_millis(1));
        let mut log = recorder.log();
        // 1,000 events in 10 ms: up to 50 and down again, a saw.
        for step in 0..1_000_u64 {
            let tooth = usize::try_from(step % 100).unwrap();
            let packets = if tooth < 50 { tooth } else { 100 - tooth };
            let kind = if tooth < 50 { Enqueue } else { Dequeue };
            log.record(event(5_000 + step * 10, kind, packets));
        }
        let tracks = recorder.tracks(Time::from_nanos(5_000_000));
        assert_eq!(tracks.len(), 1, "no drops, no track of drops");
        let queue: Vec<_> = tracks[0].points(Column::QueuePackets).collect();
        assert!(queue.len() <= 22, "{} points", queue.len());
        assert_eq!(queue.iter().filter(|(_, packets)| *packets == 50).count(), 10);
        assert_eq!(queue.last(), Some(&(9_990, 1)));
        assert!(queue.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn every_drop_is_kept() {
        let recorder = QueueRecorder::new(Direction::ToServer, Duration::from_secs(1));
        let queue = QueueLimit::packets(2);
        let spec = LinkSpec::symmetric(Rate::mbit(1), Duration::from_millis(1), queue);
        let mut link = Link::with_log(&spec.to_server, 1, recorder.log()).unwrap();
        for _ in 0..10 {
            let _ = link.enqueue(Time::ZERO, vec![0_u8; 1_000]);
        }
        let tracks = recorder.tracks(Time::ZERO);
        // One goes onto the wire at once, two wait.
        assert_eq!(tracks[1].points(Column::DroppedBytes).count(), 7);
        assert_eq!(tracks[0].last(Column::QueuePackets), Some(2));
    }
}
