//! HyStart of CUBIC, for as long as a run lasts.
//!
//! It is one setting of the whole machine, so runs that want it the same way share it, others wait
//! their turn, and a process of its own keeps it: that process gives the machine its own value back
//! when the run's process has ended, however it ended. What even that one did not give back, because
//! it was killed as well, the next run does ([`repair`]).

mod keeper;

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keeper::Files;

/// How long a run waits for others that want it the other way.
const PATIENCE: Duration = Duration::from_secs(600);
/// What the keeper says when the setting is as it should be.
const HELD: &str = "held";

/// Why it cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum HystartError {
    /// The kernel has no such parameter.
    #[error(
        "the scenario sets HyStart, but there is no {parameter}: this kernel has no CUBIC, or has \
         not loaded it (`modprobe tcp_cubic`)"
    )]
    Absent {
        /// The file that is not there.
        parameter: String,
    },
    /// It may not be written.
    #[error(
        "the scenario sets HyStart, which is one setting of the whole machine, but {parameter} \
         cannot be written ({cause}). Run it as root (sudo); in a container, /sys must be writable \
         (--privileged)"
    )]
    ReadOnly {
        /// The file.
        parameter: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// Other runs want it the other way, for too long.
    #[error(
        "HyStart is one setting of the whole machine, and process {by} of another campaign has kept \
         it {} for {} minutes. Run campaigns that differ in it one after the other", word(*.on), .waited.as_secs() / 60
    )]
    Busy {
        /// How it is.
        on: bool,
        /// Who keeps it so.
        by: u32,
        /// How long this was waited for.
        waited: Duration,
    },
    /// A file of the lab's own.
    #[error("{doing}: {cause}")]
    Io {
        /// What was being done.
        doing: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The keeping process's own words.
    #[error("{0}")]
    Keeper(String),
}

/// The word for it on the keeper's command line.
const fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Whether it is on now; nothing where there is no such parameter.
#[must_use]
pub fn present() -> Option<bool> {
    let text = fs::read_to_string(&Files::here().parameter).ok()?;
    Some(keeper::is_on(&text))
}

/// Whether it can be set here.
///
/// # Errors
/// What is in the way, and what to do.
pub fn check() -> Result<(), HystartError> {
    Files::here().check()
}

/// Gives the machine its own value back if runs that were killed have not.
///
/// # Errors
/// When files cannot be read or written.
pub fn repair() -> Result<(), HystartError> {
    Files::here().repair()
}

/// What the keeper does: holds it until standard input ends.
///
/// # Errors
/// [`HystartError`].
pub fn keep(on: bool) -> Result<(), HystartError> {
    let held = Files::here().hold(on, PATIENCE)?;
    // Whoever waited for this may be gone; then standard input has ended.
    let _ = writeln!(io::stdout(), "{HELD}");
    // An error is an end as well.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    drop(held);
    Ok(())
}

/// It is as it was asked for until this is dropped.
#[derive(Debug)]
pub struct Hold(Child);

impl Hold {
    /// Waits until it can be had so. `keeper` is a program that calls [`keep`] with the word `on` or
    /// `off` that is appended to its arguments.
    ///
    /// # Errors
    /// [`HystartError::Keeper`] with the keeper's words, or when it cannot be started.
    pub fn start(mut keeper: Command, on: bool) -> Result<Self, HystartError> {
        let failed = |doing: &str| {
            let doing = doing.to_owned();
            move |cause| HystartError::Io { doing, cause }
        };
        let mut child = keeper
            .arg(word(on))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // What ends this process's group must not end the keeper before it has done its work.
            .process_group(0)
            .spawn()
            .map_err(failed("cannot start the process that keeps HyStart"))?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).map_err(failed("HyStart"))?;
        }
        if said.trim() == HELD {
            return Ok(Self(child));
        }
        let output = child.wait_with_output().map_err(failed("HyStart"))?;
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words.trim();
        Err(HystartError::Keeper(words.strip_prefix("error: ").unwrap_or(words).to_owned()))
    }

    /// The keeper's process id.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if !self.0.wait().is_ok_and(|status| status.success()) {
            // It was killed. What fails here, the next run tries again.
            let _ = repair();
        }
    }
}
