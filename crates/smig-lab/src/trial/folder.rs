//! Temporary directory for the files of a campaign's runs. It is removed at the end of the
//! campaign, or at the start of the next one if the program was killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

const PREFIX: &str = "smig-lab-";
/// Lock file; locked while its directory is in use.
const LOCK: &str = "in-use";

/// A directory for temporary files.
#[derive(Debug)]
pub(super) struct ScratchDir {
    /// Declared before the lock, which is therefore released after the directory is removed.
    folder: TempDir,
    _lock: File,
}

impl ScratchDir {
    /// Creates a directory, and removes those that killed processes left behind.
    pub(super) fn make() -> io::Result<Self> {
        let place = std::env::temp_dir();
        remove_left_behind(&place);
        let folder = TempDir::with_prefix_in(PREFIX, &place)?;
        // The lock file gets its name only after it is locked, so no process finds it unlocked.
        let unlocked = folder.path().join("new");
        let lock = File::create(&unlocked)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the directories whose lock is free. Failures are ignored: the directory belongs to
/// another user.
fn remove_left_behind(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let folder: PathBuf = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_uses_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (used, left, young, other) =
            (make("smig-lab-a"), make("smig-lab-b"), make("smig-lab-c"), make("other"));
        let locks = [&used, &left, &other].map(|folder| File::create(folder.join(LOCK)).unwrap());
        flock(&locks[0], FlockOperation::NonBlockingLockExclusive).unwrap();
        remove_left_behind(place.path());
        assert!(used.exists() && young.exists() && other.exists());
        assert!(!left.exists());
    }
}
