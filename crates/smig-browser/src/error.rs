//! Errors of a browser.

use std::io;

use smig_testbed::netns::TestbedError;

/// Why a browser could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// Its process could not be started.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// It returned an error, or nothing.
    #[error("browser: {0}")]
    Browser(String),
    /// A page did not load completely.
    #[error("the page did not load completely: {0}")]
    Incomplete(String),
    /// A page has not loaded in time.
    #[error("the page did not load in time: {0}")]
    TimedOut(String),
    /// Its home directory cannot be written, or it has no pipes.
    #[error("the browser cannot be started: {0}")]
    Io(#[from] io::Error),
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

impl BrowserError {
    /// The browser answered something else than the protocol says.
    pub fn unexpected_response(what: impl std::fmt::Display) -> Self {
        Self::Browser(format!("unexpected response: {what}"))
    }
}
