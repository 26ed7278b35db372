//! Replay of a recorded page for a browser: what the servers answered, from a HAR file and its bodies.
//!
//! Knows neither scenarios nor servers. [`prepare`] writes a directory from a recording, once; [`Replay`] reads it, finds the recorded
//! response to a request and says how it is answered. A recording is data of others: only header fields of a list are answered, bodies are
//! read only from below the recording's directory, and all sizes are limited.

mod encode;
mod entry;
mod matching;
mod prepare;
mod respond;
#[cfg(test)]
mod tests;

pub use entry::{RecordedResponse, ReplayIndex};
pub use matching::find;
pub use prepare::{body_files, prepare};
pub use respond::{Replay, ReplayRequest, ReplayResponse};
