//! Servers under test: finds, configures, starts and stops them.
//!
//! Owns the configuration of each server: a command with files, from this crate's `servers/` or from a scenario.
//! Every server has its own configuration and its own files in the run's directory, and changes nothing else on
//! the machine; `--show-config` prints the complete configuration.

mod built_in;
mod config;
mod find;
mod process;

pub use config::{Launch, ProcessOptions, RunAs, ServerEnv};
pub use find::{
    build_go_server, build_http3_peer, find_in_path, find_server_tool, install_command,
    is_executable_file, server_version,
};
pub(crate) use find::{command_version, find_command};
pub use process::ServerError;
pub(crate) use process::{ServerProcess, exec_child};
