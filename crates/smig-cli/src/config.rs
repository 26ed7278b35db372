//! `smig config`: look at a configuration file, or make one.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::exit::{Exit, Failure};
use crate::settings::{self, Settings};

/// Check a configuration file of `smig serve`, or print an example
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smig config example > smig.toml
  smig config check smig.toml
  smig serve ./public --config smig.toml")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Say what is wrong with a file, if anything; exit code 2 if so
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print a file with every key, its meaning and its default
    Example,
}

pub(crate) fn run(args: &ConfigArgs) -> Result<ExitCode> {
    match &args.action {
        Action::Check { file } => {
            settings::load(file, &mut Settings::default())
                .map_err(|faults| Failure::new(Exit::Usage, faults))?;
            let _ = writeln!(std::io::stdout(), "{} is good", file.display());
        }
        Action::Example => {
            // A reader that has had enough (`| head`) is no error.
            let _ = std::io::stdout().write_all(settings::example().as_bytes());
        }
    }
    Ok(ExitCode::SUCCESS)
}
