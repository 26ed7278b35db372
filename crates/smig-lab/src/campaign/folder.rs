//! The folder of what a campaign's runs need while they run: gone when they have ended, and, where
//! something ended the program before it could tidy up, gone when the next campaign begins.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

const PREFIX: &str = "smig-lab-";
/// Locked as long as its folder is in use.
const LOCK: &str = "in-use";

/// A folder for files that nobody needs afterwards.
#[derive(Debug)]
pub(super) struct Folder {
    /// Released after the folder has gone.
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes one, and removes those that were left behind.
    pub(super) fn make() -> io::Result<Self> {
        let place = std::env::temp_dir();
        remove_left_behind(&place);
        let folder = TempDir::with_prefix_in(PREFIX, &place)?;
        // It has its name only when it is locked: nobody finds it unlocked.
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

/// Removes the folders whose lock nobody holds. What cannot be removed is somebody else's.
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
