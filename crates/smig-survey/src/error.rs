//! Errors of a survey, with the location in its input.

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
    /// Damaged input.
    #[error(transparent)]
    Damaged(#[from] DamagedInput),
    /// A results file that this crawl cannot use.
    #[error("{}: {reason}", path.display())]
    UnusableResults {
        /// The file.
        path: PathBuf,
        /// The problem, and what to do about it.
        reason: String,
    },
    /// A start address or a contact that is not valid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The client could not be built.
    #[error("{0}")]
    Client(String),
}

/// A damaged part of the input.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}: {location}: {reason}")]
pub struct DamagedInput {
    /// The file, as the user named it.
    pub name: String,
    /// The line or the entry in the file.
    pub location: String,
    /// The problem, and what is expected.
    pub reason: String,
}

/// What to do on damaged input.
#[expect(missing_debug_implementations, reason = "a closure has no Debug")]
pub enum OnDamaged<'a> {
    /// Stop counting.
    Stop,
    /// Exclude the part, count it as excluded, and pass it to the callback.
    Skip(&'a mut dyn FnMut(&DamagedInput)),
}

impl OnDamaged<'_> {
    /// Passes damaged input to the callback, or returns it as an error.
    pub(super) fn report(&mut self, damaged: DamagedInput) -> Result<(), SurveyError> {
        match self {
            Self::Stop => Err(damaged.into()),
            Self::Skip(callback) => {
                callback(&damaged);
                Ok(())
            }
        }
    }
}
