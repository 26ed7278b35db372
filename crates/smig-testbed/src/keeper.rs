//! Keepers: processes that hold something of the whole machine for a run, and give it back when the run's process has ended,
//! however it ended.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Returns the directory of state and lock files. All processes must use the same files, whatever `TMPDIR` is.
pub(crate) fn state_directory() -> &'static Path {
    Path::new(if Path::new("/run").is_dir() { "/run" } else { "/tmp" })
}

/// Line that a keeper prints once it holds what it is for.
const HELD_MESSAGE: &str = "held";

/// Why a keeper does not hold anything.
#[derive(Debug)]
pub(crate) enum KeeperError {
    /// It could not be started.
    Start(io::Error),
    /// Its error message.
    Refused(String),
}

/// A keeper process. Dropping it lets it give back what it holds, and waits for that.
#[derive(Debug)]
pub(crate) struct Keeper(Child);

impl Keeper {
    /// Starts a command that calls [`hold`], and waits until it holds.
    pub(crate) fn start(mut command: Command) -> Result<Self, KeeperError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal to this process's group must not end the keeper before it has given back what it holds.
            .process_group(0)
            .spawn()
            .map_err(KeeperError::Start)?;
        let mut first_line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut first_line).map_err(KeeperError::Start)?;
        }
        if first_line.trim() == HELD_MESSAGE {
            return Ok(Self(child));
        }
        let output = child.wait_with_output().map_err(KeeperError::Start)?;
        let message = String::from_utf8_lossy(&output.stderr);
        let message = message.trim();
        Err(KeeperError::Refused(message.strip_prefix("error: ").unwrap_or(message).to_owned()))
    }

    /// Returns its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it. Returns whether it has given back what it held; not if it was killed.
    pub(crate) fn stop(&mut self) -> bool {
        drop(self.0.stdin.take());
        self.0.wait().is_ok_and(|status| status.success())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// In the keeper's process: acquires something, says so, and drops it at end of file on standard input. `acquire` gets a
/// function that returns whether nobody waits for it any more.
pub(crate) fn hold<T, E>(acquire: impl FnOnce(&dyn Fn() -> bool) -> Result<T, E>) -> Result<(), E> {
    let is_parent_gone = Arc::new(AtomicBool::new(false));
    let parent_gone = Arc::clone(&is_parent_gone);
    let parent = thread::spawn(move || {
        // A read error also ends the keeper.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        parent_gone.store(true, Ordering::Relaxed);
    });
    let held = acquire(&|| is_parent_gone.load(Ordering::Relaxed))?;
    // Fails if the parent has ended; then standard input is at its end too.
    let _ = writeln!(io::stdout(), "{HELD_MESSAGE}");
    // The thread does not panic.
    let _ = parent.join();
    drop(held);
    Ok(())
}
