//! Signals of a gateway: reload the configuration file, or stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::serve::stop;

/// Action that a signal requests.
pub(super) enum SignalAction {
    /// Signal name and number.
    Stop(&'static str, u8),
    Reload,
}

pub(super) struct Signals {
    hangup: Signal,
    stop: stop::StopSignals,
}

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let hangup = signal(SignalKind::hangup()).context("cannot install a signal handler")?;
        Ok(Self { hangup, stop: stop::StopSignals::new()? })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            (name, number) = self.stop.next() => SignalAction::Stop(name, number),
            _ = self.hangup.recv() => SignalAction::Reload,
        }
    }

    /// Waits for the next signal that stops the gateway.
    pub(super) async fn next_stop(&mut self) -> (&'static str, u8) {
        self.stop.next().await
    }
}
