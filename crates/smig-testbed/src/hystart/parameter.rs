//! Access to the HyStart parameter, and its original value.
//!
//! There are two lock files. Every user of the setting holds a shared lock on `users`; with an
//! exclusive lock there, a process may change the setting. New users acquire the lock of the `state`
//! file, the gate, one at a time. A user that needs the other value waits while it holds the gate,
//! so that later users queue behind it. The last user restores the machine's original value. Until
//! then that value is in the state file, so that it outlives the process that wrote it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::HystartError;
use crate::keeper::state_directory;

/// Polling interval while waiting for a lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Paths of the kernel's parameter and of our state and lock files.
#[derive(Debug, Clone)]
pub(super) struct HystartFiles {
    pub(super) parameter: PathBuf,
    state: PathBuf,
    users: PathBuf,
}

/// Holds the setting at the requested value until dropped.
#[derive(Debug)]
pub(super) struct HystartLock {
    files: HystartFiles,
    users: File,
}

/// Content of the state file while the setting is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// The machine's original value, as the kernel formats it.
    original_value: String,
    /// The value in use.
    on: bool,
    /// ID of the process that set it.
    setter_pid: u32,
}

/// Returns whether the parameter's text means on.
pub(super) fn is_on(text: &str) -> bool {
    !matches!(text.trim(), "0" | "N")
}

const fn digit(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

impl HystartFiles {
    /// Returns the machine's files.
    pub(super) fn system() -> Self {
        let parameter = Path::new("/sys/module/tcp_cubic/parameters/hystart");
        Self::in_directory(parameter, state_directory())
    }

    fn in_directory(parameter: &Path, directory: &Path) -> Self {
        Self {
            parameter: parameter.to_owned(),
            state: directory.join("smig-lab-hystart"),
            users: directory.join("smig-lab-hystart.users"),
        }
    }

    /// Checks that the parameter exists and may be written.
    pub(super) fn check(&self) -> Result<(), HystartError> {
        let parameter = || self.parameter.display().to_string();
        match File::options().write(true).open(&self.parameter) {
            Ok(_) => Ok(()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                Err(HystartError::Absent { parameter: parameter() })
            }
            Err(cause) => Err(HystartError::ReadOnly { parameter: parameter(), cause }),
        }
    }

    /// Sets the value, or shares it if it is set already. Waits for users of the other value, until `is_abandoned`.
    pub(super) fn acquire(
        &self,
        on: bool,
        timeout: Duration,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<HystartLock, HystartError> {
        self.check()?;
        self.acquire_until(on, Instant::now() + timeout, timeout, is_abandoned)
    }

    /// `timeout` is for the error: the time from the call to the deadline.
    fn acquire_until(
        &self,
        on: bool,
        deadline: Instant,
        timeout: Duration,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<HystartLock, HystartError> {
        let wait = || {
            if is_abandoned() {
                return Err(HystartError::Keeper("the run that needs HyStart has ended".into()));
            }
            self.wait(on, deadline, timeout)
        };
        let gate = open(&self.state)?;
        while !try_lock(&gate, FlockOperation::NonBlockingLockExclusive)? {
            wait()?;
        }
        let users = open(&self.users)?;
        loop {
            if try_lock(&users, FlockOperation::NonBlockingLockExclusive)? {
                self.set(on)?;
                flock(&users, FlockOperation::LockShared).map_err(io_error(&self.users))?;
            } else if !self.is_set(on) || !try_lock(&users, FlockOperation::NonBlockingLockShared)?
            {
                wait()?;
                continue;
            }
            let lock = HystartLock { files: self.clone(), users };
            // Another user may have held the exclusive lock in between and restored the value.
            if self.is_set(on) {
                return Ok(lock);
            }
            drop((lock, gate));
            return self.acquire_until(on, deadline, timeout, is_abandoned);
        }
    }

    fn wait(&self, on: bool, deadline: Instant, timeout: Duration) -> Result<(), HystartError> {
        if Instant::now() >= deadline {
            let (on, setter_pid) =
                self.state().map_or((!on, 0), |state| (state.on, state.setter_pid));
            return Err(HystartError::Busy { on, setter_pid, wait_time: timeout });
        }
        thread::sleep(POLL_INTERVAL);
        Ok(())
    }

    fn is_set(&self, on: bool) -> bool {
        self.state().is_some_and(|state| state.on == on)
    }

    /// Restores the machine's original value if no process uses the setting.
    pub(super) fn repair(&self) -> Result<(), HystartError> {
        if self.state().is_none() {
            return Ok(());
        }
        let (gate, users) = (open(&self.state)?, open(&self.users)?);
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        // A process that holds the gate or uses the setting restores the value itself.
        if try_lock(&gate, exclusive)? && try_lock(&users, exclusive)? {
            self.restore()?;
        }
        Ok(())
    }

    /// The caller must hold the exclusive lock on `users`.
    fn set(&self, on: bool) -> Result<(), HystartError> {
        let original = match self.state() {
            // From a killed process, or from one that released its lock while another waited.
            Some(state) => state.original_value,
            None => {
                let text =
                    fs::read_to_string(&self.parameter).map_err(io_error(&self.parameter))?;
                text.trim().to_owned()
            }
        };
        // Record the original value before changing the parameter.
        self.write_state(Some(&State {
            original_value: original,
            on,
            setter_pid: std::process::id(),
        }))?;
        fs::write(&self.parameter, digit(on)).map_err(io_error(&self.parameter))
    }

    /// The caller must hold the exclusive lock on `users`.
    fn restore(&self) -> Result<(), HystartError> {
        let Some(state) = self.state() else { return Ok(()) };
        fs::write(&self.parameter, &state.original_value).map_err(io_error(&self.parameter))?;
        self.write_state(None)
    }

    fn state(&self) -> Option<State> {
        State::parse(&fs::read_to_string(&self.state).ok()?)
    }

    /// Writes the state file. It is never removed, since it is also the gate.
    fn write_state(&self, state: Option<&State>) -> Result<(), HystartError> {
        let text = state.map(State::text).unwrap_or_default();
        fs::write(&self.state, text).map_err(io_error(&self.state))
    }
}

impl Drop for HystartLock {
    fn drop(&mut self) {
        // Fails while there are other users; the last one restores the value.
        if try_lock(&self.users, FlockOperation::NonBlockingLockExclusive).unwrap_or(false) {
            // After a failure, the next run tries again.
            let _ = self.files.restore();
        }
    }
}

impl State {
    fn text(&self) -> String {
        format!("own={} now={} by={}\n", self.original_value, digit(self.on), self.setter_pid)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let mut next = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            original_value: next("own")?.to_owned(),
            on: next("now")? == "1",
            setter_pid: next("by")?.parse().ok()?,
        })
    }
}

fn open(path: &Path) -> Result<File, HystartError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(path).map_err(io_error(path))
}

fn io_error<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> HystartError {
    let context = path.display().to_string();
    move |cause| HystartError::Io { context, cause: cause.into() }
}

/// Returns whether the lock was acquired.
fn try_lock(file: &File, operation: FlockOperation) -> Result<bool, HystartError> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(cause) => {
            Err(HystartError::Io { context: "HyStart's lock".into(), cause: cause.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;
    const LONG_TIMEOUT: Duration = Duration::from_secs(600);

    fn files(original: &str) -> (tempfile::TempDir, HystartFiles) {
        let directory = tempfile::tempdir().unwrap();
        let parameter = directory.path().join("hystart");
        fs::write(&parameter, original).unwrap();
        let files = HystartFiles::in_directory(&parameter, directory.path());
        (directory, files)
    }

    fn value(files: &HystartFiles) -> String {
        fs::read_to_string(&files.parameter).unwrap()
    }

    #[test]
    fn an_abandoned_user_stops_waiting_and_lets_others_pass() {
        let (_directory, files) = files("1");
        let first_lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        let error = files.acquire(true, LONG_TIMEOUT, &|| true).unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
        // Otherwise it would queue behind the one that was abandoned.
        let second_lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        drop((first_lock, second_lock));
        assert_eq!(value(&files), "1");
    }

    #[test]
    fn users_of_one_value_share_it_and_the_last_restores_the_original() {
        let (_directory, files) = files("1\n");
        let first_lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        let second_lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        assert_eq!(value(&files), "0");
        drop(first_lock);
        assert_eq!(value(&files), "0", "the second user still holds it");
        drop(second_lock);
        assert_eq!(value(&files), "1");
        assert_eq!(files.state(), None);
    }

    #[test]
    fn a_user_of_the_other_value_waits_or_times_out() {
        let (_directory, files) = files("1\n");
        let first_lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        let error = files.acquire(true, NO_WAIT, &|| false).unwrap_err();
        let pid = std::process::id();
        assert!(
            matches!(error, HystartError::Busy { on: false, setter_pid, .. } if setter_pid == pid),
            "{error}"
        );
        thread::scope(|scope| {
            let (waits, has_waited) = mpsc::channel();
            let files = &files;
            let waiting_thread = scope.spawn(move || {
                // Asked each time that the thread waits. The receiver may be gone by then.
                let is_abandoned = || {
                    let _ = waits.send(());
                    false
                };
                files.acquire(true, LONG_TIMEOUT, &is_abandoned).map(|held| (value(files), held))
            });
            has_waited.recv().expect("the other value is in use");
            drop(first_lock);
            let (value_seen, lock) = waiting_thread.join().unwrap().unwrap();
            assert_eq!(value_seen, "1");
            drop(lock);
        });
        assert_eq!((value(&files).as_str(), files.state()), ("1", None));
    }

    #[test]
    fn a_user_that_times_out_after_a_lost_race_reports_its_whole_wait() {
        let (_directory, files) = files("1\n");
        let _lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        let error = files.acquire_until(true, Instant::now(), LONG_TIMEOUT, &|| false).unwrap_err();
        assert!(matches!(error, HystartError::Busy { wait_time: LONG_TIMEOUT, .. }), "{error}");
        assert!(error.to_string().contains("10 minutes"), "{error}");
    }

    #[test]
    fn concurrent_users_each_get_their_value() {
        let (_directory, files) = files("1\n");
        thread::scope(|scope| {
            for number in 0..8 {
                let files = files.clone();
                scope.spawn(move || {
                    for round in 0..5 {
                        let on = (number + round) % 3 == 0;
                        let lock = files.acquire(on, LONG_TIMEOUT, &|| false).unwrap();
                        assert_eq!(is_on(&value(&files)), on);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!((value(&files).trim(), files.state()), ("1", None));
    }

    #[test]
    fn repair_restores_the_value_after_a_killed_user() {
        let (_directory, files) = files("0\n");
        let stale = State { original_value: "1".into(), on: false, setter_pid: 7 };
        files.write_state(Some(&stale)).unwrap();
        assert_eq!(State::parse(&stale.text()), Some(stale.clone()));
        files.repair().unwrap();
        assert_eq!((value(&files).as_str(), files.state()), ("1", None));
        // Without a repair, the next user also reads the machine's original value.
        fs::write(&files.parameter, "0").unwrap();
        files.write_state(Some(&stale)).unwrap();
        let lock = files.acquire(false, NO_WAIT, &|| false).unwrap();
        files.repair().unwrap();
        assert_eq!(value(&files), "0", "it is in use");
        drop(lock);
        assert_eq!(value(&files), "1");
    }

    #[test]
    fn errors_explain_why_the_value_cannot_be_set() {
        let (directory, mut files) = files("1\n");
        assert!(files.check().is_ok());
        files.parameter = directory.path().join("gone");
        let error = files.acquire(true, NO_WAIT, &|| false).unwrap_err();
        assert!(error.to_string().contains("modprobe tcp_cubic"), "{error}");
        files.parameter = directory.path().to_owned();
        let error = files.acquire(true, NO_WAIT, &|| false).unwrap_err();
        assert!(error.to_string().contains("as root"), "{error}");
        assert!(is_on("1\n") && is_on("Y\n") && !is_on("0\n") && !is_on("N"));
    }
}
