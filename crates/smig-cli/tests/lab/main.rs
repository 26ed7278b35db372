//! `smig lab run`, `smig lab merge` and `smig lab link` as programs: resuming, shards, errors, and
//! every installed server.
//!
//! Where the machine forbids network namespaces, the tests that need them are skipped with a message.

mod campaign;
mod commands;
mod identify;
mod link;
mod refusals;
mod servers;
mod support;
