//! The example file, made from a schema.

use std::fmt::Write as _;

use crate::Schema;

impl<T: Default> Schema<T> {
    /// Every key with its default, each commented out; `flags`: with the flag that says the same.
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
