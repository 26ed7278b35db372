//! Servers under test: finds, configures, starts and stops them.
//!
//! Owns the configuration of each server: a command with files, from this crate's `servers/` or from a scenario.
//! Every server has its own configuration and its own files in the run's directory, and changes nothing else on
//! the machine; `--show-config` prints the complete configuration.

mod addresses;
mod built_in;
mod config;
mod find;
mod process;

pub(crate) use addresses::{resolver_rules, shared_names};
pub use config::{Launch, ProcessOptions, RunAs, ServerEnv};
pub(crate) use find::{
    build_go_server, build_http3_peer, command_version, find_command, install_command,
    server_version,
};
pub use find::{find_browser, find_in_path, find_server_tool, is_executable_file};
pub use process::ServerError;
pub(crate) use process::{ServerProcess, exec_child};
