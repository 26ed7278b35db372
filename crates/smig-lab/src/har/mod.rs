//! Recordings of pages: HAR 1.2 files as the developer tools of Chromium and Firefox, sitespeed.io and WebPageTest write them.
//!
//! Pure: knows neither scenarios nor players. A recording is read ([`read`]) into what a page asked for and who asked for it
//! ([`RecordedPage`]); what a tool left out is found in another field, or by the order in time. A file is data of others: its size, its
//! entries and its sums are limited, and every fault is one line with the file, the key and what to do.

mod entry;
mod error;
mod graph;
mod initiator;
mod instant;
mod kind;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::HarError;
pub(crate) use graph::host_of;
pub use graph::{Found, LeftOut, RecordedPage, RecordedRequest};
pub use instant::Instant;
pub use kind::ContentKind;
pub use read::{MAX_FILE_BYTES, read, read_file};
pub(crate) use read::{limited_entries, read_bytes};
pub use write::{BodyFile, to_har};
