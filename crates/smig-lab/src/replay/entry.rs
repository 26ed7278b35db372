//! Recorded responses, as a directory has them: an index and a file for each body.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Name of the index in its directory.
const INDEX_NAME: &str = "index.json";

/// What a page's servers answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayIndex {
    /// In the order of the requests.
    pub responses: Vec<RecordedResponse>,
    /// Number of responses whose bodies the recording lacks, and which have as many bytes without meaning.
    pub without_body: usize,
}

/// A response to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedResponse {
    /// Index of its resource in the page's graph; that of the document is 0.
    pub resource: usize,
    /// Method of the request.
    pub method: String,
    /// Host of the request, with the port unless it is 443.
    pub host: String,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark; empty if there is none.
    pub query: String,
    /// Of a part (206): the field Range of the request that it answers. Others are answered by the same bytes as if they were the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub fields: Vec<(String, String)>,
    /// File of the body in the directory; `None` if it is empty.
    pub body: Option<String>,
    /// Size of the body as it is transferred.
    pub body_bytes: u64,
    /// For how long the server thought, in microseconds.
    pub think_us: u64,
}

impl ReplayIndex {
    /// Reads the index of a directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(dir: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(dir.join(INDEX_NAME))?)?)
    }

    /// Writes the index into a directory.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        std::fs::write(dir.join(INDEX_NAME), serde_json::to_vec(self)?)
    }

    /// Returns whether a directory has an index, and with it all bodies.
    pub(super) fn exists(dir: &Path) -> io::Result<bool> {
        std::fs::exists(dir.join(INDEX_NAME))
    }
}
