//! Maps a key's path to its line in the file.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A parsed file with the positions of its keys.
#[derive(Debug)]
pub struct KeyLocations<'a> {
    text: &'a str,
    document: Spanned<DeTable<'a>>,
}

/// The existing prefix of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyMatch {
    /// Number of keys of the path that exist.
    pub depth: usize,
    /// The line of the last existing key, from 1.
    pub line: usize,
}

impl<'a> KeyLocations<'a> {
    /// Parses the file.
    ///
    /// # Errors
    /// The line and the message for text that is not TOML.
    pub fn parse(text: &'a str) -> Result<Self, (usize, String)> {
        match DeTable::parse(text) {
            Ok(document) => Ok(Self { text, document }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                Err((line_at(text, at), error.message().to_owned()))
            }
        }
    }

    /// Returns the file's top-level table.
    pub(crate) fn table(&self) -> &DeTable<'a> {
        self.document.get_ref()
    }

    /// Returns the line of a byte offset, from 1.
    pub(crate) fn line_of_offset(&self, at: usize) -> usize {
        line_at(self.text, at)
    }

    /// Resolves a path as far as it exists.
    #[must_use]
    pub fn find(&self, path: &[String]) -> KeyMatch {
        let mut deepest_match = KeyMatch { depth: 0, line: 1 };
        let mut table = Some(self.document.get_ref());
        let mut items: Option<&DeArray<'_>> = None;
        for (depth, key) in path.iter().enumerate() {
            let (offset, value) = if let Some(inner) = table {
                let Some((name, value)) = inner.iter().find(|(name, _)| name.get_ref() == key)
                else {
                    break;
                };
                (name.span().start, value)
            } else {
                let index = key.parse::<usize>().ok();
                let Some(value) = index.and_then(|index| items?.get(index)) else { break };
                (value.span().start, value)
            };
            deepest_match = KeyMatch { depth: depth + 1, line: line_at(self.text, offset) };
            (table, items) = match value.get_ref() {
                DeValue::Table(inner) => (Some(inner), None),
                DeValue::Array(inner) => (None, Some(inner)),
                _ => (None, None),
            };
        }
        deepest_match
    }

    /// Returns the keys of a table in the file's order.
    #[must_use]
    pub fn keys(&self, path: &[&str]) -> Vec<String> {
        let mut table = self.document.get_ref();
        for key in path {
            let next = table.iter().find(|(name, _)| name.get_ref() == key);
            let Some(DeValue::Table(inner)) = next.map(|(_, value)| value.get_ref()) else {
                return Vec::new();
            };
            table = inner;
        }
        let mut keys: Vec<_> =
            table.iter().map(|(name, _)| (name.span().start, name.get_ref().to_string())).collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect()
    }
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text.get(..at).unwrap_or(text).matches('\n').count()
}
