//! A tower service that serves a folder of files.
//!
//! [`Files`] answers GET, HEAD and OPTIONS with the regular files below one folder: ranges,
//! conditional requests, precompressed siblings, index files, redirects to folders, and, if asked
//! for, plain folder listings (RFC 9110). It sets every header of the response but `date`, which
//! is the server's.
//!
//! ```no_run
//! use smig_files::{Files, Options};
//!
//! let files = Files::new("public", Options::default())?;
//! // `files` is a `tower_service::Service<http::Request<B>>` for every `B`; clone it freely.
//! # std::io::Result::Ok(())
//! ```
//!
//! What it promises:
//!
//! - A path never leaves the folder, by `..`, by encoding tricks or by a symbolic link.
//! - A file of any size streams in bounded memory. A body is exactly as long as `content-length`
//!   says, or it ends in an [`std::io::Error`]: never short, never padded.
//! - A changed file is seen after [`Options::validity`] at the latest.
//! - What is in the page cache is read on the calling thread. Only a read or a lookup that the
//!   kernel says would wait for the disk goes to tokio's blocking threads.
//!
//! It needs Linux: it rests on `openat2`, with a slower way around it, and on `preadv2`.

mod answer;
mod body;
mod budget;
mod buffer;
mod cache;
mod conditional;
mod encoding;
mod listing;
mod load;
mod media;
mod multipart;
mod offload;
mod options;
mod path;
mod range;
mod reader;
mod refusal;
mod resource;
mod root;
mod service;
mod stamp;

pub use body::FileBody;
pub use options::{Hidden, Links, Listing, Options, Precompressed};
pub use service::{Files, FilesFuture};
