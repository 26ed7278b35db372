//! Writes a body to its destination, and keeps the part of an incomplete one.
//!
//! A file is written as NAME.part with metadata beside it, and renamed when it is complete. Never
//! truncates or replaces a file that was not named on the command line.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use super::note::PartMetadata;
use super::plan::{Destination, Existing};
use crate::exit::{Exit, Failure};

/// Size of reads that hash an existing partial file, in bytes.
const CHUNK: usize = 256 << 10;

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
    pub(super) note: PartMetadata,
}

/// An open destination.
#[derive(Debug)]
pub(super) struct Sink {
    out: Out,
    hash: Option<Sha256>,
    written: u64,
}

#[derive(Debug)]
enum Out {
    Nowhere,
    Stdout(io::Stdout),
    Device(File, PathBuf),
    Part { file: File, part: PathBuf, path: PathBuf, existing: Existing },
}

fn fail(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Write, format!("cannot write {}: {error}", path.display()))
}

impl Sink {
    /// Opens the destination. Keeps the content of a partial file.
    pub(super) fn open(target: &Destination, hashing: Hashing) -> Result<Self, Failure> {
        let out = match target {
            Destination::Nowhere => Out::Nowhere,
            Destination::Stdout => Out::Stdout(io::stdout()),
            Destination::Device(path) => {
                let file = OpenOptions::new().write(true).open(path);
                Out::Device(file.map_err(|error| fail(path, &error))?, path.clone())
            }
            Destination::File { path, existing } => Self::open_part(path, *existing)?,
        };
        let hash = (hashing == Hashing::On).then(Sha256::new);
        Ok(Self { out, hash, written: 0 })
    }

    fn open_part(path: &Path, existing: Existing) -> Result<Out, Failure> {
        if path.is_dir() {
            return Err(Failure::new(
                Exit::Write,
                format!("{} is a directory; use --output-dir, or name a file", path.display()),
            ));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| fail(folder, &error))?;
        }
        let part = super::part_of(path);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        let file = file.map_err(|error| fail(&part, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "another smig get is writing to it; wait until it ends, or use -o";
                return Err(Failure::new(Exit::Write, format!("{}: {why}", part.display())));
            }
            // The file system does not support locks.
            Err(TryLockError::Error(_)) => {}
        }
        Ok(Out::Part { file, part, path: path.to_owned(), existing })
    }

    /// Returns the partial content of this URL, if it can be resumed.
    pub(super) fn left(&self, url: &str) -> Option<PartialFile> {
        let Out::Part { file, part, .. } = &self.out else { return None };
        let length = file.metadata().ok()?.len();
        let note = PartMetadata::load(&PartMetadata::place(part), url)?;
        let fits = note.total.is_none_or(|total| length <= total);
        (length > 0 && fits).then_some(PartialFile { length, note })
    }

    /// Prepares for writing at offset `at`. `note` describes the content that follows.
    pub(super) fn begin(&mut self, at: u64, note: Option<&PartMetadata>) -> Result<(), Failure> {
        self.written = at;
        let is_hashed = self.hash.is_some();
        self.hash = is_hashed.then(Sha256::new);
        let Out::Part { file, part, .. } = &mut self.out else {
            return Ok(());
        };
        let mut prepare = || {
            if at == 0 {
                file.set_len(0)?;
            }
            match note {
                Some(note) => note.store(&PartMetadata::place(part))?,
                None => forget(part)?,
            }
            file.seek(SeekFrom::Start(0))?;
            if let Some(hash) = &mut self.hash {
                read_into(file, at, hash)?;
            }
            file.seek(SeekFrom::Start(at)).map(drop)
        };
        prepare().map_err(|error| fail(part, &error))
    }

    /// Returns the length of the destination in bytes.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        let result = match &mut self.out {
            Out::Nowhere => Ok(()),
            Out::Stdout(out) => out.write_all(data),
            Out::Device(file, _) | Out::Part { file, .. } => file.write_all(data),
        };
        result.map_err(|error| match &self.out {
            Out::Nowhere => Failure::new(Exit::Write, error.to_string()),
            Out::Stdout(_) => fail(Path::new("standard output"), &error),
            Out::Device(_, path) | Out::Part { part: path, .. } => fail(path, &error),
        })?;
        if let Some(hash) = &mut self.hash {
            hash.update(data);
        }
        self.written += data.len() as u64;
        Ok(())
    }

    /// Completes the body: verifies its checksum and gives the file its final name.
    ///
    /// # Errors
    /// A wrong checksum leaves NAME.part without its metadata, so that it is never resumed.
    pub(super) fn finish(mut self, wanted: Option<[u8; 32]>) -> Result<Option<[u8; 32]>, Failure> {
        let sum: Option<[u8; 32]> = self.hash.take().map(|hash| hash.finalize().into());
        if let (Some(wanted), Some(sum)) = (wanted, sum)
            && wanted != sum
        {
            let mut message =
                format!("wrong checksum: got {}, expected {}", show(&sum), show(&wanted));
            if let Out::Part { part, .. } = &self.out {
                forget(part).map_err(|error| fail(part, &error))?;
                message.push_str(&format!("; the content is in {}", part.display()));
            }
            return Err(Failure::new(Exit::Checksum, message));
        }
        match &mut self.out {
            Out::Nowhere | Out::Device(..) => {}
            Out::Stdout(out) => {
                out.flush().map_err(|error| fail(Path::new("standard output"), &error))?;
            }
            Out::Part { part, path, existing, .. } => {
                name(part, path, *existing).map_err(|error| {
                    let why = format!("{error}; the content is in {}", part.display());
                    Failure::new(Exit::Write, format!("cannot create {}: {why}", path.display()))
                })?;
                forget(part).map_err(|error| fail(part, &error))?;
            }
        }
        Ok(sum)
    }

    /// Removes an empty partial file.
    pub(super) fn discard_if_empty(&self) {
        if let Out::Part { file, part, .. } = &self.out
            && file.metadata().is_ok_and(|found| found.len() == 0)
        {
            // On failure an empty file remains, which does no harm.
            let _ = std::fs::remove_file(part);
            let _ = forget(part);
        }
    }

    /// Returns the path of the partial file.
    pub(super) fn part(&self) -> Option<&Path> {
        match &self.out {
            Out::Part { part, .. } => Some(part),
            Out::Nowhere | Out::Stdout(_) | Out::Device(..) => None,
        }
    }
}

/// Removes the metadata of a partial file.
fn forget(part: &Path) -> io::Result<()> {
    match std::fs::remove_file(PartMetadata::place(part)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read_into(file: &mut File, length: u64, hash: &mut Sha256) -> io::Result<()> {
    let mut left = file.take(length);
    let mut chunk = vec![0; CHUNK];
    loop {
        match left.read(&mut chunk)? {
            0 => return Ok(()),
            read => hash.update(chunk.get(..read).unwrap_or_default()),
        }
    }
}

/// Renames the partial file atomically.
fn name(part: &Path, path: &Path, existing: Existing) -> io::Result<()> {
    if existing == Existing::Replace {
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
pub(super) fn show(sum: &[u8; 32]) -> String {
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

    fn note() -> PartMetadata {
        PartMetadata { url: "u".to_owned(), validator: "\"v\"".to_owned(), total: Some(10) }
    }

    fn open(path: &Path, existing: Existing) -> Sink {
        Sink::open(&Destination::File { path: path.to_owned(), existing }, Hashing::On).unwrap()
    }

    #[test]
    fn a_body_in_two_tries_has_the_whole_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file.tar.gz");
        let mut sink = open(&path, Existing::Keep);
        assert!(sink.left("u").is_none());
        sink.begin(0, Some(&note())).unwrap();
        sink.write(b"hello").unwrap();
        drop(sink);
        assert!(folder.path().join("new/file.tar.gz.part").exists());

        let mut sink = open(&path, Existing::Keep);
        assert!(sink.left("another URL").is_none());
        let left = sink.left("u").unwrap();
        assert_eq!((left.length, left.note), (5, note()));
        sink.begin(5, Some(&note())).unwrap();
        sink.write(b"world").unwrap();
        let sum = sink.finish(None).unwrap().unwrap();
        assert_eq!(sum, <[u8; 32]>::from(Sha256::digest(b"helloworld")));
        assert_eq!(std::fs::read(&path).unwrap(), b"helloworld");
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_wrong_checksum_and_a_file_in_the_way_leave_the_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut sink = open(&path, Existing::Keep);
        sink.begin(0, Some(&note())).unwrap();
        sink.write(b"x").unwrap();
        assert_eq!(sink.finish(Some([0; 32])).unwrap_err().exit, Exit::Checksum);
        assert!(!path.exists());
        assert!(open(&path, Existing::Keep).left("u").is_none());

        std::fs::write(&path, b"precious").unwrap();
        let mut sink = open(&path, Existing::Keep);
        sink.begin(0, None).unwrap();
        sink.write(b"y").unwrap();
        assert_eq!(sink.finish(None).unwrap_err().exit, Exit::Write);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        assert_eq!(std::fs::read(folder.path().join("f.part")).unwrap(), b"y");
    }

    #[test]
    fn two_at_once_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let target =
            Destination::File { path: folder.path().join("f"), existing: Existing::Replace };
        let first = Sink::open(&target, Hashing::Off).unwrap();
        let error = Sink::open(&target, Hashing::Off).unwrap_err();
        assert!(error.to_string().contains("another smig get"), "{error}");
        first.discard_if_empty();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
