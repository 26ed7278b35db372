//! What is wrong with a file.

use std::fmt;
use std::path::Path;

/// Words that differ by more than this share of their letters are no typing errors.
const LIKENESS: f64 = 0.7;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Where in the file, from 1.
    pub line: usize,
    /// The key with its tables; empty where there is none, or `what` names it.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// Everything that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The file's name as it was given.
    pub file: String,
    /// In the order of the file; never empty.
    pub faults: Vec<Fault>,
}

impl Faults {
    /// A file that cannot be read: `what` it is.
    #[must_use]
    pub fn unreadable(file: &Path, what: &str, error: &std::io::Error) -> Self {
        let what = format!("{what} cannot be read: {error}");
        let fault = Fault { line: 1, key: String::new(), what };
        Self { file: file.display().to_string(), faults: vec![fault] }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{}: ", self.file, fault.line)?;
            if !fault.key.is_empty() {
                write!(f, "{}: ", fault.key)?;
            }
            write!(f, "{}", fault.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The known word that somebody may have meant; of equally near ones the last.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(word, known);
    let best = known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|known| likeness(known) > LIKENESS)
}
