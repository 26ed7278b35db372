//! Access to the HyStart parameter, and its original value.
//!
//! There are two lock files. Every user of the setting holds a shared lock on `users`; with an
//! exclusive lock there, a process may change the setting. New users acquire the lock of the `state`
//! file, the gate, one at a time. A user that needs the other value waits with the gate held, so that
//! later ones queue behind it. The last user restores the machine's original value. Until then the
//! value is in the state file, so that it outlives the process that wrote it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::HystartError;

/// Polling interval while waiting for a lock.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The kernel's parameter, and the lab's state and lock files.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) parameter: PathBuf,
    state: PathBuf,
    users: PathBuf,
}

/// Holds the setting at the requested value until dropped.
#[derive(Debug)]
pub(super) struct HystartLock {
    files: Files,
    users: File,
}

/// Content of the state file while the setting is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// The machine's original value, as the kernel formats it.
    own: String,
    /// The value in use.
    on: bool,
    /// ID of the process that set it.
    by: u32,
}

/// Returns whether the parameter's text means on.
pub(super) fn is_on(text: &str) -> bool {
    !matches!(text.trim(), "0" | "N")
}

const fn digit(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

impl Files {
    /// Returns the machine's files. All processes must use the same ones, whatever `TMPDIR` is.
    pub(super) fn here() -> Self {
        let folder = if Path::new("/run").is_dir() { "/run" } else { "/tmp" };
        Self::at(Path::new("/sys/module/tcp_cubic/parameters/hystart"), Path::new(folder))
    }

    fn at(parameter: &Path, folder: &Path) -> Self {
        Self {
            parameter: parameter.to_owned(),
            state: folder.join("smig-lab-hystart"),
            users: folder.join("smig-lab-hystart.users"),
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

    /// Sets the value, or joins the users of the same value. Waits for users of the other value.
    pub(super) fn hold(&self, on: bool, patience: Duration) -> Result<HystartLock, HystartError> {
        self.check()?;
        let until = Instant::now() + patience;
        let gate = open(&self.state)?;
        while !try_lock(&gate, FlockOperation::NonBlockingLockExclusive)? {
            self.wait(on, until, patience)?;
        }
        let users = open(&self.users)?;
        loop {
            if try_lock(&users, FlockOperation::NonBlockingLockExclusive)? {
                self.set(on)?;
                flock(&users, FlockOperation::LockShared).map_err(io_error(&self.users))?;
            } else if !self.is_set(on) || !try_lock(&users, FlockOperation::NonBlockingLockShared)?
            {
                self.wait(on, until, patience)?;
                continue;
            }
            let held = HystartLock { files: self.clone(), users };
            // A leaving user may have held the exclusive lock in between and restored the original value.
            if self.is_set(on) {
                return Ok(held);
            }
            drop((held, gate));
            return self.hold(on, until.saturating_duration_since(Instant::now()));
        }
    }

    fn wait(&self, on: bool, until: Instant, waited: Duration) -> Result<(), HystartError> {
        if Instant::now() >= until {
            let (on, by) = self.state().map_or((!on, 0), |state| (state.on, state.by));
            return Err(HystartError::Busy { on, by, waited });
        }
        thread::sleep(LOOK_EVERY);
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
            self.give_back()?;
        }
        Ok(())
    }

    /// The caller must hold the exclusive lock on `users`.
    fn set(&self, on: bool) -> Result<(), HystartError> {
        let own = match self.state() {
            // Left by a killed process, or by one that left while another waited.
            Some(state) => state.own,
            None => {
                let text =
                    fs::read_to_string(&self.parameter).map_err(io_error(&self.parameter))?;
                text.trim().to_owned()
            }
        };
        // Record the original value before changing the parameter.
        self.remember(Some(&State { own, on, by: std::process::id() }))?;
        fs::write(&self.parameter, digit(on)).map_err(io_error(&self.parameter))
    }

    /// The caller must hold the exclusive lock on `users`.
    fn give_back(&self) -> Result<(), HystartError> {
        let Some(state) = self.state() else { return Ok(()) };
        fs::write(&self.parameter, &state.own).map_err(io_error(&self.parameter))?;
        self.remember(None)
    }

    fn state(&self) -> Option<State> {
        State::parse(&fs::read_to_string(&self.state).ok()?)
    }

    /// Writes the state file. It is never removed, since it is also the gate.
    fn remember(&self, state: Option<&State>) -> Result<(), HystartError> {
        let text = state.map(State::text).unwrap_or_default();
        fs::write(&self.state, text).map_err(io_error(&self.state))
    }
}

impl Drop for HystartLock {
    fn drop(&mut self) {
        // Fails while there are other users; the last one restores the value.
        if try_lock(&self.users, FlockOperation::NonBlockingLockExclusive).unwrap_or(false) {
            // After a failure, the next run tries again.
            let _ = self.files.give_back();
        }
    }
}

impl State {
    fn text(&self) -> String {
        format!("own={} now={} by={}\n", self.own, digit(self.on), self.by)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let mut next = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            own: next("own")?.to_owned(),
            on: next("now")? == "1",
            by: next("by")?.parse().ok()?,
        })
    }
}

fn open(path: &Path) -> Result<File, HystartError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(path).map_err(io_error(path))
}

fn io_error<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> HystartError {
    let doing = path.display().to_string();
    move |cause| HystartError::Io { doing, cause: cause.into() }
}

/// Returns whether the lock was acquired.
fn try_lock(file: &File, how: FlockOperation) -> Result<bool, HystartError> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(cause) => Err(HystartError::Io { doing: "HyStart's lock".into(), cause: cause.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(600);

    fn files(own: &str) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let parameter = folder.path().join("hystart");
        fs::write(&parameter, own).unwrap();
        let files = Files::at(&parameter, folder.path());
        (folder, files)
    }

    fn value(files: &Files) -> String {
        fs::read_to_string(&files.parameter).unwrap()
    }

    #[test]
    fn those_who_agree_share_it_and_the_last_gives_it_back() {
        let (_folder, files) = files("1\n");
        let one = files.hold(false, NOW).unwrap();
        let two = files.hold(false, NOW).unwrap();
        assert_eq!(value(&files), "0");
        drop(one);
        assert_eq!(value(&files), "0", "the second is still there");
        drop(two);
        assert_eq!(value(&files), "1");
        assert_eq!(files.state(), None);
    }

    #[test]
    fn who_wants_it_otherwise_is_told_or_waits() {
        let (_folder, files) = files("1\n");
        let one = files.hold(false, NOW).unwrap();
        let error = files.hold(true, NOW).unwrap_err();
        let own = std::process::id();
        assert!(matches!(error, HystartError::Busy { on: false, by, .. } if by == own), "{error}");
        thread::scope(|scope| {
            let other = scope.spawn(|| files.hold(true, LONG).map(|held| (value(&files), held)));
            drop(one);
            let (seen, held) = other.join().unwrap().unwrap();
            assert_eq!(seen, "1");
            drop(held);
        });
        assert_eq!((value(&files).as_str(), files.state()), ("1", None));
    }

    #[test]
    fn many_at_once_each_have_it_as_they_want() {
        let (_folder, files) = files("1\n");
        thread::scope(|scope| {
            for number in 0..8 {
                let files = files.clone();
                scope.spawn(move || {
                    for round in 0..5 {
                        let on = (number + round) % 3 == 0;
                        let held = files.hold(on, LONG).unwrap();
                        assert_eq!(is_on(&value(&files)), on);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!((value(&files).trim(), files.state()), ("1", None));
    }

    #[test]
    fn what_was_left_behind_is_put_right() {
        let (_folder, files) = files("0\n");
        let left = State { own: "1".into(), on: false, by: 7 };
        files.remember(Some(&left)).unwrap();
        assert_eq!(State::parse(&left.text()), Some(left.clone()));
        files.repair().unwrap();
        assert_eq!((value(&files).as_str(), files.state()), ("1", None));
        // Without a repair, the next user also reads the machine's original value.
        fs::write(&files.parameter, "0").unwrap();
        files.remember(Some(&left)).unwrap();
        let held = files.hold(false, NOW).unwrap();
        files.repair().unwrap();
        assert_eq!(value(&files), "0", "it is in use");
        drop(held);
        assert_eq!(value(&files), "1");
    }

    #[test]
    fn what_cannot_be_set_says_why() {
        let (folder, mut files) = files("1\n");
        assert!(files.check().is_ok());
        files.parameter = folder.path().join("gone");
        let error = files.hold(true, NOW).unwrap_err();
        assert!(error.to_string().contains("modprobe tcp_cubic"), "{error}");
        files.parameter = folder.path().to_owned();
        let error = files.hold(true, NOW).unwrap_err();
        assert!(error.to_string().contains("as root"), "{error}");
        assert!(is_on("1\n") && is_on("Y\n") && !is_on("0\n") && !is_on("N"));
    }
}
