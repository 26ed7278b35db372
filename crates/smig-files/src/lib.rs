//! A tower service that serves a directory of files.
//!
//! [`Files`] responds to GET, HEAD and OPTIONS with the regular files below one directory: ranges,
//! conditional requests, precompressed siblings, index files, redirects to directories, and, if
//! enabled, plain directory listings (RFC 9110). It sets every header field of the response except
//! `date`, which the server sets; with [`Files::with_shared_headers`], in the body of the response.
//!
//! ```no_run
//! use smig_files::{FileOptions, Files};
//!
//! let files = Files::new("public", FileOptions::default())?;
//! // `files` is a `tower_service::Service<http::Request<B>>` for every `B`; clone it freely.
//! # std::io::Result::Ok(())
//! ```
//!
//! Guarantees:
//!
//! - A path never leaves the directory, by `..`, by encoding tricks or, unless [`Symlinks::Follow`] allows
//!   it, by a symlink.
//! - A file of any size streams in bounded memory. A body is exactly as long as `content-length`
//!   states, or it ends in an [`std::io::Error`]: never short, never padded.
//! - A changed file is detected after [`FileOptions::cache_ttl`] at the latest.
//! - Data in the page cache is read on the calling thread, if kernel and file system support it. A read or a lookup that may
//!   block on the disk, and each directory listing, is sent to tokio's blocking threads.
//!
//! It requires Linux: it uses `openat2`, with a slower fallback, and `preadv2`.

mod body;
mod budget;
mod buffer;
mod cache;
mod conditional;
mod encoding;
mod error_response;
mod file_version;
mod listing;
mod media;
mod multipart;
mod offload;
mod options;
mod path;
mod range;
mod reader;
mod resolve;
mod resource;
mod response;
mod root;
mod service;

pub use body::FileBody;
pub use options::{FileOptions, HiddenFiles, Listing, PrecompressedFiles, Symlinks};
pub use service::{Files, FilesFuture};
