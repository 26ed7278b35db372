//! File versions: the `fstat` fields that distinguish two states of a file.

use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// How long after its last change a file's version is unreliable: two changes within one tick of
/// the file system's clock (up to a second) produce the same version.
const MIN_SETTLED_AGE: Duration = Duration::from_secs(2);

/// A time as returned by `fstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileTime {
    seconds: i64,
    nanoseconds: u64,
}

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: FileTime,
    /// Also changed by rename, unlink and chmod; but unlike `modified` it cannot be set back.
    status_changed: FileTime,
}

impl FileVersion {
    /// Returns the state and the type of an open file.
    pub(crate) fn fstat(fd: impl AsFd) -> Result<(Self, FileType), Errno> {
        let stat = rustix::fs::fstat(fd)?;
        Ok((Self::from_stat(&stat), FileType::from_raw_mode(stat.st_mode)))
    }

    fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: FileTime { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec },
            status_changed: FileTime { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec },
        }
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns when the content last changed, in seconds since 1970; `None` before that.
    pub(crate) fn modified_unix_seconds(&self) -> Option<u64> {
        u64::try_from(self.modified.seconds).ok()
    }

    /// Returns whether any change from `now` on is certain to change the version.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.status_changed.seconds).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        now.duration_since(changed).is_ok_and(|age| age > MIN_SETTLED_AGE)
    }

    /// Returns whether the first `self.size()` bytes are unchanged in `later`, the version of the same open
    /// file. A file that only grew counts as unchanged: data was appended.
    pub(crate) fn is_prefix_of(&self, later: &Self) -> bool {
        later.size > self.size || (later.size == self.size && later.modified == self.modified)
    }

    /// Returns a strong entity-tag (RFC 9110 section 8.8.3), with its quotes. It includes the inode, because
    /// deployment tools that set all times alike would otherwise give two files of one size the same
    /// tag.
    pub(crate) fn etag(&self, suffix: &str) -> String {
        let FileTime { seconds, nanoseconds } = self.modified;
        let nanoseconds = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        format!("\"{:x}-{nanoseconds:x}-{:x}{suffix}\"", self.size, self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS_CHANGED: FileTime = FileTime { seconds: 1_000, nanoseconds: 5 };

    fn version(size: u64, modified: i64) -> FileVersion {
        let modified = FileTime { seconds: modified, nanoseconds: 255 };
        FileVersion { device: 1, inode: 0xabc, size, modified, status_changed: STATUS_CHANGED }
    }

    #[test]
    fn etags_include_size_time_inode_and_suffix() {
        assert_eq!(version(16, 0).etag(""), "\"10-ff-abc\"");
        assert_eq!(version(16, 1).etag("-gz"), "\"10-3b9acaff-abc-gz\"");
        assert_ne!(version(16, -1).etag(""), version(16, 1).etag(""));
    }

    #[test]
    fn appended_data_leaves_the_prefix_unchanged() {
        assert!(version(10, 1).is_prefix_of(&version(10, 1)));
        assert!(version(10, 1).is_prefix_of(&version(11, 2)));
        assert!(!version(10, 1).is_prefix_of(&version(10, 2)));
        assert!(!version(10, 1).is_prefix_of(&version(9, 1)));
    }

    #[test]
    fn a_version_is_settled_after_two_seconds() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (now, expected) in [(0, false), (1_000, false), (1_002, false), (1_003, true)] {
            assert_eq!(version(1, 1).is_settled(at(now)), expected, "{now}");
        }
    }
}
