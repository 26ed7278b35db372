//! Carries out a scenario's changes of the client's devices, each at its time.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use smig_testbed::netns::{Host, TestbedError};

use crate::scenario::{DeviceChange, DeviceEvent};

/// A thread that carries out the changes of a run.
#[derive(Debug)]
pub(super) struct DeviceEvents {
    /// Dropped to end the thread.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), TestbedError>>,
}

impl DeviceEvents {
    /// Starts the clock of the events.
    pub(super) fn start(events: Vec<DeviceEvent>, client: Host) -> io::Result<Self> {
        let started_at = Instant::now();
        let (stop, stopped) = mpsc::channel();
        let carry_out = move || {
            for event in events {
                let due = started_at + event.at.0;
                let wait = due.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
                client.set_link_state(event.link, event.change == DeviceChange::Up)?;
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("device-events".into()).spawn(carry_out)?;
        Ok(Self { stop, thread })
    }

    /// Leaves the events that are not due yet.
    ///
    /// # Errors
    /// What a change failed with.
    pub(super) fn stop(self) -> Result<(), TestbedError> {
        drop(self.stop);
        self.thread.join().expect("changing a device does not panic")
    }
}
