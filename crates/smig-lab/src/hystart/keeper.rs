//! Who may set it, and what it was before.
//!
//! Two lock files. All who use the setting have a shared lock on `users`; who is alone there may
//! change it. Who comes passes the `state` file's lock, the gate, one at a time, and whoever waits
//! for another value waits there: those who come later queue behind. The last who leaves gives the
//! machine its own value back; the state file has it until then, so that it outlives its writer.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::HystartError;

/// How often one who waits looks again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The kernel's parameter, and the lab's files about it.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) parameter: PathBuf,
    state: PathBuf,
    users: PathBuf,
}

/// The setting is as it was asked for until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    files: Files,
    users: File,
}

/// What is remembered while somebody uses the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// The machine's own value, as the kernel writes it.
    own: String,
    /// What it is meanwhile.
    on: bool,
    /// Who set it.
    by: u32,
}

/// Whether the parameter's text says that it is on.
pub(super) fn is_on(text: &str) -> bool {
    !matches!(text.trim(), "0" | "N")
}

const fn digit(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}

impl Files {
    /// The machine's. Everybody must find the same ones, whatever TMPDIR is.
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

    /// Whether the parameter is there and may be written.
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

    /// Sets it, or joins those who have it so. Waits for those who have it otherwise.
    pub(super) fn hold(&self, on: bool, patience: Duration) -> Result<Held, HystartError> {
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
            let held = Held { files: self.clone(), users };
            // One who just left may have been alone for a moment, and taken the setting back.
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

    /// Gives the machine its own value back if nobody uses another one any more.
    pub(super) fn repair(&self) -> Result<(), HystartError> {
        if self.state().is_none() {
            return Ok(());
        }
        let (gate, users) = (open(&self.state)?, open(&self.users)?);
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        // Whoever is at the gate, or uses it, sees to it.
        if try_lock(&gate, exclusive)? && try_lock(&users, exclusive)? {
            self.give_back()?;
        }
        Ok(())
    }

    /// To be called by who is alone.
    fn set(&self, on: bool) -> Result<(), HystartError> {
        let own = match self.state() {
            // Left behind, or passed on by one who left while this one waited.
            Some(state) => state.own,
            None => {
                let text =
                    fs::read_to_string(&self.parameter).map_err(io_error(&self.parameter))?;
                text.trim().to_owned()
            }
        };
        // Remembered before it is changed.
        self.remember(Some(&State { own, on, by: std::process::id() }))?;
        fs::write(&self.parameter, digit(on)).map_err(io_error(&self.parameter))
    }

    /// To be called by who is alone.
    fn give_back(&self) -> Result<(), HystartError> {
        let Some(state) = self.state() else { return Ok(()) };
        fs::write(&self.parameter, &state.own).map_err(io_error(&self.parameter))?;
        self.remember(None)
    }

    fn state(&self) -> Option<State> {
        State::parse(&fs::read_to_string(&self.state).ok()?)
    }

    /// The file stays, since it is also the gate.
    fn remember(&self, state: Option<&State>) -> Result<(), HystartError> {
        let text = state.map(State::text).unwrap_or_default();
        fs::write(&self.state, text).map_err(io_error(&self.state))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Fails while others are there: the last of them does it.
        if try_lock(&self.users, FlockOperation::NonBlockingLockExclusive).unwrap_or(false) {
            // What fails here, the next run tries again.
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

/// Whether the lock was there to be had.
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
        // Who comes next without a repair knows the machine's own value as well.
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
