//! Metadata of a partial file, so that it is resumed only with the same content.

use std::path::{Path, PathBuf};

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use crate::suffix::with_suffix;

/// Content of `NAME.part.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartMetadata {
    pub(super) url: String,
    /// Value for If-Range: a strong entity tag, or a date.
    pub(super) validator: String,
    /// Length of the complete content, if known.
    pub(super) total: Option<u64>,
}

impl PartMetadata {
    /// Builds the metadata of a response; `None` if it has no strong validator.
    pub(super) fn from_response(
        url: &str,
        headers: &HeaderMap,
        total: Option<u64>,
    ) -> Option<Self> {
        let validator = smig::strong_validator(headers)?.to_str().ok()?.to_owned();
        Some(Self { url: url.to_owned(), validator, total })
    }

    pub(super) fn load(path: &Path, url: &str) -> Option<Self> {
        let metadata: Self = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (metadata.url == url).then_some(metadata)
    }

    pub(super) fn store(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_vec(self)?)
    }

    /// Returns the path of the metadata for a partial file.
    pub(super) fn path_for(part: &Path) -> PathBuf {
        with_suffix(part, ".json")
    }
}
