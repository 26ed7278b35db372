//! The settings of `smig serve`: one table, from which come the flags, the configuration file's
//! keys, the example file and their checks.
//!
//! A new setting is one entry of [`table`]; nothing else knows the names.

mod example;
mod file;
mod files;
mod flags;
mod limits;
mod model;
mod table;
mod transport;
mod value;

pub(crate) use example::example;
pub(crate) use file::load;
pub(crate) use flags::Flags;
pub(crate) use model::{AccessLog, DEFAULT_PORT, Listen, Settings, Wire};
pub(crate) use value::{parse_seconds, parse_size, parse_time};

use value::Kind;

/// One setting.
pub(crate) struct Setting {
    /// The key's place in the file, `section.name`.
    key: &'static str,
    /// The flag, without dashes.
    flag: &'static str,
    kind: Kind,
    /// What the flag's argument is called in help.
    value: &'static str,
    help: &'static str,
    /// The value in TOML; for what is unset, an example.
    show: fn(&Settings) -> String,
    set: fn(&mut Settings, &[String]) -> Result<(), String>,
}

impl Setting {
    fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    fn name(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, name)| name)
    }
}

/// Every setting, section by section.
fn all() -> impl Iterator<Item = &'static Setting> {
    table::TABLE.iter().chain(files::TABLE).chain(transport::TABLE).chain(limits::TABLE)
}

/// The sections, in the order of the example file, with what they are about.
const SECTIONS: [(&str, &str); 8] = [
    ("server", "What is served, where and by how many"),
    ("policy", "When a running stream moves to another connection"),
    ("smig", "The extension: sessions of several connections"),
    ("files", "How the folder is served"),
    ("http2", "HTTP/2 windows and sizes"),
    ("interactive", "Sockets of connections that carry what people wait for"),
    ("bulk", "Sockets of connections that carry moved streams"),
    ("limits", "What a client may cause before it is stopped"),
];
