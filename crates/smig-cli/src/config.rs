//! `smig config`: check a configuration file, or print an example.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use smig_agent::{self as agent, AgentConfig};

use crate::exit::{CliError, Exit};
use crate::settings::{self, Settings};

/// Check a configuration file of `smig serve`, `smig gateway` or `smig agent`, or print an example
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smig config example > smig.toml
  smig config check smig.toml
  smig serve ./public --config smig.toml
  smig config example gateway > gateway.toml
  smig config example agent > agent.toml")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a file and print all errors; the exit code is 2 if there are any. The command that the file
    /// is for is detected from its sections
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print an example file with every key, its description, and its default or an example value
    Example {
        /// The command that the file is for
        #[arg(value_enum, default_value_t = Program::Serve)]
        program: Program,
    },
}

/// A command that has a configuration file.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Program {
    Serve,
    Gateway,
    Agent,
}

pub(crate) fn run(args: &ConfigArgs) -> Result<ExitCode> {
    match &args.action {
        Action::Check { file } => {
            let result = if AgentConfig::is_agent_config(file) {
                AgentConfig::load(file).map(drop).map_err(|faults| faults.to_string())
            } else if smig_gateway::config::is_gateway_file(file) {
                smig_gateway::config::Config::load(file)
                    .and_then(|config| smig_gateway::Gateway::check(&config))
                    .map_err(|faults| faults.to_string())
            } else {
                settings::load(file, &mut Settings::default())
            };
            result.map_err(|faults| CliError::new(Exit::Usage, faults))?;
            let _ = writeln!(std::io::stdout(), "{}: no errors", file.display());
        }
        Action::Example { program } => {
            let example = match program {
                Program::Serve => settings::example(),
                Program::Gateway => smig_gateway::config::example(),
                Program::Agent => agent::example().to_owned(),
            };
            // A reader that closes the pipe early (`| head`) is not an error.
            let _ = std::io::stdout().write_all(example.as_bytes());
        }
    }
    Ok(ExitCode::SUCCESS)
}
