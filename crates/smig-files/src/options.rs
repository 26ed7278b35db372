//! What the owner of the folder can choose.

use std::time::Duration;

use http::HeaderValue;

/// Files and folders whose name begins with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hidden {
    /// They do not exist for clients (404), except `/.well-known/` (RFC 8615).
    #[default]
    Refuse,
    /// They are served like any other.
    Serve,
}

/// Symbolic links below the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// Links are refused (404).
    Refuse,
    /// Relative links that stay below the folder are followed, all others are refused (404).
    ///
    /// Where the kernel has no `openat2` (before Linux 5.6) all links are refused.
    #[default]
    Inside,
    /// Links are followed wherever they lead. Whoever can make a link below the folder can then
    /// publish any file that this process can read.
    Follow,
}

/// The answer for a folder that has no index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listing {
    /// 403.
    #[default]
    Off,
    /// A plain HTML page with the names, sizes and times of what is in the folder.
    On,
}

/// Siblings named `FILE.br`, `FILE.zst` and `FILE.gz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precompressed {
    /// Never used in place of `FILE`.
    Ignore,
    /// Sent in place of `FILE` to clients that accept the coding, if not older than `FILE`
    /// (in whole seconds, as some compressors cut the time they copy).
    #[default]
    Serve,
}

/// How a folder is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the file that is served for a folder; `None`: no file is.
    pub index: Option<String>,
    /// Names that begin with a dot.
    pub hidden: Hidden,
    /// Symbolic links.
    pub links: Links,
    /// Folders without an index file.
    pub listing: Listing,
    /// Precompressed siblings.
    pub precompressed: Precompressed,
    /// Value of `cache-control` in 200, 206 and 304 responses; `None`: no such header.
    pub cache_control: Option<HeaderValue>,
    /// For how long what is known of a path is believed before it is looked at again. A change of
    /// a file is seen after this time at the latest; zero looks at every request.
    pub validity: Duration,
    /// How many paths are remembered, over all threads. Each takes about 1 KB beside the file's
    /// content.
    pub max_entries: usize,
    /// How many files are kept open between requests, over all threads. At most a quarter of the
    /// process's limit of open files is used, whatever this says.
    pub max_open_files: usize,
    /// How many bytes of file contents are kept between requests, over all threads. Zero: every
    /// response is read from its file.
    pub max_memory: usize,
    /// The largest file, in bytes, whose content is kept in memory. Reading it for each response
    /// instead costs some 2 microseconds for system calls and 50 a megabyte for copying.
    pub max_in_memory_file: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            index: Some("index.html".to_owned()),
            hidden: Hidden::default(),
            links: Links::default(),
            listing: Listing::default(),
            precompressed: Precompressed::default(),
            cache_control: None,
            validity: Duration::from_secs(1),
            max_entries: 16_384,
            max_open_files: 4_096,
            max_memory: 64 << 20,
            max_in_memory_file: 128 << 10,
        }
    }
}
