//! Replay of a recorded page for a browser: what the servers answered, from a HAR file and its bodies.
//!
//! Knows neither scenarios nor servers. A [`ReplaySource`] is a recording that was read, with its faults; it writes a directory, once. A
//! [`Replay`] reads that, finds the recorded response to a request and says how it is answered. A recording is data of others: only header
//! fields of a list are answered, bodies are read only from below the recording's directory, and all sizes are limited.

mod encode;
mod entry;
mod host;
mod matching;
mod prepare;
mod respond;
mod source;
#[cfg(test)]
mod tests;

pub use entry::{RecordedResponse, ReplayIndex};
pub use host::is_replayable_host;
pub use matching::{Answers, RequestKey};
pub use respond::{Replay, ReplayRequest, ReplayResponse};
pub use source::ReplaySource;
