//! The settings table as command-line flags.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use smig_settings::ValueKind;

use super::{SCHEMA, Setting, Settings, all_settings};

/// Settings given on the command line, in the table's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags(Vec<(&'static str, Vec<String>)>);

impl Flags {
    /// Applies the flags; they take precedence over the file.
    ///
    /// # Errors
    /// A value is invalid for its setting; the text names the flag.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), String> {
        for (flag, values) in &self.0 {
            if let Some(setting) = all_settings().find(|setting| setting.flag == *flag) {
                (setting.set)(settings, values).map_err(|why| format!("--{flag}: {why}"))?;
            }
        }
        Ok(())
    }
}

fn build_arg(setting: &'static Setting, defaults: &Settings) -> Arg {
    let heading = SCHEMA
        .sections
        .iter()
        .find(|(name, _)| *name == setting.section())
        .map_or_else(|| setting.section(), |(_, about)| about);
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        .value_name(setting.value_name)
        .help_heading(heading)
        .hide_short_help(!matches!(setting.section(), "server" | "migration"))
        .action(ArgAction::Append);
    let default = (setting.show)(defaults);
    let is_unset = matches!(setting.flag, "cert" | "key" | "root" | "host");
    let help = match setting.kind {
        _ if is_unset || default == "\"\"" => setting.help.to_owned(),
        _ => format!("{} [default: {}]", setting.help, default.trim_matches(['"', '[', ']'])),
    };
    let arg = arg.help(help.replace("[default: \"", "[default: "));
    match setting.kind {
        ValueKind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        ValueKind::Text if setting.flag == "access-log" => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("text")
        }
        ValueKind::Text
        | ValueKind::List
        | ValueKind::Integer
        | ValueKind::Size
        | ValueKind::Time => arg,
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let defaults = Settings::default();
        command.args(
            all_settings()
                .filter(|s| s.flag != "root")
                .map(|setting| build_arg(setting, &defaults)),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in all_settings().filter(|s| s.flag != "root") {
            if matches.value_source(setting.flag) == Some(ValueSource::CommandLine) {
                let values = matches.get_many::<String>(setting.flag).into_iter().flatten();
                self.0.push((setting.flag, values.cloned().collect()));
            }
        }
        Ok(())
    }
}
