//! What can stop it.

use std::io;

use crate::netns::LabError;

/// Why the measurement stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// The emulated link could not be set up; the text says what to do.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// There is no browser.
    #[error(
        "no Chromium was found in PATH. Install it: apt-get install --no-install-recommends \
         chromium; or name the program with --chromium"
    )]
    NoBrowser,
    /// The browser said no, or nothing.
    #[error("the browser: {0}")]
    Browser(String),
    /// A page did not come whole.
    #[error("the page did not load whole: {0}")]
    NotWhole(String),
    /// A program of ours did not come up, or ended.
    #[error("{name} {what}; it said:\n{words}")]
    Program {
        /// `smig gateway` and so on.
        name: &'static str,
        /// What it did.
        what: String,
        /// Its last lines.
        words: String,
    },
    /// The download beside the page.
    #[error("the download failed: {0}")]
    Download(String),
    /// Files, threads, showing what happens.
    #[error("it cannot go on: {0}")]
    Io(#[from] io::Error),
    /// Keys and certificates.
    #[error("no certificate could be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
    /// A thread panicked. This is a bug: please report it.
    #[error("the {0}'s thread panicked; this is a bug, please report it")]
    Panicked(&'static str),
}
