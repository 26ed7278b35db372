//! File names with a suffix.

use std::path::{Path, PathBuf};

/// Returns `path` with `suffix` appended to its name. An existing extension stays.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
