//! The settings of `smig serve`: its own and the shared ones, as flags and as the configuration
//! file's keys.
//!
//! A new setting is one entry of a table; nothing else knows the names.

mod files;
mod flags;
mod model;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::LazyLock;

use smig_settings::Schema;

pub(crate) use flags::Flags;
pub(crate) use model::{DEFAULT_PORT, Listen, Settings, Wire};
pub(crate) use table::ACCESS_LOG;

type Setting = smig_settings::Setting<Settings>;

static SCHEMA: LazyLock<Schema<Settings>> = LazyLock::new(|| {
    let mut sections = smig_settings::SECTIONS.to_vec();
    sections.insert(3, ("files", "How the folder is served"));
    let mut settings = table::TABLE.to_vec();
    settings.extend_from_slice(files::TABLE);
    settings.extend(smig_settings::shared());
    Schema { sections, settings, example: "smig config example" }
});

/// Every setting, section by section.
fn all() -> impl Iterator<Item = &'static Setting> {
    SCHEMA.settings.iter()
}

/// Reads a configuration file over the settings.
///
/// # Errors
/// Everything that is wrong with the file, one line each, `FILE:LINE: what`.
pub(crate) fn load(path: &Path, settings: &mut Settings) -> Result<(), String> {
    SCHEMA.load(path, settings).map_err(|faults| faults.to_string())
}

/// Every key with its default, each commented out.
pub(crate) fn example() -> String {
    let head = "# Settings of `smig serve`: smig serve --config FILE; smig config check FILE.\n\
         # Every key is here with its default; take the # away to change one. Flags of the same\n\
         # meaning go before the file. Unknown keys are errors.\n";
    format!("{head}{}", SCHEMA.example(true)).replace(". Flag: --root", ".")
}
