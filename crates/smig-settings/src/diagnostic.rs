//! Faults of a configuration file.

use std::fmt;
use std::path::Path;

/// Minimum Jaro-Winkler similarity of a word to a suggestion.
const MIN_SIMILARITY: f64 = 0.7;

/// A fault of a file, with its position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The line in the file, from 1.
    pub line: usize,
    /// The key with its tables; empty if there is none, or if `message` names it.
    pub key: String,
    /// What is wrong, and what would be correct.
    pub message: String,
}

/// All faults of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The file's name as given.
    pub file: String,
    /// The faults, in the file's order; never empty.
    pub diagnostics: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Returns the fault of a file that cannot be read; `what` describes the file.
    #[must_use]
    pub fn unreadable(file: &Path, what: &str, error: &std::io::Error) -> Self {
        let what = format!("cannot read {what}: {error}");
        let diagnostic = Diagnostic { line: 1, key: String::new(), message: what };
        Self { file: file.display().to_string(), diagnostics: vec![diagnostic] }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{fault}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Returns the known word that is most similar to a misspelt one; of equally similar ones, the last.
#[must_use]
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similarity = |known: &str| strsim::jaro_winkler(word, known);
    let best = known.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    best.filter(|known| similarity(known) > MIN_SIMILARITY)
}
