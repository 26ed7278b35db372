//! The settings that all our server programs share, and configuration files whose faults are reported
//! with a line.
//!
//! A [`Schema`] is one table, from which a file's keys, the example file, their checks, and (in programs
//! that have them) command-line flags are derived. A new setting is one entry; the names are defined
//! nowhere else. [`Document`] reads what serde describes and reports where the file is wrong.

mod diagnostic;
mod document;
pub mod entry;
mod example;
mod file;
mod limits;
mod locate;
mod model;
mod setting;
mod shared;
mod table;
mod transport;
pub mod value;

pub use diagnostic::{Diagnostic, Diagnostics, suggest};
pub use document::{Document, ValueAtKey};
pub use example::uncomment_keys;
pub use locate::{KeyLocations, KeyMatch};
pub use model::{Extension, ServerSettings};
pub use setting::{HasServerSettings, Schema, Setting};
pub use shared::{SECTIONS, shared_settings};
pub use value::ValueKind;
