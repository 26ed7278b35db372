//! Errors of link specs and traces.

use std::io;
use std::path::PathBuf;

/// Why a text is not a valid trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not a number.
    #[error("line {line}: {text:?} is not a number of milliseconds")]
    Number {
        /// Counted from 1.
        line: usize,
        /// Its content.
        text: String,
    },
    /// Times decrease.
    #[error("line {line}: {millis} follows {previous}; lines must not decrease")]
    Order {
        /// Counted from 1.
        line: usize,
        /// Its content.
        millis: u32,
        /// The content of the previous line.
        previous: u32,
    },
    /// The trace has no length: repeating it would give an infinite rate.
    #[error("the last line must be later than 0 ms: it is the length of the trace")]
    ZeroLength,
}

/// Why a link cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A value is invalid; the text names the key.
    #[error("{0}")]
    Value(String),
    /// A trace file cannot be read.
    #[error("cannot read the trace {}: {cause}", file.display())]
    TraceFile {
        /// Its path.
        file: PathBuf,
        /// The I/O error.
        cause: io::Error,
    },
    /// A trace file is not valid.
    #[error("the trace {} is not in Mahimahi's format: {cause}", file.display())]
    Trace {
        /// Its path.
        file: PathBuf,
        /// The parse error.
        cause: TraceError,
    },
}

impl SpecError {
    pub(super) fn in_direction(self, direction: &str) -> Self {
        match self {
            Self::Value(text) => Self::Value(format!("{direction}.{text}")),
            other => other,
        }
    }
}
