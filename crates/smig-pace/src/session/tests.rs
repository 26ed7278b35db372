//! The loop over a path of 10 Mbit/s and 50 ms without congestion control, whose process runs by its timer alone.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;
use smig_proto::policy::Interference;

use super::SessionPacer;
use crate::bounds::Bounds;
use crate::conn::{PacedConn, PacedConns};
use crate::rate::time_of;
use crate::sample::ConnSample;

const RATE: u64 = 1_250_000;
const RTT: Duration = Duration::from_millis(50);
const MSS: u32 = 1448;

#[derive(Debug, Default)]
struct TestConn {
    paced: PacedConn,
    has_bulk: bool,
    /// The peer has disappeared: nothing is acknowledged any more.
    is_dead: bool,
    /// The socket takes nothing, which shows when it is written to.
    is_full: bool,
    acknowledged: u64,
    in_flight: u64,
    /// What waits in the socket, because the peer's window is closed.
    unsent: u64,
    bulk_written: u64,
    write_calls: u64,
    retransmitted: u64,
}

impl TestConn {
    fn with_bulk() -> Self {
        Self { has_bulk: true, ..Self::default() }
    }
}

/// Connections that share a bottleneck: what is written arrives in order, at its rate.
#[derive(Debug)]
struct Path {
    now: Instant,
    conns: Vec<TestConn>,
    /// When the bottleneck has sent what is queued.
    busy_until: Instant,
    /// What is in flight, and when its acknowledgement arrives: connection, bytes.
    flight: VecDeque<(Instant, usize, u64)>,
    measured: u64,
    /// Others keep the queue full.
    has_others: bool,
}

impl Path {
    fn new(conns: usize) -> Self {
        let start = at_ms(1000);
        Self {
            now: start,
            conns: (0..conns).map(|_| TestConn::with_bulk()).collect(),
            busy_until: start,
            flight: VecDeque::new(),
            measured: 0,
            has_others: false,
        }
    }

    /// Returns until when others' packets keep the bottleneck busy: their queue changes, as that of a window does.
    fn others_until(&self) -> Instant {
        let millis = self.now.as_nanos() / 1_000_000;
        let queue = Duration::from_millis(40 + millis % 400 / 10);
        self.now + if self.has_others { queue } else { Duration::ZERO }
    }

    fn send(&mut self, index: usize, bytes: u64) {
        self.conns[index].in_flight += bytes;
        // Others keep a part of the rate, whatever bulk sends.
        let rate = if self.has_others { RATE / 100 * 69 } else { RATE };
        self.busy_until = self.busy_until.max(self.others_until()) + time_of(bytes, rate);
        self.flight.push_back((self.busy_until + RTT, index, bytes));
    }

    fn advance(&mut self, to: Instant) {
        self.now = to;
        while let Some(&(at, index, bytes)) = self.flight.front()
            && at <= to
        {
            self.flight.pop_front();
            if let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.is_dead) {
                conn.in_flight -= bytes;
                conn.acknowledged += bytes;
            }
        }
    }

    fn bulk_written(&self) -> Vec<u64> {
        self.conns.iter().map(|conn| conn.bulk_written).collect()
    }

    fn queue(&self) -> Duration {
        self.busy_until.max(self.others_until()).saturating_duration_since(self.now)
    }
}

impl PacedConns for Path {
    fn count(&self) -> usize {
        self.conns.len()
    }

    fn conn(&mut self, index: usize) -> &mut PacedConn {
        &mut self.conns[index].paced
    }

    fn measure(&mut self, index: usize) -> ConnSample {
        self.measured += 1;
        let rtt = RTT + self.queue();
        let conn = &self.conns[index];
        ConnSample {
            acknowledged: conn.acknowledged,
            in_flight: conn.in_flight,
            outstanding: conn.in_flight + conn.unsent,
            rtt,
            rtt_deviation: Duration::from_millis(1),
            min_rtt: RTT,
            retransmitted: conn.retransmitted,
            congestion_window: 0,
            delivery_rate: 0,
            mss: MSS,
        }
    }

    fn can_write(&self, index: usize) -> bool {
        self.conns[index].has_bulk
    }

    fn write(&mut self, index: usize, piece_bytes: u64) -> u64 {
        let conn = &mut self.conns[index];
        conn.write_calls += 1;
        if conn.is_full {
            return 0;
        }
        conn.bulk_written += piece_bytes;
        assert!(self.flight.len() < 10_000, "the loop does not end");
        self.send(index, piece_bytes);
        piece_bytes
    }
}

fn at_ms(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A session's process, which runs by its timer, of a millisecond's resolution, and when it is made to.
struct Process {
    pacer: SessionPacer,
    path: Path,
}

impl Process {
    fn new(conns: usize) -> Self {
        let mut process =
            Self { pacer: SessionPacer::new(Duration::from_millis(25)), path: Path::new(conns) };
        process.run(0);
        assert!(process.pacer.is_limiting());
        process
    }

    /// Runs the process now, after so many bytes of interactive data were sent. Returns the new bounds, if any.
    fn run(&mut self, interactive_bytes: u64) -> Option<Bounds> {
        let now = self.path.now;
        for conn in &mut self.path.conns {
            conn.paced.set_has_bulk(now, conn.has_bulk);
        }
        if self.path.conns.iter().any(|conn| conn.has_bulk) {
            self.pacer.start(now, &mut self.path);
        }
        let bounds = self.pacer.update(now, &mut self.path, interactive_bytes);
        if self.pacer.is_limiting() {
            self.pacer.release(now, &mut self.path);
        }
        assert!(self.pacer.deadline().is_none_or(|at| at > now), "a wake-up is in the future");
        bounds
    }

    /// Advances until then, with interactive data of so many bytes on the first connection each 10 ms.
    fn advance_with(&mut self, time: Duration, interactive_bytes: u64) {
        let (end, mut next_data) = (self.path.now + time, self.path.now);
        let mut turns = 0;
        loop {
            let tick = |at: Instant| at_ms(at.as_nanos().div_ceil(1_000_000)).max(self.path.now);
            let deadline = self.pacer.deadline().map_or(end, tick);
            let data_at = if interactive_bytes > 0 { next_data } else { end };
            let next = deadline.min(data_at).min(end);
            self.path.advance(next);
            if next == end {
                return;
            }
            if next == data_at {
                next_data = next_data + Duration::from_millis(10);
                self.path.send(0, interactive_bytes);
                self.run(interactive_bytes);
            } else {
                self.run(0);
            }
            turns += 1;
            assert!(turns <= 2 * time.as_millis() + 2, "the process is woken too often");
        }
    }

    fn advance(&mut self, time: Duration) {
        self.advance_with(time, 0);
    }

    /// Advances until the next sample is 5 ms away at least.
    fn advance_to_sample(&mut self) {
        for _ in 0..20 {
            let soon = self.path.now + Duration::from_millis(5);
            if self.pacer.pacer().is_some_and(|pacer| !pacer.is_due(soon)) {
                return;
            }
            self.advance(Duration::from_millis(1));
        }
        panic!("no sample within 20 ms");
    }

    /// Returns the bytes of bulk that each connection wrote within this time.
    fn written_in(&mut self, time: Duration) -> Vec<u64> {
        let before = self.path.bulk_written();
        self.advance(time);
        self.path.bulk_written().iter().zip(before).map(|(after, before)| after - before).collect()
    }
}

impl Process {
    /// Returns the bytes of bulk that all connections wrote within this time.
    fn written_in_all(&mut self, time: Duration) -> u64 {
        self.written_in(time).iter().sum()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_path_is_full_and_its_queue_short_although_acknowledgements_wake_nothing() {
    let mut process = Process::new(1);
    process.advance(5 * SECOND);
    let mut queues = Vec::new();
    let written = process.written_in(10 * SECOND)[0];
    assert!(written > RATE * 10 / 100 * 99, "{written}");
    for _ in 0..1000 {
        process.advance(Duration::from_millis(7));
        queues.push(process.path.queue());
    }
    let mean = queues.iter().sum::<Duration>() / 1000;
    assert!(mean < Duration::from_millis(9), "{mean:?}");
}

#[test]
fn the_bytes_in_flight_are_measured_when_they_reach_their_bound() {
    let mut process = Process::new(1);
    process.advance(5 * SECOND);
    process.advance_to_sample();
    process.run(0);
    process.pacer.bucket().on_interactive(1 << 20);
    // A sample is not due.
    process.path.advance(process.path.now + Duration::from_millis(4));
    let (before, measured) = (process.path.bulk_written(), process.path.measured);
    process.run(0);
    assert!(process.path.measured > measured, "what is in flight");
    assert_ne!(process.path.bulk_written(), before, "it is much less than was known");
}

#[test]
fn connections_with_bulk_take_turns() {
    let mut process = Process::new(3);
    process.path.conns[1].has_bulk = false;
    let written = process.written_in(5 * SECOND);
    assert!(written[0].abs_diff(written[2]) <= 20 * u64::from(MSS), "{written:?}");
    assert!(written[0] > RATE * 5 / 10 * 4, "{written:?}");
    assert_eq!(written[1], 0);
    // One joins.
    process.path.conns[1].has_bulk = true;
    let written = process.written_in(6 * SECOND);
    let (least, most) = (written.iter().min().unwrap(), written.iter().max().unwrap());
    // Three pieces are about the time between two samples, after which a piece may be larger: always the same connection's.
    assert!(most - least <= most / 40, "{written:?}");
}

#[test]
fn a_socket_that_takes_nothing_does_not_hold_up_the_others_nor_the_process() {
    let mut process = Process::new(2);
    process.path.conns[0].is_full = true;
    process.advance(2 * SECOND);
    let written = process.written_in(5 * SECOND);
    assert!(written[1] > RATE * 5 / 100 * 97, "{written:?}");
    process.path.conns[1].has_bulk = false;
    let calls = process.path.conns[0].write_calls;
    process.advance(SECOND);
    let calls = process.path.conns[0].write_calls - calls;
    assert!(calls < 250, "{calls} vain writes");
}

#[test]
fn a_connection_whose_peer_has_disappeared_does_not_count() {
    let mut process = Process::new(2);
    process.advance(5 * SECOND);
    process.path.conns[0].is_dead = true;
    process.path.conns[0].is_full = true;
    // More than the bound stays in flight there.
    process.path.conns[0].in_flight += 100_000;
    process.advance(3 * SECOND);
    let written = process.written_in(10 * SECOND);
    assert!(written[1] > RATE * 10 / 100 * 97, "{written:?}");
}

#[test]
fn a_connection_whose_peer_reads_nothing_does_not_count() {
    let mut process = Process::new(2);
    process.advance(5 * SECOND);
    let stalled = &mut process.path.conns[0];
    (stalled.is_full, stalled.unsent) = (true, 100_000);
    process.advance(3 * SECOND);
    let written = process.written_in(10 * SECOND);
    assert!(written[1] > RATE * 10 / 100 * 97, "{written:?}");
}

#[test]
fn the_first_data_after_a_pause_counts() {
    let mut process = Process::new(1);
    process.advance(5 * SECOND);
    process.path.conns[0].has_bulk = false;
    process.advance(SECOND);
    process.run(0);
    // Nothing wakes the process meanwhile.
    process.path.advance(process.path.now + 3 * SECOND);
    process.path.send(0, 20_000);
    process.run(20_000);
    assert_eq!(super::outstanding(process.path.now, &mut process.path), 20_000);
}

#[test]
fn interactive_data_that_fills_the_bound_leaves_bulk_a_quarter() {
    let mut process = Process::new(2);
    process.path.conns[0].has_bulk = false;
    process.advance(10 * SECOND);
    // More than the bound remains queued.
    process.path.send(0, 100_000);
    let before = process.path.bulk_written()[1];
    process.advance_with(SECOND, RATE / 100);
    let written = process.path.bulk_written()[1] - before;
    assert!((RATE / 5..RATE / 5 * 2).contains(&written), "{written}");
}

#[test]
fn bulk_makes_room_for_interactive_data_at_once() {
    let mut process = Process::new(1);
    process.advance(5 * SECOND);
    let mut written = 0;
    for _ in 0..20 {
        process.advance(Duration::from_millis(397));
        process.advance_to_sample();
        process.path.send(0, 10_000);
        process.run(10_000);
        // Before the next sample shows it.
        written += process.written_in(Duration::from_millis(5))[0];
    }
    // A quarter of the path's rate is 1563 bytes each time.
    assert!(written < 20 * 3_000, "{written}");
}

#[test]
fn pacing_ends_some_time_after_the_last_bulk() {
    let mut process = Process::new(1);
    process.advance(2 * SECOND);
    process.path.conns[0].has_bulk = false;
    process.advance(4 * SECOND);
    assert!(process.pacer.pacer().is_some());
    process.path.advance(process.path.now + 2 * SECOND);
    assert_eq!(process.run(0), Some(Bounds::NONE));
    assert!(process.pacer.pacer().is_none());
    assert_eq!((process.run(0), process.pacer.deadline()), (None, None));
    // One for bulk always carries some.
    process.path.conns[0].has_bulk = true;
    process.path.conns[0].paced.set_for_bulk(true);
    process.run(0);
    process.path.conns[0].has_bulk = false;
    process.path.advance(process.path.now + 10 * SECOND);
    assert!(process.run(0).is_some_and(|bounds| bounds != Bounds::NONE));
}

/// Beside others, on a path whose rate is known.
fn sharing(conns: usize) -> Process {
    let mut process = Process::new(conns);
    process.advance(5 * SECOND);
    process.path.has_others = true;
    process.advance(5 * SECOND);
    let written = process.written_in(5 * SECOND).iter().sum();
    assert!((RATE * 5 / 100 * 40..RATE * 5 / 100 * 60).contains(&written), "{written}");
    process
}

#[test]
fn a_connection_that_joins_or_leaves_beside_others_does_not_change_the_sessions_part() {
    let mut process = sharing(1);
    process.path.conns.push(TestConn::with_bulk());
    let written = process.written_in_all(5 * SECOND);
    assert!((RATE * 5 / 100 * 40..RATE * 5 / 100 * 60).contains(&written), "{written}");
    let both = process.written_in(5 * SECOND);
    assert!(both[0].abs_diff(both[1]) <= 20 * u64::from(MSS), "{both:?}");
    // Its bytes in flight disappear from the sum.
    process.path.conns.pop();
    let written = process.written_in_all(5 * SECOND);
    assert!((RATE * 5 / 100 * 40..RATE * 5 / 100 * 60).contains(&written), "{written}");
}

#[test]
fn others_that_leave_are_noticed_although_a_connection_closed_meanwhile() {
    let mut process = sharing(2);
    process.path.conns.pop();
    process.path.has_others = false;
    process.advance(3 * SECOND);
    let written = process.written_in_all(5 * SECOND);
    assert!(written > RATE * 5 / 100 * 97, "{written}");
    assert!(process.path.queue() < Duration::from_millis(15), "{:?}", process.path.queue());
}

#[test]
fn a_process_that_misses_its_deadlines_writes_ahead_although_it_samples_in_time() {
    // A sample is due each 6.25 ms, a piece each 2.3 ms.
    let mut process = Process::new(1);
    for _ in 0..20 {
        process.path.advance(process.path.now + Duration::from_millis(7));
        process.run(0);
    }
    assert!(process.pacer.bounds().write_ahead > 0, "{:?}", process.pacer.bounds());
    let mut punctual = Process::new(1);
    punctual.advance(SECOND);
    assert_eq!(punctual.pacer.bounds().write_ahead, 0);
}

/// Loses a packet of a connection each 300 ms, so many times.
fn lose(process: &mut Process, index: usize, count: u32) {
    for _ in 0..count {
        process.path.conns[index].retransmitted += 1;
        process.advance_with(Duration::from_millis(300), 0);
    }
}

/// Ends a download: its pacer ends after a while without bulk.
fn pause(process: &mut Process, time: Duration) {
    process.path.conns[0].has_bulk = false;
    process.advance_with(Duration::from_secs(6), 0);
    process.run(0);
    assert!(process.pacer.pacer().is_none());
    process.path.now = process.path.now + time;
    process.path.conns[0].has_bulk = true;
    process.run(0);
}

fn has_recurring_loss(process: &Process) -> bool {
    process.pacer.interference() == Interference::Loss
}

#[test]
fn recurring_loss_is_remembered_for_the_next_download_but_not_for_long() {
    let mut process = Process::new(1);
    process.advance_with(Duration::from_secs(1), 0);
    lose(&mut process, 0, 4);
    assert!(has_recurring_loss(&process));
    pause(&mut process, Duration::from_secs(5));
    assert!(has_recurring_loss(&process));
    pause(&mut process, Duration::from_secs(60));
    assert!(!has_recurring_loss(&process));
}

#[test]
fn recurring_loss_is_forgotten_with_a_bulk_connection_too() {
    let mut process = Process::new(1);
    process.path.conns[0].paced.set_for_bulk(true);
    process.advance_with(Duration::from_secs(1), 0);
    lose(&mut process, 0, 4);
    assert!(has_recurring_loss(&process));
    process.path.conns[0].has_bulk = false;
    process.advance_with(Duration::from_secs(6), 0);
    process.path.now = process.path.now + Duration::from_secs(3600);
    process.path.conns[0].has_bulk = true;
    process.run(0);
    assert!(!has_recurring_loss(&process));
}

#[test]
fn one_loss_in_each_of_many_downloads_does_not_recur() {
    let mut process = Process::new(1);
    for _ in 0..5 {
        process.advance_with(Duration::from_millis(200), 0);
        lose(&mut process, 0, 1);
        assert!(!has_recurring_loss(&process));
        pause(&mut process, Duration::ZERO);
    }
}

#[test]
fn what_a_connection_retransmits_to_a_peer_that_is_gone_is_no_loss_of_the_path() {
    let mut process = Process::new(2);
    process.advance_with(Duration::from_secs(1), 0);
    process.path.conns[1].is_dead = true;
    process.advance_with(Duration::from_secs(2), 0);
    lose(&mut process, 1, 5);
    assert!(!has_recurring_loss(&process));
    lose(&mut process, 0, 4);
    assert!(has_recurring_loss(&process));
}
