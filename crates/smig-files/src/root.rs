//! Opens files below one directory.
//!
//! Owns confinement. The kernel enforces it (`openat2` with RESOLVE_BENEATH), so a symlink that is
//! changed during path resolution cannot win a race. Without `openat2`, the path is resolved one
//! component at a time, and no symlink is followed. Only [`Symlinks::Follow`] lets symlinks lead outside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;

use crate::options::Symlinks;

/// Maximum number of attempts of an open that the kernel aborts because of a concurrent rename.
const MAX_OPEN_ATTEMPTS: usize = 16;

/// Flags of every open for reading. NONBLOCK: opening a FIFO must not wait for its writer.
const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::LARGEFILE);

/// Whether an operation may block on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It must not: its thread also serves other requests.
    Forbidden,
    /// It may: its thread is meant for blocking operations.
    Allowed,
}

/// How a path is opened. All but `OpenAt` confine it to the directory, unless symlinks may lead outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenMethod {
    /// `openat2` with RESOLVE_CACHED, which does not block on the disk (Linux 5.12).
    OpenAt2Cached,
    /// `openat2`.
    OpenAt2,
    /// Component by component; no symlinks and no `..`.
    Walk,
    /// `openat`, which confines nothing: the options allow symlinks to any target, and there is no `openat2`.
    OpenAt,
}

/// The served directory. It remains the same if its name is given to another directory.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    symlinks: Symlinks,
    method: OpenMethod,
}

impl Root {
    pub(crate) fn new(path: &Path, symlinks: Symlinks) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let method = match (probe(directory.as_fd()), symlinks) {
            (OpenMethod::Walk, Symlinks::Follow) => OpenMethod::OpenAt,
            (method, _) => method,
        };
        Ok(Self { directory, symlinks, method })
    }

    /// Opens `relative_path` for reading; the empty path is the directory itself.
    ///
    /// `relative_path` is a [`crate::path::RequestPath`], maybe with the name of an index file, an extension or an entry
    /// appended.
    /// [`Errno::AGAIN`] with [`Blocking::Forbidden`]: retry with [`Blocking::Allowed`].
    pub(crate) fn open(&self, relative_path: &[u8], blocking: Blocking) -> Result<OwnedFd, Errno> {
        self.open_with(relative_path, READ_FLAGS, blocking)
    }

    /// Like [`Self::open`], but the descriptor is only for `fstat`.
    pub(crate) fn open_for_stat(&self, relative_path: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_with(relative_path, OFlags::PATH | OFlags::CLOEXEC, Blocking::Allowed)
    }

    fn open_with(
        &self,
        relative_path: &[u8],
        flags: OFlags,
        blocking: Blocking,
    ) -> Result<OwnedFd, Errno> {
        let relative_path = if relative_path.is_empty() { b"." } else { relative_path };
        match (self.method, blocking) {
            (OpenMethod::OpenAt2Cached, Blocking::Forbidden) => openat2(
                &self.directory,
                relative_path,
                flags,
                Mode::empty(),
                self.cached_resolve_flags(),
            ),
            (OpenMethod::OpenAt2 | OpenMethod::Walk | OpenMethod::OpenAt, Blocking::Forbidden) => {
                Err(Errno::AGAIN)
            }
            (OpenMethod::OpenAt2Cached | OpenMethod::OpenAt2, Blocking::Allowed) => {
                self.open_with_retries(relative_path, flags)
            }
            (OpenMethod::Walk, Blocking::Allowed) => self.walk(relative_path, flags),
            (OpenMethod::OpenAt, Blocking::Allowed) => {
                openat(&self.directory, relative_path, flags, Mode::empty())
            }
        }
    }

    fn cached_resolve_flags(&self) -> ResolveFlags {
        self.resolve_flags() | ResolveFlags::CACHED
    }

    fn resolve_flags(&self) -> ResolveFlags {
        let symlink_flags = match self.symlinks {
            Symlinks::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Inside => ResolveFlags::BENEATH,
            Symlinks::Follow => ResolveFlags::empty(),
        };
        symlink_flags | ResolveFlags::NO_MAGICLINKS
    }

    fn open_with_retries(&self, relative_path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut attempts = 0..MAX_OPEN_ATTEMPTS;
        loop {
            attempts.next();
            match openat2(
                &self.directory,
                relative_path,
                flags,
                Mode::empty(),
                self.resolve_flags(),
            ) {
                Err(Errno::AGAIN | Errno::INTR) if !attempts.is_empty() => {}
                result => return result,
            }
        }
    }

    fn walk(&self, relative_path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let directory_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut segments = relative_path.split(|byte| *byte == b'/');
        let last_segment = segments.next_back().unwrap_or(relative_path);
        // As RESOLVE_BENEATH does.
        if relative_path.split(|byte| *byte == b'/').any(|segment| segment == b"..") {
            return Err(Errno::XDEV);
        }
        let mut directory: Option<OwnedFd> = None;
        for segment in segments {
            let parent = directory.as_ref().unwrap_or(&self.directory);
            directory = Some(openat(parent, segment, directory_flags, Mode::empty())?);
        }
        let parent = directory.as_ref().unwrap_or(&self.directory);
        let file = openat(parent, last_segment, flags | OFlags::NOFOLLOW, Mode::empty())?;
        if flags.contains(OFlags::PATH) {
            // With O_PATH, O_NOFOLLOW opens the symlink instead of refusing it.
            let mode = rustix::fs::fstat(&file)?.st_mode;
            if rustix::fs::FileType::from_raw_mode(mode).is_symlink() {
                return Err(Errno::LOOP);
            }
        }
        Ok(file)
    }
}

/// Returns what this kernel supports. A sandbox may refuse `openat2` with PERM.
fn probe(directory: BorrowedFd<'_>) -> OpenMethod {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let try_with = |resolve| openat2(directory, c".", flags, Mode::empty(), resolve);
    match try_with(beneath) {
        Ok(_) => match try_with(beneath | ResolveFlags::CACHED) {
            Err(Errno::INVAL) => OpenMethod::OpenAt2,
            _ => OpenMethod::OpenAt2Cached,
        },
        Err(_) => OpenMethod::Walk,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn create_tree() -> tempfile::TempDir {
        let outer_directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(outer_directory.path().join("root/a/b")).unwrap();
        fs::write(outer_directory.path().join("root/a/b/file"), "inside").unwrap();
        fs::write(outer_directory.path().join("secret"), "outside").unwrap();
        let root = outer_directory.path().join("root");
        symlink("a/b/file", root.join("good")).unwrap();
        symlink("../a/b", root.join("a/folder")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(outer_directory.path().join("secret"), root.join("absolute")).unwrap();
        symlink(outer_directory.path(), root.join("away")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        outer_directory
    }

    fn content(root: &Root, path: &str) -> Result<String, Errno> {
        let mut text = String::new();
        let fd = root.open(path.as_bytes(), Blocking::Allowed)?;
        fs::File::from(fd).read_to_string(&mut text).unwrap();
        Ok(text)
    }

    const ESCAPES: [&str; 6] =
        ["up", "absolute", "away/secret", "magic/etc/passwd", "loop", "../secret"];

    #[test]
    fn symlinks_inside_are_followed() {
        let outer_directory = create_tree();
        let root = Root::new(&outer_directory.path().join("root"), Symlinks::Inside).unwrap();
        for path in ["a/b/file", "good", "a/folder/file"] {
            let expected = if root.method == OpenMethod::Walk && path != "a/b/file" {
                Err(())
            } else {
                Ok("inside".to_owned())
            };
            assert_eq!(content(&root, path).map_err(drop), expected, "{path}");
        }
        for path in ESCAPES {
            assert!(content(&root, path).is_err(), "{path}");
            assert!(root.open(path.as_bytes(), Blocking::Forbidden).is_err(), "{path}");
            assert!(root.open_for_stat(path.as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn symlinks_are_refused() {
        let outer_directory = create_tree();
        let mut root = Root::new(&outer_directory.path().join("root"), Symlinks::Refuse).unwrap();
        let probed = root.method;
        for method in [probed, OpenMethod::Walk] {
            root.method = method;
            assert_eq!(content(&root, "a/b/file").as_deref(), Ok("inside"));
            assert!(root.open(b"", Blocking::Allowed).is_ok());
            for path in ESCAPES {
                assert!(content(&root, path).is_err(), "{path}");
                assert!(root.open_for_stat(path.as_bytes()).is_err(), "{path}");
            }
            for path in ["good", "a/folder/file", "a/b/missing", "a/b/file/x", "missing/x"] {
                assert!(content(&root, path).is_err(), "{path}");
                assert!(root.open_for_stat(path.as_bytes()).is_err(), "{path}");
            }
            assert!(root.open_for_stat(b"a/b").is_ok());
        }
    }

    #[test]
    fn all_symlinks_are_followed() {
        let outer_directory = create_tree();
        let root = Root::new(&outer_directory.path().join("root"), Symlinks::Follow).unwrap();
        assert_eq!(content(&root, "up").as_deref(), Ok("outside"));
        assert_eq!(content(&root, "away/secret").as_deref(), Ok("outside"));
    }

    #[test]
    fn the_root_must_be_a_directory() {
        let outer_directory = create_tree();
        assert!(Root::new(&outer_directory.path().join("secret"), Symlinks::Inside).is_err());
        assert!(Root::new(&outer_directory.path().join("missing"), Symlinks::Inside).is_err());
    }
}
