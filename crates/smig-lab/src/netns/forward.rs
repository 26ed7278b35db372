//! The thread that carries packets between the two hosts' devices.
//!
//! Owns both TUN descriptors and both link models. Sleeps until a packet comes
//! or one is due; never spins. Lateness is the time from a packet's due moment
//! to the end of its write into the far device.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::error::{LabError, Step};
use super::sys;
use super::testbed::BoxedLog;
use crate::lateness::Lateness;
use crate::link::{Link, LinkCounters, LinkReport, Scheduling, Time, Verdict};

/// Packets read from one device before the other has its turn.
const BATCH: usize = 32;
/// Larger than any packet of the devices.
const LARGEST_PACKET: usize = 2048;
/// Buffers kept for use again.
const SPARE_BUFFERS: usize = 1024;

/// The two ends of one direction and the link between them.
pub(super) struct Direction {
    pub(super) from: Arc<OwnedFd>,
    pub(super) to: Arc<OwnedFd>,
    pub(super) link: Link<Vec<u8>, BoxedLog>,
}

/// The running thread; stops when dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    counters: [LinkCounters; 2],
    lateness: Lateness,
    scheduling: Scheduling,
}

impl Forwarder {
    /// Starts carrying: to the client, and to the server.
    pub(super) fn start(directions: [Direction; 2]) -> Result<Self, LabError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC).step(|| "cannot make an eventfd".into())?;
        let stop = Arc::new(stop);
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .step(|| "cannot make a timer".into())?;
        let shared = Arc::new(Mutex::new(Shared {
            counters: Default::default(),
            lateness: Lateness::default(),
            scheduling: Scheduling::Ordinary,
        }));
        let carrier = Carrying {
            directions,
            timer,
            armed: None,
            stop: Arc::clone(&stop),
            shared: Arc::clone(&shared),
            buffers: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("link".into())
            .spawn(move || carrier.run())
            .step(|| "cannot start a thread".into())?;
        Ok(Self { stop, thread: Some(thread), shared })
    }

    pub(super) fn report(&self) -> LinkReport {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        LinkReport {
            to_client: shared.counters[0],
            to_server: shared.counters[1],
            lateness: shared.lateness.summary(),
            scheduling: shared.scheduling,
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // An eventfd takes eight bytes, and blocks only at 2^64.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrying {
    directions: [Direction; 2],
    timer: OwnedFd,
    /// What the timer is set to.
    armed: Option<Time>,
    stop: Arc<OwnedFd>,
    shared: Arc<Mutex<Shared>>,
    buffers: Vec<Vec<u8>>,
}

impl Carrying {
    fn run(mut self) {
        // Without these rights the lateness in the report says what it cost.
        let real_time = sys::run_in_real_time().is_ok();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        if real_time {
            self.lock(|shared| shared.scheduling = Scheduling::RealTime);
        }
        loop {
            let mut read = 0;
            for direction in 0..2 {
                self.deliver();
                read += self.take_in(direction);
            }
            self.deliver();
            self.lock_counters();
            if read > 0 {
                continue; // there may be more, and no wait is shorter than none
            }
            match self.sleep() {
                Ok(Wake::Work) => {}
                // The descriptors are this thread's own: an error is the end of them.
                Ok(Wake::Stop) | Err(_) => return,
            }
        }
    }

    /// Reads packets that a host has sent; gives how many.
    fn take_in(&mut self, direction: usize) -> usize {
        for count in 0..BATCH {
            let mut buffer = self.buffers.pop().unwrap_or_default();
            buffer.resize(LARGEST_PACKET, 0);
            let Direction { from, link, .. } = &mut self.directions[direction];
            let Ok(length) = rustix::io::read(&**from, &mut buffer[..]) else {
                self.keep(buffer);
                return count;
            };
            buffer.truncate(length);
            if let Verdict::Dropped(buffer) = link.enqueue(now(), buffer) {
                self.keep(buffer);
            }
        }
        BATCH
    }

    /// Writes every packet that is due.
    fn deliver(&mut self) {
        for direction in 0..2 {
            loop {
                let Direction { to, link, .. } = &mut self.directions[direction];
                let Some(arrival) = link.pop(now()) else { break };
                // A device takes a packet or drops it, and counts the drop itself.
                let _ = rustix::io::write(&**to, &arrival.packet);
                let late = now().since(arrival.due);
                self.lock(|shared| shared.lateness.record(late));
                self.keep(arrival.packet);
            }
        }
    }

    fn sleep(&mut self) -> Result<Wake, Errno> {
        let next = self.directions.iter().filter_map(|direction| direction.link.next_event()).min();
        if next != self.armed {
            arm(&self.timer, next)?;
            self.armed = next;
        }
        let [to_client, to_server] = &self.directions;
        let mut fds = [&*self.stop, &self.timer, &*to_client.from, &*to_server.from]
            .map(|fd: &OwnedFd| readable(fd.as_fd()));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let broken = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if fds[2..].iter().any(|fd| fd.revents().intersects(broken)) {
            return Err(Errno::IO);
        }
        if fds[0].revents().contains(PollFlags::IN) {
            return Ok(Wake::Stop);
        }
        if fds[1].revents().contains(PollFlags::IN) {
            // Set again next time: this also takes back its readiness.
            self.armed = Some(Time::ZERO);
        }
        Ok(Wake::Work)
    }

    fn lock_counters(&self) {
        let counters = [0, 1].map(|index| self.directions[index].link.counters());
        self.lock(|shared| shared.counters = counters);
    }

    fn lock(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < SPARE_BUFFERS {
            self.buffers.push(buffer);
        }
    }
}

enum Wake {
    Work,
    Stop,
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Sets the timer to a point in time, or to never.
fn arm(timer: &OwnedFd, at: Option<Time>) -> Result<(), Errno> {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = at.map_or(never, |at| {
        let nanos = at.as_nanos().max(1); // zero would mean never
        Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        }
    });
    let spec = Itimerspec { it_interval: never, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &spec).map(drop)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which never steps back and has no sign.
fn now() -> Time {
    let time = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
