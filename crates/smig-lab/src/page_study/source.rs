//! Where a page comes from: a word, or a file.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::scenario::Size;

/// The mosaic of "Getting to know HTTP/2.0 with the mosaic demo" (2015): 234 pictures with 93 kB in all. None is smaller than a PNG, so that
/// a browser and the player load the same.
const MOSAIC: &str =
    "tiles = { objects = 234, total = \"93kB\", sizes = \"log-normal\", least = \"128B\" }";

/// Keys of a page that depend on how it is loaded: each run of a study has one load, by one client.
const OWN_KEYS: [&str; 5] = ["client", "count", "pause", "start", "warm"];

/// A page, as the keys of `[workload.pages.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PageSource {
    /// Name of the page.
    pub name: String,
    /// Directory of the files that it names.
    pub dir: PathBuf,
    pub(super) keys: Table,
}

/// Why there is no such page.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The word is none of the known ones, and there is no such file.
    #[error(
        "{0:?} is not a page: \"mosaic\", tiles as OBJECTSxTOTAL (48x550kB), a recording (FILE.har), or a TOML file with the keys \
         of a page, as in [workload.pages.NAME] of a scenario (docs/lab.md)"
    )]
    Unknown(String),
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        cause: std::io::Error,
    },
    /// The page has keys that the study sets itself.
    #[error("{}: {key}: a study sets it itself; remove the key", path.display())]
    OwnKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The file is not TOML.
    #[error("{}: {cause}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        cause: String,
    },
}

impl PageSource {
    /// Parses `mosaic`, `48x550kB`, the path of a recording (`.har`), or that of another file.
    ///
    /// # Errors
    /// [`SourceError`]. Whether the keys of the page are right is known only when its study is built.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let here = |name: &str, keys: Table| Self { name: name.to_owned(), dir: ".".into(), keys };
        if text == "mosaic" {
            let keys = MOSAIC.parse().map_err(|error: toml::de::Error| SourceError::Malformed {
                path: text.into(),
                cause: error.message().to_owned(),
            })?;
            return Ok(here(text, keys));
        }
        if let Some((objects, total)) = text.split_once('x')
            && let (Ok(objects), Some(_)) = (objects.parse::<u32>(), Size::parse(total))
        {
            let tiles = Table::from_iter([
                ("objects".to_owned(), Value::from(i64::from(objects))),
                ("total".to_owned(), Value::from(total)),
            ]);
            let keys = Table::from_iter([("tiles".to_owned(), Value::Table(tiles))]);
            return Ok(here(&format!("{objects} tiles, {total}"), keys));
        }
        let path = Path::new(text);
        if path.extension().is_some_and(|extension| extension == "har") {
            return Ok(Self::recorded(path));
        }
        Self::read(path)
    }

    /// Returns whether it is a file with the keys of a page, and not a word or a recording.
    pub(super) fn has_file_of_keys(&self) -> bool {
        self.dir != Path::new(".")
    }

    /// Returns a recorded page. The file is read when the study is built.
    fn recorded(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let har = Value::from(absolute.display().to_string());
        let keys = Table::from_iter([("har".to_owned(), har)]);
        Self { name: path.display().to_string(), dir: ".".into(), keys }
    }

    fn read(path: &Path) -> Result<Self, SourceError> {
        let text = std::fs::read_to_string(path).map_err(|cause| {
            if cause.kind() == std::io::ErrorKind::NotFound && path.extension().is_none() {
                SourceError::Unknown(path.display().to_string())
            } else {
                SourceError::Unreadable { path: path.to_owned(), cause }
            }
        })?;
        let keys = text.parse::<Table>().map_err(|error| SourceError::Malformed {
            path: path.to_owned(),
            cause: error.to_string().trim().to_owned(),
        })?;
        if let Some(key) = OWN_KEYS.into_iter().find(|key| keys.contains_key(*key)) {
            return Err(SourceError::OwnKey { path: path.to_owned(), key: key.to_owned() });
        }
        let stem = path.file_stem().map_or_else(|| "page".into(), |stem| stem.to_string_lossy());
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let dir = absolute.parent().unwrap_or(&absolute).to_owned();
        Ok(Self { name: stem.into_owned(), dir, keys })
    }
}
