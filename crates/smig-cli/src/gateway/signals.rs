//! Signals of a gateway: reload the configuration file, or stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::serve::stop;

/// Action that a signal requests.
pub(super) enum Cause {
    /// Signal name and number.
    Stop(&'static str, u8),
    Reload,
}

pub(super) struct Signals {
    hangup: Signal,
    stop: stop::Signals,
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("cannot install a signal handler")?;
        Ok(Self { hangup, stop: stop::Signals::new()? })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Cause {
        tokio::select! {
            (name, number) = self.stop.next() => Cause::Stop(name, number),
            _ = self.hangup.recv() => Cause::Reload,
        }
    }

    /// Waits for the next signal that stops the gateway.
    pub(super) async fn stop(&mut self) -> (&'static str, u8) {
        self.stop.next().await
    }
}
