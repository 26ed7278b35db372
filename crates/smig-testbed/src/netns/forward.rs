//! The thread that forwards packets between the two ends of a link.
//!
//! Owns both TUN descriptors and both link models. Sleeps until a packet arrives
//! or one is due; never busy-waits. Lateness is the time from a packet's due time
//! to the end of its write to the far device.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use smig_link::{
    DirectionCounters, EnqueueResult, LatenessHistogram, Link, LinkReport, Scheduling, Time,
};

use super::error::{SetupContext, TestbedError};
use super::pcap::Capture;
use super::sys;
use super::testbed::BoxedLog;

/// Maximum number of packets read from one device before the other is served.
const MAX_BATCH_PACKETS: usize = 32;
/// Maximum number of buffers held for reuse.
const MAX_FREE_BUFFERS: usize = 1024;

/// The two ends of one direction and the link between them.
pub(super) struct LinkDirection {
    pub(super) source: Arc<OwnedFd>,
    pub(super) destination: Arc<OwnedFd>,
    pub(super) link: Link<Vec<u8>, BoxedLog>,
}

/// Packet captures at the server's and the client's end.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) server: Option<Capture>,
    pub(super) client: Option<Capture>,
}

/// Handle of the running thread, which stops when this is dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    wake_fd: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    state: Arc<Mutex<ForwarderState>>,
}

#[derive(Debug)]
struct ForwarderState {
    counters: [DirectionCounters; 2],
    lateness: LatenessHistogram,
    scheduling: Scheduling,
    control: ForwarderControl,
}

/// Requests from other threads.
#[derive(Debug, Default)]
struct ForwarderControl {
    stop_requested: bool,
    /// New origin of steps, traces and changing delays.
    new_origin: Option<Time>,
}

impl Forwarder {
    /// Starts forwarding packets of at most `max_packet` bytes, to the client and
    /// to the server.
    pub(super) fn start(
        directions: [LinkDirection; 2],
        captures: Captures,
        max_packet: usize,
    ) -> Result<Self, TestbedError> {
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .context(|| "cannot create an eventfd".into())?;
        let wake_fd = Arc::new(wake_fd);
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .context(|| "cannot create a timer".into())?;
        let state = Arc::new(Mutex::new(ForwarderState {
            counters: Default::default(),
            lateness: LatenessHistogram::default(),
            scheduling: Scheduling::Ordinary,
            control: ForwarderControl::default(),
        }));
        let forward_loop = ForwardLoop {
            directions,
            captures,
            max_packet,
            timer,
            armed_for: None,
            wake_fd: Arc::clone(&wake_fd),
            state: Arc::clone(&state),
            buffers: Vec::new(),
            unpublished_lateness: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("link".into())
            .spawn(move || forward_loop.run())
            .context(|| "cannot start a thread".into())?;
        Ok(Self { wake_fd, thread: Some(thread), state })
    }

    pub(super) fn report(&self) -> LinkReport {
        let state = lock(&self.state);
        LinkReport {
            to_client: state.counters[0],
            to_server: state.counters[1],
            lateness: state.lateness.summary(),
            scheduling: state.scheduling,
        }
    }

    pub(super) fn restart_clock(&self, origin: Time) {
        lock(&self.state).control.new_origin = Some(origin);
        self.wake();
    }

    /// Clears the lateness histogram.
    pub(super) fn reset_lateness(&self) {
        lock(&self.state).lateness = LatenessHistogram::default();
    }

    /// Stops the thread and waits for it.
    pub(super) fn stop(&mut self) {
        lock(&self.state).control.stop_requested = true;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        // Fails only if the counter would overflow; the thread is then already woken.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

struct ForwardLoop {
    directions: [LinkDirection; 2],
    captures: Captures,
    max_packet: usize,
    timer: OwnedFd,
    /// Time the timer is set to.
    armed_for: Option<Time>,
    wake_fd: Arc<OwnedFd>,
    state: Arc<Mutex<ForwarderState>>,
    buffers: Vec<Vec<u8>>,
    /// Lateness values not yet in `state`.
    unpublished_lateness: Vec<Duration>,
}

impl ForwardLoop {
    fn run(mut self) {
        // Without these capabilities the thread still runs; the report's lateness shows the effect.
        let real_time = sys::set_realtime_scheduling().is_ok();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        if real_time {
            lock(&self.state).scheduling = Scheduling::RealTime;
        }
        loop {
            let mut read = 0;
            for direction in 0..2 {
                self.deliver();
                read += self.read_packets(direction);
            }
            self.deliver();
            // In each turn: with a sender that always has a packet ready, this thread never sleeps.
            if self.publish_and_handle_requests() == Continuation::Stop {
                return;
            }
            if read > 0 {
                continue; // there may be more packets: do not sleep
            }
            if self.sleep().is_err() {
                return; // the descriptors belong to this thread: an error is permanent
            }
        }
    }

    /// Reads packets that a host has sent into the link; returns their number.
    fn read_packets(&mut self, direction: usize) -> usize {
        for count in 0..MAX_BATCH_PACKETS {
            let mut buffer = self.buffers.pop().unwrap_or_default();
            buffer.resize(self.max_packet, 0);
            let LinkDirection { source: from, link, .. } = &mut self.directions[direction];
            let Ok(length) = rustix::io::read(&**from, &mut buffer[..]) else {
                self.recycle(buffer);
                return count;
            };
            buffer.truncate(length);
            let now = now();
            if let Some(capture) = self.captures.at_source(direction) {
                capture.record(now, &buffer);
            }
            let free_buffer = match link.enqueue(now, buffer) {
                EnqueueResult::Dropped(buffer) => Some(buffer),
                EnqueueResult::Accepted => link.reclaim(),
            };
            if let Some(buffer) = free_buffer {
                self.recycle(buffer);
            }
        }
        MAX_BATCH_PACKETS
    }

    /// Writes every packet that is due.
    fn deliver(&mut self) {
        for direction in 0..2 {
            loop {
                let LinkDirection { destination: to, link, .. } = &mut self.directions[direction];
                let Some(delivery) = link.pop(now()) else { break };
                // The device accepts or drops the packet, and counts drops itself.
                let _ = rustix::io::write(&**to, &delivery.packet);
                let now = now();
                self.unpublished_lateness.push(now.since(delivery.due));
                if let Some(capture) = self.captures.at_destination(direction) {
                    capture.record(now, &delivery.packet);
                }
                self.recycle(delivery.packet);
            }
        }
    }

    /// Waits for a packet, the time at which one is due, or a request.
    fn sleep(&mut self) -> Result<(), Errno> {
        let next_event =
            self.directions.iter().filter_map(|direction| direction.link.next_pop_at()).min();
        if next_event != self.armed_for {
            arm(&self.timer, next_event)?;
            self.armed_for = next_event;
        }
        let [to_client, to_server] = &self.directions;
        let mut fds = [&*self.wake_fd, &self.timer, &*to_client.source, &*to_server.source]
            .map(|fd: &OwnedFd| readable(fd.as_fd()));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let broken = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if fds[2..].iter().any(|fd| fd.revents().intersects(broken)) {
            return Err(Errno::IO);
        }
        let [woken, timer_fired] =
            [0, 1].map(|index: usize| fds[index].revents().contains(PollFlags::IN));
        if timer_fired {
            // Forces the timer to be set again, which also clears its readiness.
            self.armed_for = Some(Time::ZERO);
        }
        if woken {
            // The next turn handles the request.
            let _ = rustix::io::read(&*self.wake_fd, &mut [0; 8]);
        }
        Ok(())
    }

    /// Publishes counters and lateness, and handles requests of other threads.
    fn publish_and_handle_requests(&mut self) -> Continuation {
        let counters = [0, 1].map(|index: usize| self.directions[index].link.counters());
        let mut state = lock(&self.state);
        state.counters = counters;
        self.unpublished_lateness.drain(..).for_each(|late| state.lateness.record(late));
        let ForwarderControl { stop_requested, new_origin } = std::mem::take(&mut state.control);
        drop(state);
        if let Some(origin) = new_origin {
            for direction in &mut self.directions {
                direction.link.start_at(origin);
            }
        }
        if stop_requested { Continuation::Stop } else { Continuation::Continue }
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < MAX_FREE_BUFFERS {
            self.buffers.push(buffer);
        }
    }
}

impl Captures {
    /// Returns the capture at a direction's source. Direction 0 is to the client.
    const fn at_source(&mut self, direction: usize) -> Option<&mut Capture> {
        if direction == 0 { self.server.as_mut() } else { self.client.as_mut() }
    }

    const fn at_destination(&mut self, direction: usize) -> Option<&mut Capture> {
        if direction == 0 { self.client.as_mut() } else { self.server.as_mut() }
    }
}

/// Whether the thread goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continuation {
    Continue,
    Stop,
}

fn lock(shared: &Mutex<ForwarderState>) -> MutexGuard<'_, ForwarderState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Sets the timer to a point in time, or disarms it.
fn arm(timer: &OwnedFd, at: Option<Time>) -> Result<(), Errno> {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = at.map_or(never, |at| {
        let nanos = at.as_nanos().max(1); // zero would disarm it
        Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        }
    });
    let spec = Itimerspec { it_interval: never, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec).map(drop)
}

/// Returns the time of `CLOCK_MONOTONIC`, which never decreases and is not negative.
#[must_use]
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;

    use smig_link::{DirectionSpec, LinkSpec};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A direction whose sender always has a packet ready.
    fn flooded(spec: &DirectionSpec) -> LinkDirection {
        let open = |path: &str| {
            Arc::new(OwnedFd::from(File::options().read(true).write(true).open(path).unwrap()))
        };
        let link = Link::with_log(spec, 0, Box::new(()) as BoxedLog).unwrap();
        LinkDirection { source: open("/dev/zero"), destination: open("/dev/null"), link }
    }

    #[test]
    fn a_flooded_forwarder_stops_when_requested() {
        let spec = LinkSpec::paper_wired();
        let directions = [flooded(&spec.to_client), flooded(&spec.to_server)];
        let mut forwarder = Forwarder::start(directions, Captures::default(), 1_500).unwrap();
        let (stopped, is_stopped) = mpsc::channel();
        let stopping = thread::spawn(move || {
            forwarder.stop();
            stopped.send(forwarder.report()).unwrap();
        });
        let report =
            is_stopped.recv_timeout(LIMIT).expect("the forwarder stops while packets arrive");
        assert!(report.to_client.offered_packets > 0, "{report:?}");
        stopping.join().unwrap();
    }
}
