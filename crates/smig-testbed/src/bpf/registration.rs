//! Compiles a program, registers it, and counts its users by locks on a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{BpfControl, BpfError};
use crate::keeper::state_directory;
use crate::netns::available_congestion_controls;

/// Polling interval while waiting for a lock.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const HEADER: &str = include_str!("../../bpf/kernel.h");

/// Returns a congestion control's source.
const fn program_source(control: BpfControl) -> &'static str {
    match control {
        BpfControl::Yeah => include_str!("../../bpf/yeah.bpf.c"),
        BpfControl::Illinois => include_str!("../../bpf/illinois.bpf.c"),
        BpfControl::CubicWithoutHystart => include_str!("../../bpf/cubic_nohs.bpf.c"),
    }
}

/// A user of a registered congestion control. Dropping the last one removes it. The locked file holds the id of the registered map,
/// so that what others have registered under the same name is never taken for it.
#[derive(Debug)]
pub(super) struct Registration {
    control: BpfControl,
    /// Locked: shared by users, exclusively by who registers or removes it.
    lock: File,
}

impl Registration {
    /// Registers a congestion control, or shares it with other users. Gives up when nobody waits for it any more.
    pub(super) fn acquire(
        control: BpfControl,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Self, BpfError> {
        let path = lock_path(control);
        let io_error =
            |cause| BpfError::Io { context: format!("cannot lock {}", path.display()), cause };
        let lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            // Another user's shared lock would block all runs.
            .mode(0o600)
            .open(&path)
            .map_err(io_error)?;
        while !is_abandoned() {
            if try_lock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(io_error)? {
                // Of a keeper that was killed, or of an earlier build.
                if Self::is_registered(control) {
                    remove(control)?;
                }
                let id = register(control)?;
                fs::write(&path, id).map_err(io_error)?;
            }
            // Turning an exclusive lock into a shared one releases it for a moment, in which another one may remove what has
            // been registered.
            if try_lock(&lock, FlockOperation::NonBlockingLockShared).map_err(io_error)?
                && Self::is_registered(control)
            {
                return Ok(Self { control, lock });
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(BpfError::Keeper(format!("the run that needs {control} has ended")))
    }

    /// Returns whether a run has registered it: the kernel has it, and what the file names is loaded.
    pub(super) fn is_registered(control: BpfControl) -> bool {
        let Ok(id) = fs::read_to_string(lock_path(control)) else { return false };
        if id.is_empty() || !is_available(control.as_str()) {
            return false;
        }
        let shown = bpftool(&["--json", "map", "show", "id", id.trim()]);
        let text = shown.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.is_ok_and(|text| text.contains(&format!("\"name\":\"{control}\"")))
    }
}

/// Locks a file, unless another process has a lock that excludes it.
fn try_lock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether sockets can ask for this name without loading a module. bpftool also lists what has been removed, as long as a
/// connection uses it.
#[must_use]
pub fn is_available(name: &str) -> bool {
    let available = available_congestion_controls().unwrap_or_default();
    available.split_whitespace().any(|known| known == name)
}

/// Removes a congestion control that nobody uses.
pub(super) fn remove_unused(control: BpfControl) -> Result<(), BpfError> {
    let Ok(lock) = File::open(lock_path(control)) else { return Ok(()) };
    let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_free && Registration::is_registered(control) { remove(control) } else { Ok(()) }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What fails here is repeated by the next user.
            let _ = remove(self.control);
        }
    }
}

fn lock_path(control: BpfControl) -> PathBuf {
    state_directory().join(format!("smig-lab-bpf-{control}"))
}

/// Checks for the programs that are called.
pub(super) fn check_programs(control: BpfControl) -> Result<(), BpfError> {
    let missing = |program, package| Err(BpfError::Missing { control, program, package });
    if Command::new("clang").arg("--version").output().is_err() {
        return missing("clang", "clang");
    }
    if bpftool(&["version"]).is_err() {
        return missing("bpftool", "bpftool");
    }
    if !Path::new("/usr/include/bpf/bpf_helpers.h").exists() {
        return missing("libbpf's header bpf/bpf_helpers.h", "libbpf-dev");
    }
    Ok(())
}

/// Calls bpftool, which Debian installs where only root's PATH looks.
fn bpftool(arguments: &[&str]) -> io::Result<Output> {
    match Command::new("bpftool").args(arguments).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Command::new("/usr/sbin/bpftool").args(arguments).output()
        }
        result => result,
    }
}

fn remove(control: BpfControl) -> Result<(), BpfError> {
    let output = bpftool(&["struct_ops", "unregister", "name", control.as_str()]);
    // It also fails for one of the same name that has been removed and is still in use.
    if is_available(control.as_str()) {
        check(control, "bpftool", output).map(drop)
    } else {
        Ok(())
    }
}

/// Registers a program; returns the id of its map.
fn register(control: BpfControl) -> Result<String, BpfError> {
    let scratch = tempfile::Builder::new().prefix("smig-lab-bpf-").tempdir().map_err(|cause| {
        BpfError::Io { context: "cannot create a directory for a BPF program".to_owned(), cause }
    })?;
    let object = compile(control, scratch.path())?;
    let output = bpftool(&["struct_ops", "register", &object.to_string_lossy()]);
    let output = check(control, "bpftool", output)?;
    // "Registered tcp_congestion_ops yeah id 27", on standard error.
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let id = text.split_whitespace().last().filter(|word| word.parse::<u32>().is_ok());
    id.map(str::to_owned).ok_or_else(|| {
        // Nobody would know whose it is. What fails here shows in the next run.
        let _ = remove(control);
        let message = format!("bpftool printed no id: {}", text.trim());
        BpfError::Rejected { control, message }
    })
}

fn compile(control: BpfControl, directory: &Path) -> Result<PathBuf, BpfError> {
    let source = directory.join(format!("{control}.bpf.c"));
    let object = directory.join(format!("{control}.bpf.o"));
    fs::write(directory.join("kernel.h"), HEADER)
        .and_then(|()| fs::write(&source, program_source(control)))
        .map_err(|cause| BpfError::Io {
            context: format!("cannot write {}", source.display()),
            cause,
        })?;
    let output = Command::new("clang")
        .args(["-g", "-O2", "-target", "bpf", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output();
    check(control, "clang", output).map(|_| object)
}

fn check(
    control: BpfControl,
    program: &str,
    output: io::Result<Output>,
) -> Result<Output, BpfError> {
    let output = output
        .map_err(|cause| BpfError::Io { context: format!("cannot start {program}"), cause })?;
    if output.status.success() {
        return Ok(output);
    }
    // The last lines say why; a verifier's log before them may be long.
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = text.lines().rev().take(6).collect();
    let message = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
    Err(BpfError::Rejected { control, message: format!("{program}: {message}") })
}
