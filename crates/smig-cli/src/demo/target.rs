//! Destinations of results. Opened before the demonstration starts, so a missing directory is
//! reported at once instead of after two minutes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// Destination of a result.
#[derive(Debug)]
pub(super) enum Target {
    Stdout,
    File(TargetFile),
}

/// An output file. If it was created by this program and nothing is written, it is removed on drop.
#[derive(Debug)]
pub(super) struct TargetFile {
    path: PathBuf,
    made: bool,
}

/// Returns whether a path stands for standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

impl Target {
    /// Opens a file for writing, and creates it if it does not exist.
    pub(super) fn file(path: &Path) -> Result<Self, Failure> {
        if is_stdout(path) {
            let text = "--output and --svg take a file name; only --json can go to standard output";
            return Err(Failure::new(Exit::Usage, text));
        }
        let made = !path.exists();
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| failure(path, &error))?;
        Ok(Self::File(TargetFile { path: path.to_owned(), made }))
    }

    /// Like [`Self::file`], but `-` means standard output.
    pub(super) fn file_or_stdout(path: &Path) -> Result<Self, Failure> {
        if is_stdout(path) { Ok(Self::Stdout) } else { Self::file(path) }
    }

    /// Writes the complete result.
    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Stdout => io::stdout()
                .write_all(text.as_bytes())
                .map_err(|error| failure(Path::new("standard output"), &error)),
            Self::File(mut file) => {
                fs::write(&file.path, text).map_err(|error| failure(&file.path, &error))?;
                file.made = false;
                Ok(())
            }
        }
    }
}

impl Drop for TargetFile {
    fn drop(&mut self) {
        if self.made {
            // On failure an empty file remains, which does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; create its directory first",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::PermissionDenied => "; choose another file with --output or --json",
        _ => "",
    };
    Failure::new(Exit::Write, format!("cannot write {}: {error}{hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_made_goes_unless_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        drop(Target::file(&path).unwrap());
        assert!(!path.exists());
        Target::file(&path).unwrap().write("one").unwrap();
        drop(Target::file(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one", "it was there before");
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = tempfile::tempdir().unwrap();
        let error = Target::file(&folder.path().join("no/page.html")).unwrap_err().to_string();
        assert!(error.contains("no/page.html") && error.contains("directory first"), "{error}");
        assert!(Target::file(folder.path()).unwrap_err().to_string().contains("name a file"));
        assert!(Target::file(Path::new("-")).is_err());
        assert!(matches!(Target::file_or_stdout(Path::new("-")), Ok(Target::Stdout)));
    }
}
