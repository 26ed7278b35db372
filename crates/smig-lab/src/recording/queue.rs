//! Records the queue of one direction of a link from the link's log, in total and by connection.
//!
//! Keeps the shape, not every packet: for each interval the point with the longest queue and the
//! last point. Every drop is kept. The log is written on the thread that carries packets, so
//! recording costs only a few comparisons and an occasional push.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig_link::{LinkEvent, LinkEventKind, LinkLog, Time};

use crate::timeline::{Column, ConnectionName, Direction, Subject, Track, micros_after};

/// Records a link's queue; clones share the recording.
#[derive(Debug, Clone)]
pub struct QueueRecorder {
    direction: Direction,
    record: Arc<Mutex<QueueRecord>>,
}

/// Length of the queue at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueueLength {
    at: Time,
    packets: u64,
    bytes: u64,
}

/// One connection's packets in the queue.
#[derive(Debug)]
struct ConnectionShare {
    /// Port of the client.
    port: u16,
    /// Number of queued packets now.
    packets: u64,
    /// Number of queued packets when the queue was longest in the current interval.
    packets_at_longest: u64,
    /// Number of queued packets over time; only changes are recorded.
    points: Vec<(Time, u64)>,
}

#[derive(Debug)]
struct QueueRecord {
    direction: Direction,
    resolution: Duration,
    /// Points of completed intervals.
    lengths: Vec<QueueLength>,
    /// One per connection; there are few, so a linear search is cheaper than a map.
    shares: Vec<ConnectionShare>,
    /// Start of the current interval.
    interval_start: Time,
    longest_length: Option<QueueLength>,
    last_length: Option<QueueLength>,
    drops: Vec<(Time, u64)>,
}

impl QueueRecorder {
    /// Creates a recorder of one direction with at most two points per interval of `resolution`.
    #[must_use]
    pub fn new(direction: Direction, resolution: Duration) -> Self {
        let record = QueueRecord {
            direction,
            resolution,
            // One minute at two points per millisecond, to avoid reallocation on the thread that
            // carries packets.
            lengths: Vec::with_capacity(1 << 17),
            shares: Vec::with_capacity(16),
            interval_start: Time::ZERO,
            longest_length: None,
            last_length: None,
            drops: Vec::with_capacity(1 << 10),
        };
        Self { direction, record: Arc::new(Mutex::new(record)) }
    }

    /// Returns the sink for the link's log.
    #[must_use]
    pub fn log(&self) -> Box<dyn LinkLog + Send> {
        Box::new(self.clone())
    }

    /// Returns tracks of the queue, of each connection's part of it, and of the drops if there were
    /// any, on an axis that starts at `origin`. `client` is the clients' address.
    #[must_use]
    pub fn flush_to_tracks(&self, origin: Time, client: IpAddr) -> Vec<Track> {
        let mut record = self.lock();
        record.close_interval();
        let direction = self.direction;
        let subject = Subject::Link { direction, connection: None };
        let mut queue = Track::new(subject.clone());
        for length in &record.lengths {
            let values =
                [(Column::QueuePackets, length.packets), (Column::QueueBytes, length.bytes)];
            queue.push(micros_after(origin, length.at), &values);
        }
        let mut drops = Track::new(subject);
        for (at, bytes) in &record.drops {
            drops.push(micros_after(origin, *at), &[(Column::DroppedBytes, *bytes)]);
        }
        let shares = record.shares.iter().map(|share| {
            let name = SocketAddr::new(client, share.port).to_string();
            let connection = Some(ConnectionName(name));
            let mut track = Track::new(Subject::Link { direction, connection });
            for (at, packets) in &share.points {
                track.push(micros_after(origin, *at), &[(Column::QueuePackets, *packets)]);
            }
            track
        });
        [queue]
            .into_iter()
            .chain(shares)
            .chain([drops])
            .filter(|track| !track.at_us.is_empty())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, QueueRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkLog for QueueRecorder {
    fn record(&mut self, event: LinkEvent) {
        self.lock().apply(event);
    }
}

impl QueueRecord {
    fn apply(&mut self, event: LinkEvent) {
        if event.at.since(self.interval_start) >= self.resolution {
            self.close_interval();
            self.interval_start = event.at;
        }
        self.count_packet(&event);
        let packets = event.queue_packets as u64;
        let length = QueueLength { at: event.at, packets, bytes: event.queue_bytes };
        if self.longest_length.is_none_or(|longest| length.bytes >= longest.bytes) {
            self.longest_length = Some(length);
            self.shares.iter_mut().for_each(|share| share.packets_at_longest = share.packets);
        }
        self.last_length = Some(length);
    }

    /// Counts a packet in or out of its connection's part of the queue; records a drop.
    fn count_packet(&mut self, event: &LinkEvent) {
        let is_enqueued = match event.kind {
            LinkEventKind::Enqueue => true,
            LinkEventKind::Dequeue => false,
            LinkEventKind::Drop(reason) => {
                self.drops.push((event.at, event.bytes));
                if !reason.shortens_queue() {
                    return;
                }
                false
            }
        };
        let port = match self.direction {
            Direction::ToClient => event.ports.destination,
            Direction::ToServer => event.ports.source,
        };
        if port == 0 {
            return;
        }
        let index = self.shares.iter().position(|share| share.port == port).unwrap_or_else(|| {
            self.shares.push(ConnectionShare {
                port,
                packets: 0,
                packets_at_longest: 0,
                points: Vec::new(),
            });
            self.shares.len() - 1
        });
        let share = &mut self.shares[index];
        share.packets =
            if is_enqueued { share.packets + 1 } else { share.packets.saturating_sub(1) };
    }

    /// Ends the current interval: keeps its longest point, and its last point if that differs.
    fn close_interval(&mut self) {
        let Some(last_length) = self.last_length.take() else { return };
        let longest_length = self.longest_length.take().filter(|longest| *longest != last_length);
        self.lengths.extend(longest_length.into_iter().chain([last_length]));
        for share in &mut self.shares {
            let longest = longest_length.map(|longest| (longest.at, share.packets_at_longest));
            for (at, packets) in longest.into_iter().chain([(last_length.at, share.packets)]) {
                if share.points.last().map_or(0, |(_, before)| *before) != packets {
                    share.points.push((at, packets));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smig_link::LinkEventKind::{Dequeue, Enqueue};
    use smig_link::{DropReason, Link, LinkSpec, Ports, QueueLimit, Rate};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 99, 0, 2));

    fn event(at_us: u64, kind: LinkEventKind, packets: usize) -> LinkEvent {
        event_of(5_000, at_us, kind, packets)
    }

    fn event_of(port: u16, at_us: u64, kind: LinkEventKind, packets: usize) -> LinkEvent {
        let at = Time::from_nanos(at_us * 1_000);
        LinkEvent {
            at,
            kind,
            bytes: 1_500,
            ports: Ports { source: 443, destination: port },
            queue_packets: packets,
            queue_bytes: packets as u64 * 1_500,
        }
    }

    #[test]
    fn peaks_survive_downsampling() {
        let recorder = QueueRecorder::new(Direction::ToClient, Duration::from_millis(1));
        let mut log = recorder.log();
        // 1,000 events in 10 ms: a sawtooth between 0 and 50 packets.
        for step in 0..1_000_u64 {
            let tooth_offset = usize::try_from(step % 100).unwrap();
            let packets = if tooth_offset < 50 { tooth_offset } else { 100 - tooth_offset };
            let kind = if tooth_offset < 50 { Enqueue } else { Dequeue };
            log.record(event(5_000 + step * 10, kind, packets));
        }
        let tracks = recorder.flush_to_tracks(Time::from_nanos(5_000_000), CLIENT);
        assert_eq!(tracks.len(), 2, "no drops, no track of drops");
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
        let tracks = recorder.flush_to_tracks(Time::ZERO, CLIENT);
        // One packet is transmitted at once, two are queued.
        assert_eq!(tracks[1].points(Column::DroppedBytes).count(), 7);
        assert_eq!(tracks[0].last(Column::QueuePackets), Some(2));
    }

    #[test]
    fn the_queue_is_the_sum_of_its_connections() {
        let recorder = QueueRecorder::new(Direction::ToClient, Duration::from_millis(1));
        let mut log = recorder.log();
        let pushed_out = LinkEventKind::Drop(DropReason::PushedOut);
        for (at_ms, port, kind, packets) in [
            (1, 5_000, Enqueue, 1),
            (2, 5_001, Enqueue, 2),
            (3, 5_001, Enqueue, 3),
            (4, 5_001, LinkEventKind::Drop(DropReason::Full), 3),
            (5, 5_000, Dequeue, 2),
            (6, 5_001, pushed_out, 1),
        ] {
            log.record(event_of(port, at_ms * 1_000, kind, packets));
        }
        let tracks = recorder.flush_to_tracks(Time::ZERO, CLIENT);
        let points = |name: Option<&str>| -> Vec<_> {
            let connection = name.map(|name| ConnectionName(name.into()));
            let subject = Subject::Link { direction: Direction::ToClient, connection };
            let track = tracks.iter().find(|track| track.subject == subject).unwrap();
            track.points(Column::QueuePackets).map(|(at, packets)| (at / 1_000, packets)).collect()
        };
        assert_eq!(points(None), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 2), (6, 1)]);
        assert_eq!(points(Some("10.99.0.2:5000")), [(1, 1), (5, 0)]);
        assert_eq!(points(Some("10.99.0.2:5001")), [(2, 1), (3, 2), (6, 1)]);
    }
}
