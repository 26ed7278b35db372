//! What can be wrong with a survey's input, said with its place.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a survey stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// A file that could not be read.
    #[error("cannot read {name}: {cause}")]
    Read {
        /// The file, as the user named it.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A results file that could not be written.
    #[error("cannot write {}: {cause}; does its folder exist?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Input that is not what it should be.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// A results file that belongs to something else.
    #[error("{}: {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        why: String,
    },
    /// Addresses that cannot be crawled.
    #[error("{0}")]
    Start(String),
    /// The client could not be made.
    #[error("{0}")]
    Client(String),
}

/// A damaged piece of input.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name}: {place}: {why}")]
pub struct Damage {
    /// The file, as the user named it.
    pub name: String,
    /// The line or the entry in it.
    pub place: String,
    /// What is wrong and what is expected.
    pub why: String,
}

/// What happens at damaged input.
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub enum OnDamage<'a> {
    /// Nothing is counted any more.
    Stop,
    /// The piece is left out, counted as such, and told.
    Skip(&'a mut dyn FnMut(&Damage)),
}

impl OnDamage<'_> {
    /// Tells of the damage, or passes it on.
    pub(super) fn take(&mut self, damage: Damage) -> Result<(), SurveyError> {
        match self {
            Self::Stop => Err(damage.into()),
            Self::Skip(tell) => {
                tell(&damage);
                Ok(())
            }
        }
    }
}
