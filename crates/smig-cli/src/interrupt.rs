//! Ctrl-C during a measurement: the first stops it cleanly, the second ends the process.

use std::thread;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status that shells report for a program killed by SIGINT.
pub(crate) const INTERRUPTED_STATUS: u8 = 130;

/// Cancels `stop` at the first SIGINT or SIGTERM; ends the process at the second.
pub(crate) fn cancel_on_interrupt(stop: CancellationToken) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let wait_for_signals = move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                // Without handlers the default action of the signals ends the process.
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.is_cancelled() {
                    std::process::exit(INTERRUPTED_STATUS.into());
                }
                stop.cancel();
            }
        });
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(wait_for_signals)
        .context("cannot start a thread")?;
    Ok(())
}
