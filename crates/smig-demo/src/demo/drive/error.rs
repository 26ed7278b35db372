//! Errors of the demonstration.

use std::io;

use smig_lab::trial::TrialError;
use smig_testbed::netns::TestbedError;

/// Why the demonstration stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The emulated link could not be set up; the message includes a remedy.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The scenario cannot be run with these options.
    #[error("the demonstration's scenario is invalid: {0}")]
    Scenario(String),
    /// A run failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A transfer failed.
    #[error("the {name} object over the emulated link failed: {why}")]
    Transfer {
        /// Name of the transfer in the scenario.
        name: String,
        /// Cause of the failure.
        why: String,
    },
    /// Writing the files to serve, or displaying events, failed.
    #[error("the demonstration cannot continue: {0}")]
    Io(#[from] io::Error),
    /// An object arrived with other bytes than were sent. This is a bug: please report it.
    #[error("the {0} object arrived corrupted; this is a bug, please report it")]
    Corrupted(String),
    /// The operator stopped it.
    #[error("stopped")]
    Stopped,
    /// A thread panicked. This is a bug: please report it.
    #[error("the {0}'s thread panicked; this is a bug, please report it")]
    Panicked(&'static str),
}
