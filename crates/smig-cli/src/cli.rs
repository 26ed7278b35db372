//! Top level of the command line.

use clap::{Parser, Subcommand};

/// HTTP/2 whose running streams migrate between TCP connections.
#[derive(Debug, Parser)]
#[command(
    name = "smig",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  smig serve ./public                              serve a directory on https://localhost:8443
  smig get https://localhost:8443/big -o big       fetch a file from it
  smig gateway --to http://127.0.0.1:8080          put a gateway in front of an existing server
  smig help get                                    options, examples and exit codes of a command"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(crate::serve::ServeArgs),
    Get(Box<crate::get::GetArgs>),
    Gateway(Box<crate::gateway::GatewayArgs>),
    Agent(Box<crate::agent::AgentArgs>),
    Demo(Box<crate::demo::DemoArgs>),
    Lab(Box<crate::lab::LabArgs>),
    Probe(crate::probe::ProbeArgs),
    Config(crate::config::ConfigArgs),
    Completions(crate::completions::CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
