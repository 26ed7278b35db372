//! The example file, generated from a schema.

use std::fmt::Write as _;

use crate::Schema;

impl<T: Default> Schema<T> {
    /// Returns every key with its default, commented out; with `flags`, also the equivalent flag.
    #[must_use]
    pub fn example(&self, flags: bool) -> String {
        let defaults = T::default();
        let mut text = String::new();
        for (section, about) in &self.sections {
            let _ = write!(text, "\n# {about}.\n[{section}]\n");
            for setting in self.settings.iter().filter(|setting| setting.section() == *section) {
                let shown = (setting.show)(&defaults);
                let _ = write!(text, "\n# {}.", setting.help);
                let _ = if flags {
                    writeln!(text, " Flag: --{}", setting.flag)
                } else {
                    writeln!(text)
                };
                let _ = writeln!(text, "#{} = {shown}", setting.name());
            }
        }
        text
    }
}
