//! The example file, generated from a schema.

use std::fmt::Write as _;

use crate::Schema;

impl<T: Default> Schema<T> {
    /// Returns every key with its default, or an example value if it has none, commented out; if `with_flags`, also the equivalent flag.
    #[must_use]
    pub fn example(&self, with_flags: bool) -> String {
        let defaults = T::default();
        let mut text = String::new();
        for (section, about) in &self.sections {
            let _ = write!(text, "\n# {about}.\n[{section}]\n");
            for setting in self.settings.iter().filter(|setting| setting.section() == *section) {
                let default_text = (setting.show)(&defaults);
                let _ = write!(text, "\n# {}.", setting.help);
                let _ = if with_flags {
                    writeln!(text, " Flag: --{}", setting.flag)
                } else {
                    writeln!(text)
                };
                let _ = writeln!(text, "#{} = {default_text}", setting.name());
            }
        }
        text
    }
}

/// Returns an example file with every key and every section uncommented, which tests check.
#[must_use]
pub fn uncomment_keys(example: &str) -> String {
    let is_key = |line: &str| {
        let name = line.split(" = ").next().unwrap_or_default();
        line.contains(" = ")
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if is_key(rest) || is_key(rest.trim_start()) => rest.trim_start().to_owned(),
        Some(rest) if rest.starts_with(" [") && rest.ends_with(']') => rest.trim_start().to_owned(),
        _ => line.to_owned(),
    };
    example.lines().map(uncomment).collect::<Vec<_>>().join("\n")
}
