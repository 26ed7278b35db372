//! `smig completions`: shell completion scripts.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smig completions bash > ~/.local/share/bash-completion/completions/smig
  smig completions zsh > ~/.zfunc/_smig        (with ~/.zfunc in fpath)
  smig completions fish > ~/.config/fish/completions/smig.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script for `command_line`, the program's complete command line.
pub(crate) fn run(args: &CompletionsArgs, mut command_line: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, "smig", &mut script);
    // A reader that closes the pipe early (`| head`) is not an error.
    let _ = std::io::stdout().write_all(&script);
    Ok(ExitCode::SUCCESS)
}
