//! Progress output on standard error: bars and completed URLs on a terminal, connections and migrations
//! with -v. Otherwise only retries, limits and errors.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use smig::{Observer, ObserverEvent};
use smig_proto::Mover;

use crate::{paint, stderr};

/// Verbosity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verbosity {
    /// Errors only.
    Quiet,
    Normal,
    /// Connections and migrations too.
    Detailed,
}

/// Output on standard error.
#[derive(Debug)]
pub(super) struct Screen {
    verbosity: Verbosity,
    bars: Option<MultiProgress>,
    open_connections: AtomicUsize,
}

impl Screen {
    pub(super) fn new(verbosity: Verbosity) -> Self {
        let is_drawn = verbosity != Verbosity::Quiet && std::io::stderr().is_terminal();
        let bars = is_drawn
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        Self { verbosity, bars, open_connections: AtomicUsize::new(0) }
    }

    fn print_line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| stderr::print_line(text)),
            None => stderr::print_line(text),
        }
    }

    /// Prints an error at every verbosity.
    pub(super) fn print_error(&self, text: &str) {
        self.print_line(&format!("{} {text}", paint::STDERR.error("error:")));
    }

    /// Prints a message unless quiet.
    pub(super) fn print_info(&self, text: &str) {
        if self.verbosity > Verbosity::Quiet {
            self.print_line(text);
        }
    }

    /// Prints a message with -v.
    pub(super) fn print_detail(&self, text: &str) {
        if self.verbosity == Verbosity::Detailed {
            self.print_line(&paint::STDERR.dim(&format!("* {text}")));
        }
    }

    /// Reports a completed URL, on a terminal or with -v.
    pub(super) fn print_done(&self, text: &str) {
        if self.bars.is_some() || self.verbosity == Verbosity::Detailed {
            self.print_line(&format!("{} {text}", paint::STDERR.success("done:")));
        }
    }

    /// Adds a progress bar.
    pub(super) fn add_bar(&self, name: &str) -> Bar {
        Bar(self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::no_length());
            bar.set_style(style(
                "{prefix:<24!} {binary_bytes:>11} {spinner} {binary_bytes_per_sec}",
            ));
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        }))
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// Progress of one URL.
#[derive(Debug)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// Sets the start offset and the length, once known.
    pub(super) fn start(&self, offset: u64, total: Option<u64>) {
        let Some(bar) = &self.0 else { return };
        if let Some(total) = total {
            bar.set_length(total);
            bar.set_style(style(
                "{prefix:<24!} {binary_bytes:>11}/{binary_total_bytes:<11} [{bar:24}] {percent:>3}% {binary_bytes_per_sec:>13} {eta:>4}",
            ));
        }
        bar.set_position(offset);
        bar.reset_eta();
    }

    pub(super) fn add(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(bytes);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Screen {
    fn on_event(&self, event: &ObserverEvent) {
        match event {
            ObserverEvent::ConnectionOpened { .. } => {
                let open = self.open_connections.fetch_add(1, Ordering::Relaxed) + 1;
                self.print_detail(&format!("connected, {open} open"));
            }
            ObserverEvent::ConnectionClosed { .. } => {
                let open = self.open_connections.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
                self.print_detail(&format!("connection closed, {open} open"));
            }
            ObserverEvent::SessionEstablished => {
                self.print_detail("the server supports SMig: streams can migrate");
            }
            ObserverEvent::Joined { .. } => {
                self.print_detail("a spare connection joined the session")
            }
            ObserverEvent::JoinRefused { .. } => {
                self.print_detail("the server refused a spare connection")
            }
            ObserverEvent::Migrated { from, to, mover, .. } => {
                let initiator = match mover {
                    Mover::Local => "the client",
                    Mover::Peer => "the server",
                };
                self.print_detail(&format!(
                    "a stream migrated from connection {from} to {to}, initiated by {initiator}"
                ));
            }
            ObserverEvent::MigrationDeclined { .. } => {
                self.print_detail("a migration was declined")
            }
            ObserverEvent::SecondConnection => {
                self.print_detail("a second connection: the first carries a large response");
            }
            ObserverEvent::ResponseContinued { offset, repeated, .. } => {
                self.print_detail(&format!(
                    "a response continues on another connection at {offset} bytes, {repeated} of them repeated"
                ));
            }
            ObserverEvent::ContinuationFailed { why, .. } => {
                self.print_detail(&format!("a response stays on its connection: {why}"));
            }
            ObserverEvent::StreamReset { .. } => self.print_detail("a stream was reset"),
            ObserverEvent::LimitHit(limit) => self.print_info(&format!("limit reached: {limit}")),
            _ => {}
        }
    }
}
