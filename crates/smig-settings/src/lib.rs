//! The settings that all our server programs share, and configuration files whose faults are reported
//! with a line.
//!
//! A [`Schema`] is one table, from which a file's keys, the example file, their checks, and (in programs
//! that have them) command-line flags are derived. A new setting is one entry; the names are defined
//! nowhere else. [`Document`] reads what serde describes and reports where the file is wrong.

mod document;
pub mod entry;
mod example;
mod fault;
mod file;
mod limits;
mod locate;
mod model;
mod table;
mod transport;
pub mod value;

use std::ops::DerefMut;

pub use document::{AtKey, Document};
pub use example::uncommented;
pub use fault::{Diagnostic, Diagnostics, suggest};
pub use locate::{KeyLocations, KeyMatch};
pub use model::{Extension, ServerSettings};
pub use value::ValueKind;

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
    pub value: &'static str,
    /// The description.
    pub help: &'static str,
    /// Formats the value as TOML; an example if it is unset.
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

/// The sections of the shared settings with their descriptions, in the order of an example file.
pub const SECTIONS: [(&str, &str); 7] = [
    ("server", "Addresses, workers, connections and timeouts"),
    ("migration", "When a running stream migrates to another connection"),
    ("smig", "The SMig extension: sessions of several connections"),
    ("http2", "HTTP/2 windows and sizes"),
    ("interactive", "Sockets of connections that carry interactive streams"),
    ("bulk", "Sockets of connections that carry migrated streams"),
    ("limits", "Limits on what a client may cause"),
];

/// Returns the shared settings, section by section.
#[must_use]
pub fn shared<T: HasServerSettings>() -> Vec<Setting<T>> {
    let mut all = table::table();
    all.extend(transport::table());
    all.extend(limits::table());
    all
}

/// All settings of a program.
#[derive(Debug)]
pub struct Schema<T> {
    /// The sections with their descriptions, in the order of the example file.
    pub sections: Vec<(&'static str, &'static str)>,
    /// The settings, section by section.
    pub settings: Vec<Setting<T>>,
    /// The command that prints an example, for messages.
    pub example: &'static str,
}
