//! Servers by name: found, configured, started in a host, ended.
//!
//! Owns how each server is told what to do. Every one gets a folder and a configuration of its own and
//! touches nothing else of the machine; who reads `--show-config` sees all that it was told.

mod config;
mod find;
mod process;

pub use config::{Errand, Launch, Owner, Place};
pub use find::{build_go_server, install_command, program_of, version_of};
pub(crate) use find::{in_path, is_program};
pub use process::{Peer, PeerError};
