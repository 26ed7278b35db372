//! Writes a body to its destination, and keeps an incomplete one as a partial file.
//!
//! A file is written as NAME.part with metadata beside it, and renamed when it is complete. Only
//! -o and --overwrite replace an existing file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use super::part_metadata::PartMetadata;
use super::plan::{Destination, IfExists};
use crate::exit::{CliError, Exit};

/// Size of reads that hash an existing partial file, in bytes.
const READ_CHUNK_BYTES: usize = 256 << 10;

/// How often a partial file is opened again because another process has renamed it before it was locked.
const MAX_OPEN_ATTEMPTS: usize = 8;

/// Whether the content is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hashing {
    Off,
    On,
}

/// Partial content of an earlier attempt.
#[derive(Debug)]
pub(super) struct PartialFile {
    pub(super) length: u64,
    pub(super) metadata: PartMetadata,
}

/// An open destination.
#[derive(Debug)]
pub(super) struct Sink {
    out: Output,
    hash: Option<Sha256>,
    destination_bytes: u64,
}

#[derive(Debug)]
enum Output {
    Nowhere,
    Stdout(io::Stdout),
    Device(File, PathBuf),
    Part { file: File, part: PathBuf, path: PathBuf, if_exists: IfExists },
}

fn write_error(path: &Path, error: &io::Error) -> CliError {
    CliError::new(Exit::Write, format!("cannot write {}: {error}", path.display()))
}

impl Sink {
    /// Opens the destination. Keeps the content of a partial file.
    pub(super) fn open(destination: &Destination, hashing: Hashing) -> Result<Self, CliError> {
        let out = match destination {
            Destination::Nowhere => Output::Nowhere,
            Destination::Stdout => Output::Stdout(io::stdout()),
            Destination::Device(path) => {
                let file = OpenOptions::new().write(true).open(path);
                Output::Device(file.map_err(|error| write_error(path, &error))?, path.clone())
            }
            Destination::File { path, if_exists } => Self::open_part(path, *if_exists)?,
        };
        let hash = (hashing == Hashing::On).then(Sha256::new);
        Ok(Self { out, hash, destination_bytes: 0 })
    }

    fn open_part(path: &Path, if_exists: IfExists) -> Result<Output, CliError> {
        if path.is_dir() {
            return Err(CliError::new(
                Exit::Write,
                format!("{} is a directory; use --output-dir, or name a file", path.display()),
            ));
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|error| write_error(dir, &error))?;
        }
        let part = super::part_path(path);
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let file = open_part_file(&part).map_err(|error| write_error(&part, &error))?;
            let lock_state = lock(&file, &part).map_err(|error| write_error(&part, &error))?;
            match lock_state {
                LockState::Locked => {
                    return Ok(Output::Part { file, part, path: path.to_owned(), if_exists });
                }
                LockState::Busy => break,
                LockState::Replaced => {}
            }
        }
        let why = "another smig get is writing to it; wait until it ends, or use -o";
        Err(CliError::new(Exit::Write, format!("{}: {why}", part.display())))
    }

    /// Returns the partial content of this URL, if it can be resumed.
    pub(super) fn resumable_part(&self, url: &str) -> Option<PartialFile> {
        let Output::Part { file, part, .. } = &self.out else { return None };
        let length = file.metadata().ok()?.len();
        let metadata = PartMetadata::load(&PartMetadata::path_for(part), url)?;
        let fits = metadata.total.is_none_or(|total| length <= total);
        (length > 0 && fits).then_some(PartialFile { length, metadata })
    }

    /// Prepares for writing at `offset`. `metadata` describes the content that follows.
    pub(super) fn begin(
        &mut self,
        offset: u64,
        metadata: Option<&PartMetadata>,
    ) -> Result<(), CliError> {
        self.destination_bytes = offset;
        let is_hashed = self.hash.is_some();
        self.hash = is_hashed.then(Sha256::new);
        let Output::Part { file, part, .. } = &mut self.out else {
            return Ok(());
        };
        let mut prepare = || {
            if offset == 0 {
                file.set_len(0)?;
            }
            match metadata {
                Some(metadata) => metadata.store(&PartMetadata::path_for(part))?,
                None => remove_metadata(part)?,
            }
            file.seek(SeekFrom::Start(0))?;
            if let Some(hash) = &mut self.hash {
                hash_content(file, offset, hash)?;
            }
            file.seek(SeekFrom::Start(offset)).map(drop)
        };
        prepare().map_err(|error| write_error(part, &error))
    }

    /// Returns the length of the destination in bytes.
    pub(super) const fn destination_bytes(&self) -> u64 {
        self.destination_bytes
    }

    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), CliError> {
        let result = match &mut self.out {
            Output::Nowhere => Ok(()),
            Output::Stdout(out) => out.write_all(data),
            Output::Device(file, _) | Output::Part { file, .. } => file.write_all(data),
        };
        result.map_err(|error| match &self.out {
            Output::Nowhere => CliError::new(Exit::Write, error.to_string()),
            Output::Stdout(_) => write_error(Path::new("standard output"), &error),
            Output::Device(_, path) | Output::Part { part: path, .. } => write_error(path, &error),
        })?;
        if let Some(hash) = &mut self.hash {
            hash.update(data);
        }
        self.destination_bytes += data.len() as u64;
        Ok(())
    }

    /// Completes the body: verifies its checksum and gives the file its final name.
    ///
    /// # Errors
    /// A wrong checksum leaves NAME.part without its metadata, so that it is never resumed.
    pub(super) fn finish(
        mut self,
        expected_digest: Option<[u8; 32]>,
    ) -> Result<Option<[u8; 32]>, CliError> {
        let digest: Option<[u8; 32]> = self.hash.take().map(|hash| hash.finalize().into());
        if let (Some(expected), Some(digest)) = (expected_digest, digest)
            && expected != digest
        {
            let mut message =
                format!("wrong checksum: got {}, expected {}", to_hex(&digest), to_hex(&expected));
            if let Output::Part { part, .. } = &self.out {
                remove_metadata(part).map_err(|error| write_error(part, &error))?;
                message.push_str(&format!("; the content is in {}", part.display()));
            }
            return Err(CliError::new(Exit::Checksum, message));
        }
        match &mut self.out {
            Output::Nowhere | Output::Device(..) => {}
            Output::Stdout(out) => {
                out.flush().map_err(|error| write_error(Path::new("standard output"), &error))?;
            }
            Output::Part { part, path, if_exists, .. } => {
                rename_part(part, path, *if_exists).map_err(|error| {
                    let why = format!("{error}; the content is in {}", part.display());
                    CliError::new(Exit::Write, format!("cannot create {}: {why}", path.display()))
                })?;
                remove_metadata(part).map_err(|error| write_error(part, &error))?;
            }
        }
        Ok(digest)
    }

    /// Removes an empty partial file.
    pub(super) fn discard_if_empty(&self) {
        if let Output::Part { file, part, .. } = &self.out
            && file.metadata().is_ok_and(|metadata| metadata.len() == 0)
        {
            // On failure an empty file remains, which does no harm.
            let _ = std::fs::remove_file(part);
            let _ = remove_metadata(part);
        }
    }

    /// Returns the path of the partial file.
    pub(super) fn part(&self) -> Option<&Path> {
        match &self.out {
            Output::Part { part, .. } => Some(part),
            Output::Nowhere | Output::Stdout(_) | Output::Device(..) => None,
        }
    }
}

fn open_part_file(part: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(part)
}

/// State of a partial file after an attempt to lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockState {
    /// No other process writes to it.
    Locked,
    /// Another process writes to it.
    Busy,
    /// Another process has renamed or removed it since it was opened.
    Replaced,
}

/// Locks a partial file, and checks that its path still names it: the process that held the lock may have completed
/// the file, whose content must not be overwritten.
fn lock(file: &File, part: &Path) -> io::Result<LockState> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(LockState::Busy),
        // An error means that the file system does not support locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    let opened = file.metadata()?;
    match part.metadata() {
        Ok(named) if (named.dev(), named.ino()) == (opened.dev(), opened.ino()) => {
            Ok(LockState::Locked)
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(LockState::Replaced),
    }
}

/// Removes the metadata of a partial file.
fn remove_metadata(part: &Path) -> io::Result<()> {
    match std::fs::remove_file(PartMetadata::path_for(part)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hash_content(file: &mut File, length: u64, hash: &mut Sha256) -> io::Result<()> {
    let mut content = file.take(length);
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    loop {
        match content.read(&mut chunk)? {
            0 => return Ok(()),
            read => hash.update(chunk.get(..read).unwrap_or_default()),
        }
    }
}

/// Renames the partial file atomically.
fn rename_part(part: &Path, path: &Path, if_exists: IfExists) -> io::Result<()> {
    if if_exists == IfExists::Replace {
        return std::fs::rename(part, path);
    }
    match renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // The file system does not support RENAME_NOREPLACE: check, then rename.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if path.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(part, path)
        }
        Err(error) => Err(error.into()),
    }
}

/// Formats a checksum in hexadecimal.
pub(super) fn to_hex(sum: &[u8; 32]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in sum {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> PartMetadata {
        PartMetadata { url: "u".to_owned(), validator: "\"v\"".to_owned(), total: Some(10) }
    }

    fn open(path: &Path, if_exists: IfExists) -> Sink {
        Sink::open(&Destination::File { path: path.to_owned(), if_exists }, Hashing::On).unwrap()
    }

    #[test]
    fn a_resumed_body_has_the_checksum_of_all_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/file.tar.gz");
        let mut sink = open(&path, IfExists::Fail);
        assert!(sink.resumable_part("u").is_none());
        sink.begin(0, Some(&metadata())).unwrap();
        sink.write(b"hello").unwrap();
        drop(sink);
        assert!(dir.path().join("new/file.tar.gz.part").exists());

        let mut sink = open(&path, IfExists::Fail);
        assert!(sink.resumable_part("another URL").is_none());
        let partial = sink.resumable_part("u").unwrap();
        assert_eq!((partial.length, partial.metadata), (5, metadata()));
        sink.begin(5, Some(&metadata())).unwrap();
        sink.write(b"world").unwrap();
        let sum = sink.finish(None).unwrap().unwrap();
        assert_eq!(sum, <[u8; 32]>::from(Sha256::digest(b"helloworld")));
        assert_eq!(std::fs::read(&path).unwrap(), b"helloworld");
        assert_eq!(std::fs::read_dir(dir.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_wrong_checksum_or_an_existing_file_keeps_the_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut sink = open(&path, IfExists::Fail);
        sink.begin(0, Some(&metadata())).unwrap();
        sink.write(b"x").unwrap();
        assert_eq!(sink.finish(Some([0; 32])).unwrap_err().exit, Exit::Checksum);
        assert!(!path.exists());
        assert!(open(&path, IfExists::Fail).resumable_part("u").is_none());

        std::fs::write(&path, b"precious").unwrap();
        let mut sink = open(&path, IfExists::Fail);
        sink.begin(0, None).unwrap();
        sink.write(b"y").unwrap();
        assert_eq!(sink.finish(None).unwrap_err().exit, Exit::Write);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert_eq!(std::fs::read(dir.path().join("f.part")).unwrap(), b"y");
    }

    #[test]
    fn a_file_that_was_completed_between_open_and_lock_is_not_a_part() {
        let dir = tempfile::tempdir().unwrap();
        let (path, part) = (dir.path().join("f"), dir.path().join("f.part"));
        let mut first = open(&path, IfExists::Replace);
        let opened_early = open_part_file(&part).unwrap();
        assert_eq!(lock(&opened_early, &part).unwrap(), LockState::Busy);
        first.begin(0, None).unwrap();
        first.write(b"complete").unwrap();
        first.finish(None).unwrap();
        assert_eq!(lock(&opened_early, &part).unwrap(), LockState::Replaced);
        drop(opened_early);
        let mut second = open(&path, IfExists::Replace);
        second.begin(0, None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"complete");
    }

    #[test]
    fn concurrent_writers_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let destination =
            Destination::File { path: dir.path().join("f"), if_exists: IfExists::Replace };
        let first = Sink::open(&destination, Hashing::Off).unwrap();
        let error = Sink::open(&destination, Hashing::Off).unwrap_err();
        assert!(error.to_string().contains("another smig get"), "{error}");
        first.discard_if_empty();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
