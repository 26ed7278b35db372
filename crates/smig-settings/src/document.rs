//! Reads a TOML file by serde. Each part is read separately, so that all errors are reported at once.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::de::DeValue;
use toml::{Table, Value};

use crate::diagnostic::suggest;
use crate::{Diagnostic, KeyLocations, Schema};

/// A value with its position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueAtKey<T> {
    /// The path of its key.
    pub path: Vec<String>,
    /// The value.
    pub value: T,
}

/// A file that is being read.
#[derive(Debug)]
pub struct Document<'a> {
    locations: KeyLocations<'a>,
    unread_keys: Table,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Document<'a> {
    /// Parses a file's text.
    ///
    /// # Errors
    /// Text that is not TOML.
    pub fn parse(text: &'a str) -> Result<Self, Diagnostic> {
        let diagnostic = |line, what| Diagnostic { line, key: String::new(), message: what };
        let locations = KeyLocations::parse(text).map_err(|(line, what)| diagnostic(line, what))?;
        // Of what could be parsed above, this refuses integers beyond 64 bits.
        let unread_keys = text.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            diagnostic(locations.line_of_offset(at), error.message().to_owned())
        })?;
        Ok(Self { locations, unread_keys, diagnostics: Vec::new() })
    }

    /// Reads the sections of a schema.
    pub fn read_sections<T>(&mut self, schema: &Schema<T>, settings: &mut T) {
        for (name, content) in self.locations.table() {
            let name = name.get_ref().as_ref();
            if let DeValue::Table(table) = content.get_ref()
                && schema.has_section(name)
            {
                schema.apply_section(&self.locations, name, table, settings, &mut self.diagnostics);
                self.unread_keys.remove(name);
            }
        }
    }

    /// Returns whether the file has a top-level key that was not read yet.
    #[must_use]
    pub fn has_unread(&self, key: &str) -> bool {
        self.unread_keys.contains_key(key)
    }

    /// Reads a top-level key. An invalid value gives `None` too; its fault comes from [`Self::finish`].
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Option<ValueAtKey<T>> {
        let value = self.unread_keys.remove(key)?;
        self.deserialize(value, vec![key.to_owned()])
    }

    /// Reads an array of tables, without the invalid ones: their faults come from [`Self::finish`].
    pub fn take_array<T: DeserializeOwned>(&mut self, key: &str) -> Vec<ValueAtKey<T>> {
        match self.unread_keys.remove(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                let items = items.into_iter().enumerate();
                let at = |index: usize| vec![key.to_owned(), index.to_string()];
                items.filter_map(|(index, item)| self.deserialize(item, at(index))).collect()
            }
            Some(_) => {
                self.report(&[key.to_owned()], format!("write each entry as [[{key}]]"));
                Vec::new()
            }
        }
    }

    /// Reads a table of named tables, without the invalid ones: their faults come from [`Self::finish`].
    pub fn take_tables<T: DeserializeOwned>(&mut self, key: &str) -> Vec<ValueAtKey<T>> {
        match self.unread_keys.remove(key) {
            None => Vec::new(),
            Some(Value::Table(items)) => {
                let at = |name: String| vec![key.to_owned(), name];
                items
                    .into_iter()
                    .filter_map(|(name, item)| self.deserialize(item, at(name)))
                    .collect()
            }
            Some(_) => {
                self.report(&[key.to_owned()], format!("write each entry as [{key}.NAME]"));
                Vec::new()
            }
        }
    }

    fn deserialize<T: DeserializeOwned>(
        &mut self,
        value: Value,
        mut path: Vec<String>,
    ) -> Option<ValueAtKey<T>> {
        match serde_path_to_error::deserialize(value) {
            Ok(value) => Some(ValueAtKey { path, value }),
            Err(error) => {
                path.extend(error.path().iter().filter_map(segment_text));
                let mut message = error.inner().message().trim_end().to_owned();
                if let Some((unknown, improved)) = unknown_key(&message) {
                    if path.last() != Some(&unknown) {
                        path.push(unknown);
                    }
                    message = improved;
                }
                self.report(&path, message);
                None
            }
        }
    }

    /// Reports a fault at a key, or at the existing prefix of its path.
    pub fn report(&mut self, path: &[String], message: impl Into<String>) {
        let line = self.locations.find(path).line;
        self.diagnostics.push(Diagnostic { line, key: path.join("."), message: message.into() });
    }

    /// Finishes reading. Keys that were not read are unknown; `known_keys` are the file's top-level keys.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn finish(mut self, known_keys: &[&str]) -> Result<(), Vec<Diagnostic>> {
        for key in std::mem::take(&mut self.unread_keys).into_iter().map(|(key, _)| key) {
            let message = match suggest(&key, known_keys.iter().copied()) {
                // A known key with a value of the wrong form.
                Some(same) if same == key => format!("this is a table; write it as [{key}]"),
                Some(similar) => format!("unknown key; did you mean {similar}?"),
                None => format!("unknown key; known keys: {}", known_keys.join(", ")),
            };
            self.report(&[key], message);
        }
        self.diagnostics.sort();
        if self.diagnostics.is_empty() { Ok(()) } else { Err(self.diagnostics) }
    }

    /// Returns whether there are faults so far.
    #[must_use]
    pub const fn has_diagnostics(&self) -> bool {
        !self.diagnostics.is_empty()
    }
}

fn segment_text(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Map { key } => Some(key.clone()),
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Returns the key of serde's "unknown field `key`, expected one of `a`, `b`", and a better message.
fn unknown_key(message: &str) -> Option<(String, String)> {
    let (key, rest) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let improved_message = match suggest(key, known.iter().copied()) {
        Some(similar) => format!("unknown key; did you mean {similar}?"),
        None if known.is_empty() => "unknown key; this table has no keys".to_owned(),
        None => format!("unknown key; known keys: {}", known.join(", ")),
    };
    Some((key.to_owned(), improved_message))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestRoute {
        #[expect(dead_code, reason = "read by serde alone")]
        path: String,
    }

    #[test]
    fn an_integer_that_is_too_large_is_reported_with_its_line() {
        let fault = Document::parse("a = 1\nb = 99999999999999999999\n").unwrap_err();
        assert_eq!(fault.line, 2, "{fault:?}");
        assert!(fault.message.contains("integer"), "{fault:?}");
    }

    #[test]
    fn every_fault_is_reported_with_its_line_and_key() {
        let text = "colour = 1\n[[route]]\npath = '/'\n[[route]]\npaht = '/'\n[[route]]\npath = 5\n\
                    [named.a]\npath = '/'\nbreadth = 1\n[naemd]\n";
        let mut document = Document::parse(text).unwrap();
        assert_eq!(document.take_array::<TestRoute>("route").len(), 1);
        assert_eq!(document.take_tables::<TestRoute>("named").len(), 0);
        assert!(document.take::<BTreeMap<String, u8>>("absent").is_none());
        let diagnostics = document.finish(&["route", "named"]).unwrap_err();
        let shown: Vec<_> =
            diagnostics.iter().map(|f| format!("{}: {}: {}", f.line, f.key, f.message)).collect();
        assert_eq!(
            shown,
            [
                "1: colour: unknown key; known keys: route, named",
                "5: route.1.paht: unknown key; did you mean path?",
                "7: route.2.path: invalid type: integer `5`, expected a string",
                "10: named.a.breadth: unknown key; known keys: path",
                "11: naemd: unknown key; did you mean named?",
            ]
        );
    }
}
