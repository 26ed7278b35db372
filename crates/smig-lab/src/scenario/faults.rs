//! The faults of a scenario, and checks that many keys share.

use std::collections::BTreeMap;

/// Path of a key, and what is wrong there.
pub(super) type KeyFault = (Vec<String>, String);

#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<KeyFault>);

impl Faults {
    /// Adds a fault at a path with dots between its keys. Names that contain dots have a fault of their own.
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push((path.split('.').map(str::to_owned).collect(), message.into()));
    }
}

pub(super) fn check_name(name: &str, path: &str, faults: &mut Faults) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_allowed) {
        let path = path.split_once('.').map_or(path, |(section, _)| section);
        faults.add(path, format!("the name {name:?} may have letters, digits, - and _ only"));
    }
}

/// Returns the named entry, or the only one if no name is given.
pub(super) fn resolve<'a, T>(
    requested_name: Option<&str>,
    entries: &'a BTreeMap<String, T>,
    path: &str,
    key: &str,
    faults: &mut Faults,
) -> Option<&'a T> {
    let names = || entries.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    match requested_name {
        Some(name) => {
            let found = entries.get(name);
            if found.is_none() {
                let message = format!("unknown {key} {name:?}; known: {}", names());
                faults.add(&format!("{path}.{key}"), message);
            }
            found
        }
        None if entries.len() == 1 => entries.values().next(),
        None => {
            if !entries.is_empty() {
                let what = format!("name one {key} of: {}", names());
                faults.add(&format!("{path}.{key}"), what);
            }
            None
        }
    }
}
