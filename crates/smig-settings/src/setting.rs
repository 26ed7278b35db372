//! One setting, and all settings of a program.

use std::ops::DerefMut;

use crate::model::ServerSettings;
use crate::value::ValueKind;

/// A type that has the shared settings in addition to its own.
pub trait HasServerSettings: DerefMut<Target = ServerSettings> {}

impl<T: DerefMut<Target = ServerSettings>> HasServerSettings for T {}

/// One setting of a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T> {
    /// The key in the file, `section.name`.
    pub key: &'static str,
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The kind of its value.
    pub kind: ValueKind,
    /// The name of the flag's argument in help.
    pub value_name: &'static str,
    /// The description.
    pub help: &'static str,
    /// Formats the value as TOML; if it is unset, the value that means so, or an example.
    pub show: fn(&T) -> String,
    /// Applies a value; the error describes what is wrong with it.
    pub set: fn(&mut T, &[String]) -> Result<(), String>,
}

impl<T> Setting<T> {
    /// Returns the file section that it belongs to.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// Returns its name in the section.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }
}

/// All settings of a program.
#[derive(Debug)]
pub struct Schema<T> {
    /// The sections with their descriptions, in the order of the example file.
    pub sections: Vec<(&'static str, &'static str)>,
    /// The settings; those of one section need not be neighbours.
    pub settings: Vec<Setting<T>>,
    /// The command that prints an example, for messages.
    pub example_command: &'static str,
}
