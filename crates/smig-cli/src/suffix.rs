//! File names with something behind them.

use std::path::{Path, PathBuf};

/// `path` with `suffix` at the end of its name, whatever extension it has.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
