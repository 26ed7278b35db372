//! Faults of a configuration file.

use std::fmt;
use std::path::Path;

/// A misspelling changes at most one in this many letters, but one letter of a short word.
const LETTERS_PER_TYPO: usize = 3;
/// Shortest word that counts as the beginning of a longer one.
const MIN_PREFIX_LETTERS: usize = 3;

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
    /// Returns the fault of a file that cannot be read; `description` describes the file.
    #[must_use]
    pub fn unreadable(file: &Path, description: &str, error: &std::io::Error) -> Self {
        let message = format!("cannot read {description}: {error}");
        let diagnostic = Diagnostic { line: 1, key: String::new(), message };
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

/// Returns the known word that a word most probably stands for: a misspelt one, or one that it begins.
#[must_use]
pub fn suggest<'a>(word: &str, known_words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typos = |known: &str| strsim::damerau_levenshtein(word, known);
    let letters = word.chars().count();
    let is_prefix = |known: &str| letters >= MIN_PREFIX_LETTERS && known.starts_with(word);
    let is_misspelt =
        |known: &str| letters > 0 && typos(known) <= (letters / LETTERS_PER_TYPO).max(1);
    let similar = known_words.into_iter().filter(|known| is_prefix(known) || is_misspelt(known));
    similar.min_by_key(|known| (!is_prefix(known), typos(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        let known = ["servers", "timeouts", "forward_proxy", "forwarded", "app"];
        for (word, expected) in [
            ("severs", Some("servers")),
            ("timeouts_", Some("timeouts")),
            ("tiemouts", Some("timeouts")),
            ("forward", Some("forwarded")),
            ("forward_p", Some("forward_proxy")),
            ("ap", Some("app")),
            ("resolve", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(suggest(word, known), expected, "{word}");
        }
    }
}
