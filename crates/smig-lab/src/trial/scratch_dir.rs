//! Temporary directory for the files of a campaign's trials. It is removed at the end of the
//! campaign, or at the start of the next one if the program was killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

const DIR_PREFIX: &str = "smig-lab-";
/// Lock file; locked while its directory is in use.
const LOCK_FILE: &str = "in-use";

/// A directory for temporary files.
#[derive(Debug)]
pub(super) struct ScratchDir {
    /// Declared before the lock, which is therefore released after the directory is removed.
    dir: TempDir,
    _lock: File,
}

impl ScratchDir {
    /// Creates a directory, and removes those that killed processes left behind.
    pub(super) fn create() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_stale_dirs(&parent);
        let dir = TempDir::with_prefix_in(DIR_PREFIX, &parent)?;
        // The lock file gets its name only after it is locked, so no process finds it unlocked.
        let unlocked = dir.path().join("new");
        let lock = File::create(&unlocked)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, dir.path().join(LOCK_FILE))?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the directories whose lock is free. Failures are ignored: the directory may belong to
/// another user.
fn remove_stale_dirs(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let dir: PathBuf = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(DIR_PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(dir.join(LOCK_FILE)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unlocked_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let create_dir = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        let (used_dir, stale_dir, dir_without_lock, other_dir) = (
            create_dir("smig-lab-a"),
            create_dir("smig-lab-b"),
            create_dir("smig-lab-c"),
            create_dir("other"),
        );
        let locks = [&used_dir, &stale_dir, &other_dir]
            .map(|dir| File::create(dir.join(LOCK_FILE)).unwrap());
        flock(&locks[0], FlockOperation::NonBlockingLockExclusive).unwrap();
        remove_stale_dirs(parent.path());
        assert!(used_dir.exists() && dir_without_lock.exists() && other_dir.exists());
        assert!(!stale_dir.exists());
    }
}
