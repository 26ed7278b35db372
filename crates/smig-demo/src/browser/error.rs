//! Errors of the measurement.

use std::io;
use std::path::PathBuf;

use smig_lab::trial::TrialError;
use smig_testbed::netns::TestbedError;

/// Why the measurement stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// The emulated link could not be set up; the message includes a remedy.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// There is no browser.
    #[error(
        "no Chromium was found in PATH. Install it: apt-get install --no-install-recommends \
         chromium; or name the program with --chromium"
    )]
    NoBrowser,
    /// nginx is to be measured, and there is none.
    #[error(
        "no nginx was found. Install it: apt-get install --no-install-recommends nginx-light; or leave \
         it out of --variants"
    )]
    NoNginx,
    /// The program named as `smig` is another one, or none.
    #[error("{} is not a smig program", .0.display())]
    NotSmig(PathBuf),
    /// The browser failed, or a page did not load completely.
    #[error(transparent)]
    Browser(smig_browser::BrowserError),
    /// The scenario cannot be run with these options.
    #[error("the measurement's scenario is invalid: {0}")]
    Scenario(String),
    /// A run failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// Page and download did not share one connection, or not all requests arrived.
    #[error("the browser's connections: {0}")]
    Connections(String),
    /// The download beside the page failed.
    #[error("the download failed: {0}")]
    Download(String),
    /// Reading or writing files, starting threads, or displaying events failed.
    #[error("the measurement cannot continue: {0}")]
    Io(#[from] io::Error),
    /// The operator stopped it.
    #[error("stopped")]
    Stopped,
    /// A thread panicked. This is a bug: please report it.
    #[error("the {0}'s thread panicked; this is a bug, please report it")]
    Panicked(&'static str),
}

impl From<smig_browser::BrowserError> for BrowserError {
    fn from(error: smig_browser::BrowserError) -> Self {
        match error {
            smig_browser::BrowserError::Stopped => Self::Stopped,
            other => Self::Browser(other),
        }
    }
}

impl BrowserError {
    pub(super) fn unexpected_response(what: impl std::fmt::Display) -> Self {
        Self::Browser(smig_browser::BrowserError::unexpected_response(what))
    }

    pub(super) const fn incomplete(what: String) -> Self {
        Self::Browser(smig_browser::BrowserError::Incomplete(what))
    }
}
