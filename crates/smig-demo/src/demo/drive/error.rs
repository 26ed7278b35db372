//! Errors of the demonstration.

use std::io;

use smig_testbed::netns::LabError;

/// Why the demonstration stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The emulated link could not be set up; the message includes a remedy.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The server or the client failed.
    #[error("HTTP over the emulated link failed: {0}")]
    Http(#[from] smig::Error),
    /// Writing the files to serve, or displaying events, failed.
    #[error("the demonstration cannot continue: {0}")]
    Io(#[from] io::Error),
    /// The certificate of the demonstration's server could not be made.
    #[error("cannot generate a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The big file arrived with other bytes than were sent. This is a bug: please report it.
    #[error("the big file arrived corrupted; this is a bug, please report it")]
    Damaged,
    /// The operator stopped it.
    #[error("stopped")]
    Stopped,
    /// A thread panicked. This is a bug: please report it.
    #[error("the {0}'s thread panicked; this is a bug, please report it")]
    Panicked(&'static str),
}
