//! The settings that every server program of ours shares, and configuration files whose faults have
//! a line.
//!
//! A [`Schema`] is one table, from which come a file's keys, the example file, their checks, and (by
//! who has them) command-line flags. A new setting is one entry; nothing else knows the names.
//! [`Document`] reads what serde describes and says where the file is wrong.

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

pub use document::{Document, Placed};
pub use fault::{Fault, Faults, nearest};
pub use locate::{Found, Located};
pub use model::{Extension, ServerSettings};
pub use value::Kind;

/// Whatever has the shared settings beside its own.
pub trait Shared: DerefMut<Target = ServerSettings> {}

impl<T: DerefMut<Target = ServerSettings>> Shared for T {}

/// One setting of a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T> {
    /// The key's place in the file, `section.name`.
    pub key: &'static str,
    /// The flag, without dashes.
    pub flag: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What the flag's argument is called in help.
    pub value: &'static str,
    /// What it means, for people.
    pub help: &'static str,
    /// The value in TOML; for what is unset, an example.
    pub show: fn(&T) -> String,
    /// Takes a value; the error says what is wrong with it.
    pub set: fn(&mut T, &[String]) -> Result<(), String>,
}

impl<T> Setting<T> {
    /// The part of the file that it belongs to.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its name in there.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }
}

/// The sections of the shared settings with what they are about, in the order of an example file.
pub const SECTIONS: [(&str, &str); 7] = [
    ("server", "What is served, where and by how many"),
    ("policy", "When a running stream moves to another connection"),
    ("smig", "The extension: sessions of several connections"),
    ("http2", "HTTP/2 windows and sizes"),
    ("interactive", "Sockets of connections that carry what people wait for"),
    ("bulk", "Sockets of connections that carry moved streams"),
    ("limits", "What a client may cause before it is stopped"),
];

/// The shared settings, section by section.
#[must_use]
pub fn shared<T: Shared>() -> Vec<Setting<T>> {
    let mut all = table::table();
    all.extend(transport::table());
    all.extend(limits::table());
    all
}

/// All settings of a program.
#[derive(Debug)]
pub struct Schema<T> {
    /// In the order of the example file, with what they are about.
    pub sections: Vec<(&'static str, &'static str)>,
    /// Section by section.
    pub settings: Vec<Setting<T>>,
    /// What prints an example, for messages.
    pub example: &'static str,
}
