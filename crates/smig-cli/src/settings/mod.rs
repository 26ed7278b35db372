//! The settings of `smig serve`: its own and the shared ones, as flags and as keys of the configuration file.
//!
//! A new setting is one entry of a table; no other code repeats its name.

mod files;
mod flags;
mod model;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::LazyLock;

use smig_settings::{Diagnostic, Schema};

pub(crate) use flags::Flags;
pub(crate) use model::{DEFAULT_PORT, ListenAddresses, ListenSecurity, Settings};
pub(crate) use table::ACCESS_LOG_VALUES;

type Setting = smig_settings::Setting<Settings>;

static SCHEMA: LazyLock<Schema<Settings>> = LazyLock::new(|| {
    let mut sections = smig_settings::SECTIONS.to_vec();
    sections[0].1 = "Addresses, workers, connections and timeouts";
    sections.insert(3, ("files", "How files are served"));
    let mut settings = table::SERVE_SETTINGS.to_vec();
    settings.extend_from_slice(files::FILE_SETTINGS);
    settings.extend(smig_settings::shared_settings());
    Schema { sections, settings, example_command: "smig config example" }
});

/// Returns every setting.
fn all_settings() -> impl Iterator<Item = &'static Setting> {
    SCHEMA.settings.iter()
}

/// Applies a configuration file to the settings.
///
/// # Errors
/// All faults of the file, one line each, `FILE:LINE: what`.
pub(crate) fn load(path: &Path, settings: &mut Settings) -> Result<(), String> {
    SCHEMA.load(path, settings).map_err(|faults| faults.to_string())
}

/// Checks a file's text.
///
/// # Errors
/// All faults of the text.
pub(crate) fn check(text: &str) -> Result<(), Vec<Diagnostic>> {
    SCHEMA.apply_text(text, &mut Settings::default())
}

/// Returns an example file: every key with its default, or an example value if it has none, each commented out.
pub(crate) fn example() -> String {
    let head = "# Settings of `smig serve`: smig serve --config FILE; smig config check FILE.\n\
         # Every key is listed with its default (root, cert and key have none: an example); remove the #\n\
         # to change one. Command-line flags take precedence over the file. Unknown keys are errors.\n";
    format!("{head}{}", SCHEMA.example(true)).replace(". Flag: --root", ".")
}
