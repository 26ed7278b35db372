//! The options of the service.

use std::time::Duration;

use http::HeaderValue;

/// Files and directories with a name that begins with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HiddenFiles {
    /// They do not exist for clients (404), except `/.well-known/` (RFC 8615).
    #[default]
    Refuse,
    /// They are served like any other.
    Serve,
}

/// Symlinks below the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Symlinks {
    /// Symlinks are refused (404).
    Refuse,
    /// Relative symlinks that stay below the directory are followed, all others are refused (404).
    ///
    /// If the kernel has no `openat2` (before Linux 5.6), all symlinks are refused.
    #[default]
    Inside,
    /// Symlinks are followed to any target. Any user who can create a symlink below the directory can
    /// then publish every file that this process can read.
    Follow,
}

/// The response for a directory without an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listing {
    /// 403.
    #[default]
    Off,
    /// A plain HTML page with the names, sizes and times of the directory's entries.
    On,
}

/// Siblings named `FILE.br`, `FILE.zst` and `FILE.gz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrecompressedFiles {
    /// Never used in place of `FILE`.
    Ignore,
    /// Sent in place of `FILE` to clients that accept the coding, unless older than `FILE`
    /// (in whole seconds, since some compressors truncate the time that they copy).
    #[default]
    Serve,
}

/// How a directory is served.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Name of the file that is served for a directory; `None` serves no index file.
    pub index_file: Option<String>,
    /// Names that begin with a dot.
    pub hidden_files: HiddenFiles,
    /// Symlinks below the directory.
    pub symlinks: Symlinks,
    /// Directories without an index file.
    pub listing: Listing,
    /// Precompressed siblings.
    pub precompressed_files: PrecompressedFiles,
    /// Value of `cache-control` in 200, 206 and 304 responses for files, not for directory listings; `None` omits the
    /// header field.
    pub cache_control: Option<HeaderValue>,
    /// How long a cached path is valid before it is compared with the file system again. A change
    /// of a file is detected after this time at the latest; with zero, at every request.
    pub cache_ttl: Duration,
    /// Maximum number of cached paths, over all threads. Each takes about 1 KB in addition to the file's
    /// content.
    pub cache_entries: usize,
    /// Maximum number of files kept open between requests, over all threads. Never more than a quarter of
    /// the process's limit of open files is used.
    pub cache_open_files: usize,
    /// Maximum number of bytes of file contents cached between requests, over all threads. With zero,
    /// every response is read from its file.
    pub cache_memory_bytes: usize,
    /// The largest file, in bytes, whose content is cached in memory. Reading a file for each response
    /// instead costs about 2 microseconds for system calls and 50 per megabyte for copying.
    pub cache_max_file_bytes: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            index_file: Some("index.html".to_owned()),
            hidden_files: HiddenFiles::default(),
            symlinks: Symlinks::default(),
            listing: Listing::default(),
            precompressed_files: PrecompressedFiles::default(),
            cache_control: None,
            cache_ttl: Duration::from_secs(1),
            cache_entries: 16_384,
            cache_open_files: 4_096,
            cache_memory_bytes: 64 << 20,
            cache_max_file_bytes: 128 << 10,
        }
    }
}
