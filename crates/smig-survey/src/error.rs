//! Errors in a survey's input, with their place.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a survey stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// A file cannot be read.
    #[error("cannot read {name}: {cause}")]
    Read {
        /// The file, as the user named it.
        name: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A results file cannot be written.
    #[error("cannot write {}: {cause}; does its directory exist?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Malformed input.
    #[error(transparent)]
    Damage(#[from] MalformedInput),
    /// A results file that does not fit this crawl.
    #[error("{}: {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// The problem, and what to do about it.
        why: String,
    },
    /// Addresses that cannot be crawled.
    #[error("{0}")]
    Start(String),
    /// The client could not be built.
    #[error("{0}")]
    Client(String),
}

/// A malformed part of the input.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}: {place}: {why}")]
pub struct MalformedInput {
    /// The file, as the user named it.
    pub name: String,
    /// The line or the entry in the file.
    pub place: String,
    /// The problem, and what is expected.
    pub why: String,
}

/// What to do on damaged input.
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub enum OnMalformed<'a> {
    /// Stop counting.
    Stop,
    /// Leave the piece out, count it as such, and report it.
    Skip(&'a mut dyn FnMut(&MalformedInput)),
}

impl OnMalformed<'_> {
    /// Reports the damage, or returns it as an error.
    pub(super) fn take(&mut self, damage: MalformedInput) -> Result<(), SurveyError> {
        match self {
            Self::Stop => Err(damage.into()),
            Self::Skip(tell) => {
                tell(&damage);
                Ok(())
            }
        }
    }
}
