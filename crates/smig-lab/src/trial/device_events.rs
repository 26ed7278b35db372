//! Carries out a scenario's changes of the client's devices, each at its time.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use smig_testbed::netns::{DeviceState, Host};

use super::run::TrialError;
use crate::scenario::DeviceEvent;

/// A thread that carries out the changes of a run.
#[derive(Debug)]
pub(super) struct DeviceEvents {
    /// Dropped to end the thread.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<DropsWhileDown, TrialError>>,
}

impl DeviceEvents {
    /// Starts the clock of the events.
    pub(super) fn start(events: Vec<DeviceEvent>, client: Host) -> io::Result<Self> {
        let started_at = Instant::now();
        let (stop, stopped) = mpsc::channel();
        let carry_out = move || {
            let mut drops = DropsWhileDown::default();
            let read = |link| client.device_drops_on(link).map_err(counters_unread);
            for event in events {
                let wait = event.at.0.saturating_sub(started_at.elapsed());
                if stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
                // What a device drops is read while it is still, or already, up: nothing of the time between is missed.
                match event.state {
                    DeviceState::Down => {
                        drops.begin(event.link, read(event.link)?);
                        client.set_device_state(event.link, event.state)?;
                    }
                    DeviceState::Up => {
                        client.set_device_state(event.link, event.state)?;
                        drops.end(event.link, read(event.link)?);
                    }
                }
            }
            Ok(drops)
        };
        let thread = thread::Builder::new().name("device-events".into()).spawn(carry_out)?;
        Ok(Self { stop, thread })
    }

    /// Leaves the events that are not due yet. Returns what devices dropped while they were down.
    ///
    /// # Errors
    /// What a change failed with.
    pub(super) fn stop(self) -> Result<DropsWhileDown, TrialError> {
        drop(self.stop);
        self.thread.join().expect("changing a device does not panic")
    }
}

fn counters_unread(cause: io::Error) -> TrialError {
    TrialError::Io { operation: "reading the devices' counters", cause }
}

/// Counts what devices drop while events have them down: these drops are what the scenario asks for, and no others.
#[derive(Debug, Default)]
pub(super) struct DropsWhileDown {
    /// The counter of each device that is down, when it went down, by link.
    since: BTreeMap<usize, u64>,
    packets: u64,
}

impl DropsWhileDown {
    /// A device goes down. One that is down already stays so.
    fn begin(&mut self, link: usize, counter: u64) {
        self.since.entry(link).or_insert(counter);
    }

    /// A device has come up.
    fn end(&mut self, link: usize, counter: u64) {
        if let Some(before) = self.since.remove(&link) {
            self.packets += counter.saturating_sub(before);
        }
    }

    /// Returns how many packets there are by now, of devices that are still down too; `counter` is that of a link's device.
    pub(super) fn count(&self, counter: impl Fn(usize) -> io::Result<u64>) -> io::Result<u64> {
        self.since.iter().try_fold(self.packets, |packets, (link, before)| {
            Ok(packets + counter(*link)?.saturating_sub(*before))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_drops_counts_while_it_is_down() {
        let mut drops = DropsWhileDown::default();
        // Up since the start: its drops before are not excused.
        drops.end(0, 5);
        drops.begin(0, 7);
        drops.begin(1, 100);
        // Down already.
        drops.begin(0, 9);
        drops.end(0, 17);
        // Link 1's device is still down.
        assert_eq!(drops.count(|link| Ok([1_000, 101][link])).unwrap(), 10 + 1);
        drops.end(1, 103);
        assert_eq!(drops.count(|_| Err(io::ErrorKind::Other.into())).unwrap(), 10 + 3);
    }
}
