//! The example file, made from the table.

use std::fmt::Write as _;

use super::{SECTIONS, Settings, all};

/// Every key with its default, each commented out.
pub(crate) fn example() -> String {
    let defaults = Settings::default();
    let mut text = String::from(
        "# Settings of `smig serve`: smig serve --config FILE; smig config check FILE.\n\
         # Every key is here with its default; take the # away to change one. Flags of the same\n\
         # meaning go before the file. Unknown keys are errors.\n",
    );
    for (section, about) in SECTIONS {
        let _ = write!(text, "\n# {about}.\n[{section}]\n");
        for setting in all().filter(|setting| setting.section() == section) {
            let shown = (setting.show)(&defaults);
            let _ = write!(text, "\n# {}. Flag: --{}\n", setting.help, setting.flag);
            let _ = writeln!(text, "#{} = {shown}", setting.name());
        }
    }
    text.replace(". Flag: --root", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::file::parse;

    /// The file as somebody would have it who took every # away from a key.
    fn uncommented() -> String {
        let lines = example();
        let lines = lines.lines().map(|line| match line.strip_prefix('#') {
            Some(key) if !key.starts_with(' ') => key,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_example_parses_as_it_is_and_with_every_key_in_force() {
        let mut settings = Settings::default();
        parse(&example(), &mut settings).unwrap();
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));

        parse(&uncommented(), &mut settings).unwrap();
        assert_eq!(uncommented().matches(" = ").count(), all().count());
        // What has no default is an example.
        settings.root = None;
        settings.certificate = None;
        settings.key = None;
        let defaults = Settings::default();
        for setting in all().filter(|setting| setting.key != "server.listen") {
            assert_eq!((setting.show)(&settings), (setting.show)(&defaults), "{}", setting.key);
        }
    }

    #[test]
    fn names_are_unique_and_in_known_sections() {
        let mut flags: Vec<_> = all().map(|setting| setting.flag).collect();
        let mut keys: Vec<_> = all().map(|setting| setting.key).collect();
        flags.sort_unstable();
        keys.sort_unstable();
        assert!(flags.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        for setting in all() {
            assert!(SECTIONS.iter().any(|(name, _)| *name == setting.section()), "{}", setting.key);
        }
    }
}
