//! Why a recording cannot be read.

use smig_survey::SurveyError;

/// Why a recording cannot be read: the file, the key, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HarError {
    /// The file cannot be read.
    #[error("cannot read {name}: {cause}")]
    Read {
        /// The file.
        name: String,
        /// The error of the operating system.
        cause: String,
    },
    /// It is not a recording, or not one that a page can be made of.
    #[error("{name}: {key}: {message}")]
    Content {
        /// The file.
        name: String,
        /// Where in the file: a line, or a key such as `log.entries[3].request.url`.
        key: String,
        /// What is wrong there, and what to do.
        message: String,
    },
}

impl HarError {
    pub(crate) fn content(name: &str, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Content { name: name.to_owned(), key: key.into(), message: message.into() }
    }
}

impl From<SurveyError> for HarError {
    fn from(error: SurveyError) -> Self {
        match error {
            SurveyError::Read { name, cause } => Self::Read { name, cause: cause.to_string() },
            SurveyError::Damaged(damaged) => {
                Self::content(&damaged.name, damaged.location, one_line(&damaged.reason))
            }
            other => Self::content("the recording", "log", one_line(&other.to_string())),
        }
    }
}

/// Returns a text as one line of moderate length: parts of a file can be anything.
pub(super) fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let mut line: String =
        text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() < text.len() && text.chars().nth(MAX_CHARS).is_some() {
        line.push_str("...");
    }
    line
}
