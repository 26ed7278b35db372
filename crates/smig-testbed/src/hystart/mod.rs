//! HyStart of CUBIC, set for the length of a run.
//!
//! The setting applies to the whole machine. Runs that need the same value share it; others wait. A
//! separate process, the keeper, holds the setting and restores the machine's original value when the
//! run's process has ended, however it ended. If the keeper is killed as well, the next run restores
//! the value ([`repair`]).

mod parameter;

use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

use parameter::HystartFiles;

use crate::keeper::{self, Keeper, KeeperError};

/// How long a run waits for runs that use the other value.
const WAIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Why HyStart cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum HystartError {
    /// The kernel does not have the parameter.
    #[error(
        "the scenario sets HyStart, but there is no {parameter}: this kernel has no CUBIC, or has \
         not loaded it (`modprobe tcp_cubic`)"
    )]
    Absent {
        /// The missing file.
        parameter: String,
    },
    /// The parameter cannot be written.
    #[error(
        "the scenario sets HyStart, which is one setting of the whole machine, but {parameter} \
         cannot be written ({cause}). Run it as root (sudo); in a container, /sys must be writable \
         (--privileged)"
    )]
    ReadOnly {
        /// The file.
        parameter: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Other runs used the other value for too long.
    #[error(
        "HyStart is one setting of the whole machine, and other campaigns have used it {} \
         (set by process {setter_pid}) while this one waited {} minutes. Run campaigns that differ in it one after the other", on_or_off(*.on), .wait_time.as_secs() / 60
    )]
    Busy {
        /// The value in use.
        on: bool,
        /// ID of the process that set it, which may have ended; 0 if unknown.
        setter_pid: u32,
        /// How long this run waited.
        wait_time: Duration,
    },
    /// An I/O error of the state and lock files or of the keeper process.
    #[error("{context}: {cause}")]
    Io {
        /// The file or operation that failed.
        context: String,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The error message of the keeper process.
    #[error("{0}")]
    Keeper(String),
}

/// Returns the value as on the keeper's command line.
const fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Returns whether HyStart is on; `None` if the parameter cannot be read.
#[must_use]
pub fn current_value() -> Option<bool> {
    let text = fs::read_to_string(&HystartFiles::system().parameter).ok()?;
    Some(parameter::is_on(&text))
}

/// Checks that HyStart can be set on this machine.
///
/// # Errors
/// The reason why not, with advice.
pub fn check() -> Result<(), HystartError> {
    HystartFiles::system().check()
}

/// Restores the machine's original value after runs that were killed.
///
/// # Errors
/// When files cannot be read or written.
pub fn repair() -> Result<(), HystartError> {
    HystartFiles::system().repair()
}

/// Runs the keeper: holds the setting until end of file on standard input.
///
/// # Errors
/// [`HystartError`].
pub fn run_keeper(on: bool) -> Result<(), HystartError> {
    keeper::hold(|is_abandoned| HystartFiles::system().acquire(on, WAIT_TIMEOUT, is_abandoned))
}

/// A keeper process, which holds HyStart at the requested value until this is dropped.
#[derive(Debug)]
pub struct HystartGuard(Keeper);

impl HystartGuard {
    /// Starts a keeper and waits until it holds the setting. `keeper` is a command that calls
    /// [`run_keeper`] according to its last argument, `on` or `off`, which is appended here.
    ///
    /// # Errors
    /// [`HystartError::Keeper`] with the keeper's message; [`HystartError::Io`] when it cannot be started.
    pub fn start(mut keeper: Command, on: bool) -> Result<Self, HystartError> {
        keeper.arg(on_or_off(on));
        Keeper::start(keeper).map(Self).map_err(|error| match error {
            KeeperError::Refused(message) => HystartError::Keeper(message),
            KeeperError::Start(cause) => {
                let context = "cannot start the process that holds the HyStart setting".to_owned();
                HystartError::Io { context, cause }
            }
        })
    }

    /// Returns the keeper's process ID.
    #[must_use]
    pub fn keeper_pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for HystartGuard {
    fn drop(&mut self) {
        if !self.0.stop() {
            // The keeper was killed. After a failure here, the next run tries again.
            let _ = repair();
        }
    }
}
