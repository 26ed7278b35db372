//! Destinations of results. Opened before the demonstration starts, so a missing directory is
//! reported at once instead of after two minutes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::exit::{CliError, Exit};

/// Destination of a result.
#[derive(Debug)]
pub(super) enum OutputTarget {
    Stdout,
    File(OutputFile),
}

/// An output file. If it was created by this program and nothing is written, it is removed on drop.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    remove_on_drop: bool,
}

/// Returns whether a path stands for standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

impl OutputTarget {
    /// Opens a file for writing, and creates it if it does not exist.
    pub(super) fn file(path: &Path) -> Result<Self, CliError> {
        if is_stdout(path) {
            let text = "--output and --svg take a file name; only --json can go to standard output";
            return Err(CliError::new(Exit::Usage, text));
        }
        let is_created = !path.exists();
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| write_error(path, &error))?;
        Ok(Self::File(OutputFile { path: path.to_owned(), remove_on_drop: is_created }))
    }

    /// Like [`Self::file`], but `-` means standard output.
    pub(super) fn file_or_stdout(path: &Path) -> Result<Self, CliError> {
        if is_stdout(path) { Ok(Self::Stdout) } else { Self::file(path) }
    }

    /// Writes the complete result.
    pub(super) fn write(self, text: &str) -> Result<(), CliError> {
        match self {
            Self::Stdout => io::stdout()
                .write_all(text.as_bytes())
                .map_err(|error| write_error(Path::new("standard output"), &error)),
            Self::File(mut file) => {
                fs::write(&file.path, text).map_err(|error| write_error(&file.path, &error))?;
                file.remove_on_drop = false;
                Ok(())
            }
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.remove_on_drop {
            // On failure an empty file remains, which does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn write_error(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "; create its directory first",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::PermissionDenied => "; choose another file with --output, --json or --svg",
        _ => "",
    };
    CliError::new(Exit::Write, format!("cannot write {}: {error}{hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_file_is_removed_unless_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        drop(OutputTarget::file(&path).unwrap());
        assert!(!path.exists());
        OutputTarget::file(&path).unwrap().write("one").unwrap();
        drop(OutputTarget::file(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one", "it existed before");
    }

    #[test]
    fn unwritable_targets_are_reported_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let error = OutputTarget::file(&dir.path().join("no/page.html")).unwrap_err().to_string();
        assert!(error.contains("no/page.html") && error.contains("directory first"), "{error}");
        assert!(OutputTarget::file(dir.path()).unwrap_err().to_string().contains("name a file"));
        assert!(OutputTarget::file(Path::new("-")).is_err());
        assert!(matches!(OutputTarget::file_or_stdout(Path::new("-")), Ok(OutputTarget::Stdout)));
    }
}
