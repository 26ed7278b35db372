//! Servers under test: finds, configures, starts and stops them.
//!
//! Owns the configuration of each server. Every server has its own configuration and its own files in
//! the run's directory, and changes nothing else on the machine; `--show-config` prints the complete
//! configuration.

mod config;
mod find;
mod process;

pub use config::{Launch, RunAs, ServerEnv, ServerJob};
pub use find::{build_go_server, in_path, install_command, is_program, program_of, version_of};
pub use process::{PeerError, ServerProcess};
