//! Reads a file by a schema's keys, with messages that name line and key.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::diagnostic::suggest;
use crate::{Diagnostic, Diagnostics, KeyLocations, Schema, Setting, ValueKind};

impl<T> Schema<T> {
    /// Reads a configuration file and applies it to the settings.
    ///
    /// # Errors
    /// All faults of the file.
    pub fn load(&self, path: &Path, settings: &mut T) -> Result<(), Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Diagnostics::unreadable(path, "the configuration file", &error))?;
        let file = path.display().to_string();
        self.apply_text(&text, settings).map_err(|faults| Diagnostics { file, diagnostics: faults })
    }

    /// Applies a file's text.
    ///
    /// # Errors
    /// Every fault, in the file's order.
    pub fn apply_text(&self, text: &str, settings: &mut T) -> Result<(), Vec<Diagnostic>> {
        let locations = KeyLocations::parse(text)
            .map_err(|(line, message)| vec![Diagnostic { line, key: String::new(), message }])?;
        let mut diagnostics = Vec::new();
        for (section, content) in locations.table() {
            let name = section.get_ref().as_ref();
            let mut report = |what| {
                let line = locations.line_of_offset(section.span().start);
                diagnostics.push(Diagnostic { line, key: String::new(), message: what });
            };
            match content.get_ref() {
                DeValue::Table(table) if self.has_section(name) => {
                    self.apply_section(&locations, name, table, settings, &mut diagnostics);
                }
                DeValue::Table(_) => report(self.unknown_section(name)),
                _ if self.has_section(name) => {
                    report(format!("{name} is a section; write [{name}]"));
                }
                _ => report(self.misplaced_key(name)),
            }
        }
        diagnostics.sort();
        if diagnostics.is_empty() { Ok(()) } else { Err(diagnostics) }
    }

    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections.iter().any(|(known, _)| *known == name)
    }

    /// Applies one section's keys.
    pub(crate) fn apply_section(
        &self,
        locations: &KeyLocations<'_>,
        section: &str,
        table: &DeTable<'_>,
        settings: &mut T,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        for (name, value) in table {
            let key = format!("{section}.{}", name.get_ref());
            if let Err(what) = self.apply(&key, value, settings) {
                let line = locations.line_of_offset(name.span().start);
                diagnostics.push(Diagnostic { line, key: String::new(), message: what });
            }
        }
    }

    fn apply(
        &self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        settings: &mut T,
    ) -> Result<(), String> {
        let Some(setting) = self.settings.iter().find(|setting| setting.key == key) else {
            return Err(self.unknown_key(key));
        };
        let values = value_texts(setting.kind, value.get_ref()).ok_or_else(|| {
            let got = value.get_ref().type_str();
            format!("{key}: invalid type: {got}, expected {}", setting.kind.expected_description())
        })?;
        (setting.set)(settings, &values).map_err(|error| format!("{key}: {error}"))
    }

    fn unknown_key(&self, key: &str) -> String {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        let similar = |in_section: bool| {
            let settings = || {
                self.settings.iter().filter(|setting| (setting.section() == section) == in_section)
            };
            let similar = suggest(name, settings().map(Setting::name))?;
            settings().find(|setting| setting.name() == similar)
        };
        match similar(true).or_else(|| similar(false)) {
            Some(setting) => format!("unknown key {key}; did you mean {}?", setting.key),
            None => format!("unknown key {key}; `{}` lists every key", self.example_command),
        }
    }

    fn unknown_section(&self, section: &str) -> String {
        match suggest(section, self.sections.iter().map(|(name, _)| *name)) {
            Some(name) => format!("unknown section [{section}]; did you mean [{name}]?"),
            None => format!(
                "unknown section [{section}]; `{}` lists every section",
                self.example_command
            ),
        }
    }

    /// Returns the message for a key above the first section.
    fn misplaced_key(&self, name: &str) -> String {
        match self.settings.iter().find(|setting| setting.name() == name) {
            Some(setting) => {
                format!("{name} belongs in a section; write [{}] above it", setting.section())
            }
            None => format!(
                "unknown key {name} outside any section; `{}` lists every key",
                self.example_command
            ),
        }
    }
}

/// Returns the value as text if its type is correct.
fn value_texts(kind: ValueKind, value: &DeValue<'_>) -> Option<Vec<String>> {
    let string = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
    let number = |value: &DeValue<'_>| match value {
        DeValue::Integer(integer) => {
            let digits = integer.as_str().replace('_', "");
            i64::from_str_radix(&digits, integer.radix()).ok().map(|number| number.to_string())
        }
        _ => None,
    };
    let text = match kind {
        ValueKind::Text | ValueKind::Time => string(value),
        ValueKind::Integer => number(value),
        ValueKind::Size => number(value).or_else(|| string(value)),
        ValueKind::Bool => value.as_bool().map(|is_on| is_on.to_string()),
        ValueKind::List => match value {
            DeValue::Array(items) => {
                return items.iter().map(|item| string(item.get_ref())).collect();
            }
            _ => string(value),
        },
    };
    text.map(|one| vec![one])
}
